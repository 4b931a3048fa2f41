"""`folder:PATH`: a directory or zip of train/CLASS/image and test/CLASS/image (or val/CLASS/image)."""

import os
from collections import Counter
from pathlib import Path

import numpy as np

from filtercov.data.arrays import Dataset, mean_and_std
from filtercov.data.cache import cached_arrays
from filtercov.data.decode import UndecodableError, shape_of
from filtercov.data.scan import BadFiles, read
from filtercov.data.streaming import StreamedImages
from filtercov.data.tree import Tree, open_tree
from filtercov.errors import DataError

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
    if not any(file.split == "test" for file in tree.files):
        raise DataError(f"{path} holds no test/CLASS or val/CLASS images; set some apart to measure accuracy with")
    height, width, channels = _typical_shape(tree)
    side = min(height, width) if max(height, width) <= SMALL else LARGE_SIZE
    size = image_size or side
    if size <= SMALL:
        splits = cached_arrays(tree, size=size, channels=channels, bad_limit=bad_limit)
        for split, arrays in splits.items():
            if not len(arrays):
                raise DataError(f"none of the {split} images of {path} can be read; see `filtercov scan`")
        mean, std = mean_and_std(splits["train"])
        return Dataset(f"folder:{path.name}", splits["train"], splits["test"], channels, size, mean, std)
    bad = BadFiles(bad_limit)
    processes = min(8, os.cpu_count() or 1) if workers is None else workers
    train, test = (
        _stream(tree, split, size=size, channels=channels, workers=processes, bad=bad) for split in ("train", "test")
    )
    mean, std = _IMAGENET if channels == 3 else ((0.449,), (0.226,))
    return Dataset(f"folder:{path.name}", train, test, channels, size, mean, std)


def _typical_shape(tree: Tree) -> tuple[int, int, int]:
    """Return the commonest (height, width, channels) of some training images spread over the folder."""
    files = [file for file in tree.files if file.split == "train"]
    shapes: Counter[tuple[int, int, int]] = Counter()
    for file in files[:: max(1, len(files) // _PEEKED)]:
        try:
            shapes[shape_of(read(tree, file.path))] += 1
        except UndecodableError:
            continue  # reported when it is decoded for use
    if not shapes:
        raise DataError(f"{tree.path}: none of the training files looked at is an image; see `filtercov scan`")
    return shapes.most_common(1)[0][0]


def _stream(tree: Tree, split: str, *, size: int, channels: int, workers: int, bad: BadFiles) -> StreamedImages:
    numbers = {label: number for number, label in enumerate(tree.classes)}
    files = [file for file in tree.files if file.split == split]
    labels = np.array([numbers[file.label] for file in files], dtype=np.int64)
    paths = tuple(file.path for file in files)
    return StreamedImages(tree, paths, labels, tree.classes, size, channels, workers, bad)
