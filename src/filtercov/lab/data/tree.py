"""The files of an image folder, a directory or a zip: which are images, of which split and class.

The rule is SPLIT/CLASS/…/image, below any directories. A file is an image by its extension; its content decides the
format when it is read.
"""

import hashlib
import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from filtercov.errors import DataError

_IMAGES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")

# What is above the split nearest to the top, the split, and the class (None for what is directly in the split).
_PLACE = re.compile(r"(|.*?/)(train|val|test)/(?:([^/]+)/)?.*", re.DOTALL)
_CLUTTER = re.compile(r"(^|/)(\.|__MACOSX(/|$)|@eaDir(/|$))")  # hidden, or left by macOS and Synology


class ImageFile(NamedTuple):
    """An image: its path within the tree, split (train, val or test), class, and a stamp that changes when it does."""

    path: str
    split: str
    label: str
    stamp: str


class Tree:
    """The images of a directory or zip, sorted by path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.zipped = path.is_file()
            stamps = _zip_stamps(path) if self.zipped else _directory_stamps(path)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise DataError(
                f"{path} cannot be read as a directory or zip of images: {error}; repair that or name another"
            ) from error
        self.files = find_images(stamps, path)
        self.splits: dict[str, list[ImageFile]] = {}
        for file in self.files:
            self.splits.setdefault(file.split, []).append(file)
        self.classes = tuple(sorted({file.label for file in self.splits["train"]}))
        self.numbers = {label: number for number, label in enumerate(self.classes)}
        if untrained := sorted({file.label for file in self.files} - set(self.classes)):
            raise DataError(f"{path} tests classes it does not train: {', '.join(untrained[:5])}; remove them")

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return _opened(self, os.getpid()).read(path) if self.zipped else (self.path / path).read_bytes()

    def labels(self, files: Iterable[ImageFile]) -> NDArray[np.int64]:
        """The number of each file's class, (N,)."""
        return np.array([self.numbers[file.label] for file in files], dtype=np.int64)

    def fingerprint(self, *settings: object) -> str:
        """A hash of the settings and of all files' paths and stamps."""
        digest = hashlib.sha256(repr(settings).encode())
        for file in self.files:
            digest.update(f"{file.path}\0{file.stamp}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()[:24]


@lru_cache(maxsize=4)
def _opened(tree: Tree, process: int) -> zipfile.ZipFile:  # noqa: ARG001
    """The tree's zip, opened by each process: forked workers would mix up their reads of one file position."""
    return zipfile.ZipFile(tree.path)


def _zip_stamps(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        files = archive.NameToInfo.items()
        return {name: f"{info.file_size} {info.CRC}" for name, info in files if not _CLUTTER.search(name)}


def _directory_stamps(root: Path) -> dict[str, str]:
    """The stamp of each file, by its path from `root`, and an empty one for each directory, whose path ends in `/`.

    What cannot be listed or is a link to nothing is an error: skipping it could drop a class silently.
    """
    stamps: dict[str, str] = {}

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(root, onerror=fail, followlinks=True):
        above = f"{Path(folder).relative_to(root).as_posix()}/".removeprefix("./")
        folders[:] = [name for name in folders if not _CLUTTER.search(name)]
        stamps |= {f"{above}{name}/": "" for name in folders}
        for name in names:
            if not _CLUTTER.search(name):
                # A copy can keep size and time of what it replaces, but not the inode and its own time.
                file = (Path(folder) / name).stat()
                stamps[above + name] = f"{file.st_size} {file.st_mtime_ns} {file.st_ctime_ns} {file.st_ino}"
    return stamps


def find_images(stamps: Mapping[str, str], source: Path) -> tuple[ImageFile, ...]:
    """The images among the paths of `source`, sorted, of the splits nearest to the top.

    Where there is `val/` but no `test/`, as in ImageNet, `val/` is the test set.

    >>> files = find_images({"pets/train/cat/0/a.jpg": "", "pets/val/cat/b.jpg": ""}, Path("pets.zip"))
    >>> [(file.split, file.label) for file in files]
    [('train', 'cat'), ('test', 'cat')]
    """
    found = [(path, *match.groups()) for path in sorted(stamps) if (match := _PLACE.fullmatch(path))]
    images = [place for place in found if place[0].lower().endswith(_IMAGES)]
    tops = {above for _, above, split, label in images if split == "train" and label}
    if not tops:
        raise DataError(f"{source} holds no train/CLASS/image files; arrange it as train/CLASS/*, test/CLASS/*")
    nearest, *others = sorted(tops, key=lambda above: (above.count("/"), above))
    if others and others[0].count("/") == nearest.count("/"):
        raise DataError(f"{source} holds two datasets, {nearest} and {others[0]}; name the directory of one of them")

    images = [place for place in images if place[1] == nearest]
    for path, _, split, label in images:
        if not label:
            raise DataError(f"{source}: {path} is in no class; move it to {split}/CLASS/ or remove it")
    trained = {label for _, _, split, label in images if split == "train"}
    for _, above, split, label in found:
        if above == nearest and split == "train" and label and label not in trained:
            raise DataError(f"{source}: the class train/{label} holds no images; fill it or remove it")
    tested = any(split == "test" for _, _, split, _ in images)
    return tuple(
        ImageFile(path, "test" if split == "val" and not tested else split, label, stamps[path])
        for path, _, split, label in images
    )
