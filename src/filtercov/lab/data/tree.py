"""The files of an image folder, as a directory or inside a zip: which are images, of which split and class.

The rule is SPLIT/CLASS/…/image, below any directories. A file is an image by its extension; its content decides the
format when it is read.
"""

import hashlib
import os
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from filtercov.errors import DataError

SPLITS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}
LARGEST_FILE = 256 * 2**20  # bytes; larger files are not read
_IMAGES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")

# What is above the split nearest to the top, the split, and the class (None for what is directly in the split).
_PLACE = re.compile(rf"(|.*?/)({'|'.join(SPLITS)})/(?:([^/]+)/)?.*", re.IGNORECASE | re.ASCII | re.DOTALL)
_CLUTTER = re.compile(r"(^|/)(\.|__macosx(/|$)|@eadir(/|$))", re.IGNORECASE)  # hidden, or left by macOS and Synology


class Entry(NamedTuple):
    """A path with `/` between names and at the end of a directory; a file's stamp changes when the file does."""

    path: str
    stamp: str = ""


class ImageFile(NamedTuple):
    """An image: its path within the tree, split (train, validation or test), class, and stamp."""

    path: str
    split: str
    label: str
    stamp: str


class Tree(ABC):
    """The files of an image folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def _entries(self) -> Iterable[Entry]:
        """All files and directories."""

    @abstractmethod
    def _size(self, path: str) -> int: ...

    @abstractmethod
    def _content(self, path: str) -> bytes: ...

    def read(self, path: str) -> bytes:
        """The content of a file; one that is too large is an `OSError`."""
        if self._size(path) > LARGEST_FILE:  # a zip bomb says so here, or fails its checksum
            raise OSError(f"larger than {LARGEST_FILE} bytes")
        return self._content(path)

    @cached_property
    def files(self) -> tuple[ImageFile, ...]:
        """Every image of every class, sorted by path."""
        return find_images(self._entries(), self.path)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have images: train, and where present validation and test."""
        return tuple(sorted({file.split for file in self.files}))

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The classes of the training files, sorted; the other splits may have no others."""
        classes = sorted({file.label for file in self.files if file.split == "train"})
        untrained = sorted({file.label for file in self.files} - set(classes))
        if untrained:
            raise DataError(f"{self.path} tests classes it does not train: {', '.join(untrained[:5])}; remove them")
        return tuple(classes)

    def labels(self, files: Iterable[ImageFile]) -> NDArray[np.int64]:
        """The number of each file's class, (N,)."""
        numbers = {label: number for number, label in enumerate(self.classes)}
        return np.array([numbers[file.label] for file in files], dtype=np.int64)

    def fingerprint(self, *settings: object) -> str:
        """A hash of the settings and of all files' paths and stamps."""
        digest = hashlib.sha256(repr(settings).encode())
        for file in self.files:
            digest.update(f"{file.path}\0{file.stamp}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()[:24]


def open_tree(path: Path) -> Tree:
    """The tree at a directory or zip file."""
    try:
        if path.is_dir():
            return DirectoryTree(path)
        if path.is_file() and zipfile.is_zipfile(path):
            return ZipTree(path)
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror}; make it readable or name another") from error
    raise DataError(f"{path} is neither a directory nor a zip file of images")


class DirectoryTree(Tree):
    """Files below a directory. Links are followed, but not in circles."""

    def _entries(self) -> Iterator[Entry]:
        return self._below("", frozenset())

    def _below(self, folder: str, above: frozenset[tuple[int, int]]) -> Iterator[Entry]:
        try:
            status = (self.path / folder).stat()
            entries = list(os.scandir(self.path / folder))
        except OSError as error:  # skipping it would drop a class, or part of one, silently
            raise DataError(f"{self.path / folder} cannot be listed: {error.strerror}; repair or remove it") from error
        here = (status.st_dev, status.st_ino)
        if here in above:
            return
        for entry in entries:
            path = folder + entry.name
            if _CLUTTER.search(entry.name):
                continue
            if entry.is_dir():
                yield Entry(f"{path}/")
                yield from self._below(f"{path}/", above | {here})
            elif entry.is_file():
                # A copy can keep size and time of what it replaces, but not the inode and its own time.
                file = entry.stat()
                yield Entry(path, f"{file.st_size} {file.st_mtime_ns} {file.st_ctime_ns} {file.st_ino}")
            elif entry.is_symlink():
                if not path.lower().endswith(_IMAGES):  # perhaps a whole class
                    raise DataError(f"{self.path / path} is a link to nothing; repair or remove it")
                yield Entry(path, "broken link")  # reported when it is read

    def _size(self, path: str) -> int:
        return (self.path / path).stat().st_size

    def _content(self, path: str) -> bytes:
        return (self.path / path).read_bytes()


class ZipTree(Tree):
    """Files inside a zip, read in place. Of members with the same name the last counts, as when unpacking."""

    def _entries(self) -> Iterator[Entry]:
        try:
            return (Entry(path, f"{info.file_size} {info.CRC}") for path, info in self._zip.NameToInfo.items())
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise DataError(f"{self.path} cannot be read as a zip file: {error}; fetch or make it anew") from error

    def _size(self, path: str) -> int:
        return self._zip.getinfo(path).file_size

    def _content(self, path: str) -> bytes:
        return self._zip.read(path)

    @property
    def _zip(self) -> zipfile.ZipFile:
        # Each process opens its own: a shared file position would mix up the reads of forked workers.
        if getattr(self, "_opened", (None,))[0] != os.getpid():
            self._opened = (os.getpid(), zipfile.ZipFile(self.path))
        return self._opened[1]

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_opened"}


def find_images(entries: Iterable[Entry], source: Path) -> tuple[ImageFile, ...]:
    """The images among the entries of `source`, sorted by path, of the splits nearest to the top.

    Where there is `val/` but no `test/`, as in ImageNet, `val/` is the test set.

    >>> files = find_images([Entry("pets/train/cat/0/a.jpg"), Entry("pets/val/cat/b.jpg")], Path("pets.zip"))
    >>> [(file.split, file.label) for file in files]
    [('train', 'cat'), ('test', 'cat')]
    """
    places = [(entry, match.groups()) for entry in sorted(entries) if (match := _PLACE.fullmatch(entry.path))]
    places = [(entry, place) for entry, place in places if not _CLUTTER.search(entry.path)]
    images = [(entry, place) for entry, place in places if entry.path.lower().endswith(_IMAGES)]
    tops = {above for _, (above, split, label) in images if split.lower() == "train" and label}
    if not tops:
        raise DataError(f"{source} holds no train/CLASS/image files; arrange it as train/CLASS/*, test/CLASS/*")
    nearest, *others = sorted(tops, key=lambda above: (above.count("/"), above))
    if others and others[0].count("/") == nearest.count("/"):
        raise DataError(f"{source} holds two datasets, {nearest} and {others[0]}; name the directory of one of them")

    images = [(entry, place) for entry, place in images if place[0] == nearest]
    for entry, (_, split, label) in images:
        if not label:
            raise DataError(f"{source}: {entry.path} is in no class; move it to {split}/CLASS/ or remove it")
    trained = {label for _, (_, split, label) in images if split.lower() == "train"}
    for _, (above, split, label) in places:
        if above == nearest and split.lower() == "train" and label and label not in trained:
            raise DataError(f"{source}: the class {split}/{label} holds no images; fill it or remove it")

    directories: dict[str, str] = {}  # of each split
    for directory in dict.fromkeys(split for _, (_, split, _) in images):
        if (other := directories.setdefault(SPLITS[directory.lower()], directory)) != directory:
            raise DataError(f"{source} holds both {other}/ and {directory}/, which mean the same; keep one of them")
    if "test" not in directories and "validation" in directories:
        directories["test"] = directories.pop("validation")
    splits = {directory: split for split, directory in directories.items()}
    return tuple(ImageFile(entry.path, splits[split], label, entry.stamp) for entry, (_, split, label) in images)
