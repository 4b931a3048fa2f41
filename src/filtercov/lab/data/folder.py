"""`folder:PATH`: a directory or zip of train/CLASS/image and test/CLASS/image, with or without val/CLASS/image.

Large images are streamed. Small ones are decoded once into a cache, a directory with images.bytes (a memory map) and
manifest.json, which appears under its final name only when it is complete. Its name is a fingerprint of the source, so
a changed source is decoded anew.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from filtercov.errors import DataError
from filtercov.files import Lock, cache_directory, flush
from filtercov.lab.data.dataset import Dataset, ImageArrays, ImageSource
from filtercov.lab.data.streaming import BadFiles, StreamedImages, UndecodableError, fit_square, read_image
from filtercov.lab.data.tree import Tree

SMALL = 64  # images up to this side are decoded once and kept; larger ones are streamed
LARGE_SIZE = 224  # what large images are scaled to by default
_NORMALISATION = {  # ImageNet's mean and standard deviation, by channels
    1: ((0.449,), (0.226,)),
    3: ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
_SAMPLED = 64  # training images, to find size and channels of all
_CACHE_VERSION = 4  # of its format and of how images are decoded: part of the fingerprint


def load_folder(
    path: Path, *, image_size: int | None = None, bad_limit: int = 100, workers: int | None = None
) -> Dataset:
    """Load an image folder; `image_size` scales its images (to at most 64: once, and kept)."""
    tree = Tree(path)
    if "test" not in tree.splits:
        raise DataError(f"{path} holds no test/CLASS or val/CLASS images; set some apart to measure accuracy with")
    if len(tree.classes) < 2:
        raise DataError(
            f"{path} needs two classes or more, each a train/CLASS, got {tree.classes[0]} alone; directories below a "
            "class belong to it, so move those that are classes up"
        )
    height, width, channels = _typical_shape(tree)
    size = image_size or (min(height, width) if max(height, width) <= SMALL else LARGE_SIZE)
    bad = BadFiles(bad_limit)
    sources: Mapping[str, ImageSource]
    if size <= SMALL:
        sources = arrays = cached_arrays(tree, size=size, channels=channels, bad=bad)
        mean, std = arrays["train"].mean_and_std()
    else:
        workers = min(8, os.cpu_count() or 1) if workers is None else workers
        sources = {split: StreamedImages.of(tree, split, size, channels, workers, bad) for split in tree.splits}
        mean, std = _NORMALISATION[channels]
    return Dataset(
        f"folder:{path.name}",
        sources["train"],
        sources["test"],
        in_channels=channels,
        image_size=size,
        mean=mean,
        std=std,
        validation=sources.get("val"),
    )


def _typical_shape(tree: Tree) -> tuple[int, int, int]:
    """The commonest height and width of some training images spread over the folder, and their channels.

    One image in colour is enough for three channels: grey ones lose nothing in them, colour would be lost in one.
    """
    files = [file for file in tree.files if file.split == "train"]
    shapes: Counter[tuple[int, int]] = Counter()
    channels = 1
    for file in files[:: max(1, len(files) // _SAMPLED)]:
        try:
            image = read_image(tree, file.path)
        except UndecodableError:
            continue  # reported when it is decoded for use
        shapes[image.height, image.width] += 1
        channels = max(channels, len(image.getbands()))
    if not shapes:
        raise DataError(f"{tree.path}: none of the {len(files)} training files that were tried is an image")
    return *shapes.most_common(1)[0][0], channels


def cached_arrays(tree: Tree, *, size: int, channels: int, bad: BadFiles) -> dict[str, ImageArrays]:
    """The images of each split, size × size, from the cache; decoded into it if they are not there yet.

    The cache is beside the source or, where that cannot be written, in the cache directory.
    """
    name = tree.fingerprint(_CACHE_VERSION, size, channels)
    homes = [tree.path.with_name(f"{tree.path.name}.filtercov"), cache_directory() / "folders"]
    for home in homes:
        if (home / name / "manifest.json").is_file():
            return _open_cache(home / name, tree, bad)
    for home in homes:
        lock = Lock(home / f".{name}.lock")
        try:
            home.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=-1)  # others who want the same images wait
            if not (home / name / "manifest.json").is_file():
                _fill_cache(home / name, tree, size=size, channels=channels, bad=bad)
        except OSError as error:  # another user's, full, read-only, or a filesystem without locks
            reason = error
            continue
        finally:
            lock.release()
        return _open_cache(home / name, tree, bad)
    raise DataError(f"cannot keep the decoded images of {tree.path}: {reason}; set FILTERCOV_CACHE to another place")


def _fill_cache(final: Path, tree: Tree, *, size: int, channels: int, bad: BadFiles) -> None:
    working = final.with_name(f".decoding-{final.name}")
    shutil.rmtree(working, ignore_errors=True)  # of a process that was killed
    working.mkdir()
    try:
        # Written, not mapped: a full disk is then an error and not a signal that ends the process.
        with (working / "images.bytes").open("wb") as images:
            for file in tree.files:
                try:
                    image = read_image(tree, file.path, channels=channels)
                except UndecodableError as error:
                    bad.add(file.path, str(error))
                else:
                    images.write(fit_square(image, size).tobytes())
        count = len(tree.files) - len(bad.found)
        manifest = {"source": str(tree.path), "shape": [count, size, size, channels], "bad": bad.found}
        (working / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        for path in working.iterdir():
            flush(path)
        working.rename(final)
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _open_cache(directory: Path, tree: Tree, bad: BadFiles) -> dict[str, ImageArrays]:
    try:
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        images = np.memmap(directory / "images.bytes", np.uint8, mode="r", shape=tuple(manifest["shape"]))
        found: dict[str, str] = manifest["bad"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"the decoded images in {directory} are damaged ({error}); delete that directory") from error
    for path, reason in found.items():
        bad.add(path, reason)
    files = [file for file in tree.files if file.path not in found]
    arrays = {}
    for split in tree.splits:
        rows = [row for row, file in enumerate(files) if file.split == split]
        if not rows:
            raise DataError(f"none of the {split} images of {tree.path} can be read; repair or replace them")
        # As files are sorted by path, a split is one stretch of the map, of which nothing is copied.
        stretch = slice(rows[0], rows[-1] + 1)
        arrays[split] = ImageArrays(images[stretch], tree.labels(files[stretch]), tree.classes)
    return arrays
