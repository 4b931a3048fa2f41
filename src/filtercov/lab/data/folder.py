"""`folder:PATH`: a directory or zip of train/CLASS/image and test/CLASS/image, with or without val/CLASS/image."""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from filtercov.errors import DataError
from filtercov.lab.data.arrays import Dataset, mean_and_std
from filtercov.lab.data.cache import cached_arrays
from filtercov.lab.data.decode import UndecodableError, shape_of
from filtercov.lab.data.scan import BadFiles, read
from filtercov.lab.data.source import ImageSource
from filtercov.lab.data.streaming import StreamedImages
from filtercov.lab.data.tree import Tree, open_tree

SMALL = 64  # images up to this side are decoded once and kept; larger ones are streamed
LARGE_SIZE = 224  # what large images are scaled to unless told otherwise
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_PEEKED = 64


def load_folder(
    path: Path, *, image_size: int | None = None, bad_limit: int = 100, workers: int | None = None
) -> Dataset:
    """Return the dataset of a folder; `image_size` scales its images (to at most 64: once, and kept)."""
    if image_size is not None and not 1 <= image_size <= 4096:
        raise DataError(f"image_size must lie in 1..4096, got {image_size}")
    tree = open_tree(path)
    if "test" not in tree.splits:
        raise DataError(f"{path} holds no test/CLASS or val/CLASS images; set some apart to measure accuracy with")
    if len(tree.classes) < 2:
        raise DataError(
            f"{path} needs two classes or more, each a train/CLASS, got {tree.classes[0]} alone; directories below a "
            "class belong to it, so move those that are classes up"
        )
    height, width, channels = _typical_shape(tree)
    side = min(height, width) if max(height, width) <= SMALL else LARGE_SIZE
    size = image_size or side
    sources: Mapping[str, ImageSource]
    if size <= SMALL:
        sources = arrays = cached_arrays(tree, size=size, channels=channels, bad_limit=bad_limit)
        for split, source in sources.items():
            if not len(source):
                raise DataError(f"none of the {split} images of {path} can be read; see `filtercov scan`")
        mean, std = mean_and_std(arrays["train"])
    else:
        bad = BadFiles(bad_limit)
        processes = min(8, os.cpu_count() or 1) if workers is None else workers
        sources = {
            split: _stream(tree, split, size=size, channels=channels, workers=processes, bad=bad)
            for split in tree.splits
        }
        mean, std = _IMAGENET if channels == 3 else ((0.449,), (0.226,))
    return Dataset(
        f"folder:{path.name}",
        sources["train"],
        sources["test"],
        in_channels=channels,
        image_size=size,
        mean=mean,
        std=std,
        validation=sources.get("validation"),
    )


def _typical_shape(tree: Tree) -> tuple[int, int, int]:
    """Return the commonest height and width of some training images spread over the folder, and the channels of all.

    One image in colour is enough for three channels: grey ones lose nothing in them, colour would be lost in one.
    """
    files = [file for file in tree.files if file.split == "train"]
    shapes: Counter[tuple[int, int]] = Counter()
    channels = 1
    for file in files[:: max(1, len(files) // _PEEKED)]:
        try:
            height, width, depth = shape_of(read(tree, file.path))
        except UndecodableError:
            continue  # reported when it is decoded for use
        shapes[height, width] += 1
        channels = max(channels, depth)
    if not shapes:
        raise DataError(f"{tree.path}: none of the training files looked at is an image; see `filtercov scan`")
    return *shapes.most_common(1)[0][0], channels


def _stream(tree: Tree, split: str, *, size: int, channels: int, workers: int, bad: BadFiles) -> StreamedImages:
    numbers = {label: number for number, label in enumerate(tree.classes)}
    files = [file for file in tree.files if file.split == split]
    labels = np.array([numbers[file.label] for file in files], dtype=np.int64)
    paths = tuple(file.path for file in files)
    return StreamedImages(tree, paths, labels, tree.classes, size, channels, workers, bad)
