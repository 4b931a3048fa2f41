"""`folder:PATH`: a directory or zip of train/CLASS/image and test/CLASS/image, with or without val/CLASS/image.

Large images are streamed. Small ones are decoded once into a directory of the cache, with a file of pixels for each
split, which is mapped into memory, and the names of bad files. It appears under its final name only when it is
complete. That name is a fingerprint of the source, so a changed source is decoded anew.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from functools import partial
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
_BAD = "bad.json"  # in the cache: the files that cannot be decoded, with reasons
_SAMPLED = 64  # training images, to find size and channels of all
_CACHE_VERSION = 5  # of its format and of how images are decoded: part of the fingerprint


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
        of_tree = partial(StreamedImages, tree, size=size, channels=channels, workers=workers, bad=bad)
        sources = {split: of_tree(files) for split, files in tree.splits.items()}
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
    files = tree.splits["train"]
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
    """The images of each split, size × size, from the cache; decoded into it if they are not there yet."""
    name = f"{tree.path.name[:40]}-{tree.fingerprint(_CACHE_VERSION, size, channels)}"
    directory = cache_directory() / "folders" / name
    lock = Lock(directory.with_name(f".{name}.lock"))
    try:
        if not directory.exists():  # else nothing is written: the cache may be read-only
            directory.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=-1)  # others who want the same images wait
            if not directory.exists():
                _decode(tree, directory, size=size, channels=channels, bad=bad)
    except OSError as error:  # another user's, full, read-only, or a filesystem without locks
        raise DataError(
            f"cannot keep the decoded images of {tree.path}: {error}; set FILTERCOV_CACHE to another place"
        ) from error
    finally:
        lock.release()
    return _mapped(tree, directory, size=size, channels=channels, bad=bad)


def _decode(tree: Tree, final: Path, *, size: int, channels: int, bad: BadFiles) -> None:
    working = final.with_name(f".decoding-{final.name}")
    shutil.rmtree(working, ignore_errors=True)  # of a process that was killed
    working.mkdir()
    try:
        for split, files in tree.splits.items():
            # Written, not mapped: a full disk is then an error and not a signal that ends the process.
            with (working / split).open("wb") as pixels:
                for file in files:
                    try:
                        image = read_image(tree, file.path, channels=channels)
                    except UndecodableError as error:
                        bad.add(file.path, str(error))
                    else:
                        pixels.write(fit_square(image, size).tobytes())
        (working / _BAD).write_text(json.dumps(bad.found), encoding="utf-8")
        for path in working.iterdir():
            flush(path)
        working.rename(final)
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _mapped(tree: Tree, directory: Path, *, size: int, channels: int, bad: BadFiles) -> dict[str, ImageArrays]:
    arrays = {}
    try:
        found: dict[str, str] = json.loads((directory / _BAD).read_text(encoding="utf-8"))
        for split, files in tree.splits.items():
            if good := [file for file in files if file.path not in found]:
                pixels = np.memmap(directory / split, np.uint8, mode="r", shape=(len(good), size, size, channels))
                arrays[split] = ImageArrays(pixels, tree.labels(good), tree.classes)
    except (OSError, ValueError) as error:
        raise DataError(f"the decoded images in {directory} are damaged ({error}); delete that directory") from error
    for path, reason in found.items():
        bad.add(path, reason)
    if lost := tree.splits.keys() - arrays.keys():
        raise DataError(f"none of the {lost.pop()} images of {tree.path} can be read; repair or replace them")
    return arrays
