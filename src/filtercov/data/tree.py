"""A folder of labelled images, as a directory or inside a zip, seen the same way: SPLIT/CLASS/file."""

import hashlib
import os
import stat
import zipfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from filtercov.errors import DataError

SPLITS = {"train": "train", "test": "test", "val": "test", "valid": "test", "validation": "test"}
LARGEST_FILE = 256 * 2**20  # an image file beyond this is not read


@dataclass(frozen=True)
class ImageFile:
    """One file: its path within the tree, split (train or test), class, and a stamp that changes when it changes."""

    path: str
    split: str
    label: str
    stamp: str


class Tree(ABC):
    """The files of a folder dataset."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def _entries(self) -> list[tuple[str, str]]:
        """Return (path, stamp) of every file."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return a file's content."""

    @cached_property
    def files(self) -> tuple[ImageFile, ...]:
        """Every file of every class, sorted; one common directory above the splits is looked through."""
        entries = sorted(self._entries())
        parts = [(PurePosixPath(path).parts, path, stamp) for path, stamp in entries]
        tops = {p[0] for p, _, _ in parts if len(p) > 1}
        depth = 0 if any(top in SPLITS for top in tops) or len(tops) != 1 else 1
        found = tuple(
            ImageFile(path, SPLITS[p[depth]], p[depth + 1], stamp)
            for p, path, stamp in parts
            if len(p) == depth + 3 and p[depth] in SPLITS
        )
        if not any(file.split == "train" for file in found):
            raise DataError(f"{self.path} holds no train/CLASS/image files; arrange it as train/CLASS/*, test/CLASS/*")
        return found

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The classes of the training files, sorted; the test files may have no others."""
        classes = sorted({file.label for file in self.files if file.split == "train"})
        strange = sorted({file.label for file in self.files} - set(classes))
        if strange:
            raise DataError(f"{self.path} tests classes it does not train: {', '.join(strange[:5])}; remove them")
        return tuple(classes)

    def fingerprint(self, *extra: object) -> str:
        """Return a hash of all files' paths and stamps (and of what else is given)."""
        digest = hashlib.sha256(repr(extra).encode())
        for file in self.files:
            digest.update(f"{file.path}\0{file.stamp}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()[:24]


class DirectoryTree(Tree):
    """Files below a directory; links are followed. Broken links and special files are listed, but never opened."""

    def _entries(self) -> list[tuple[str, str]]:
        entries = []
        for folder, _, names in os.walk(self.path, followlinks=True):
            for name in names:
                path = Path(folder) / name
                try:
                    status = path.stat()
                    # A copy can keep size and time of what it replaces, but not the inode and its own time.
                    stamp = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
                except OSError as error:
                    stamp = str(error.errno)
                entries.append((path.relative_to(self.path).as_posix(), stamp))
        return entries

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        full = self.path / path
        status = full.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
            raise OSError("not a regular file")
        if status.st_size > LARGEST_FILE:
            raise OSError(f"larger than {LARGEST_FILE} bytes")
        return full.read_bytes()


class ZipTree(Tree):
    """Files inside a zip, read where they lie: nothing is unpacked."""

    def _entries(self) -> list[tuple[str, str]]:
        return [(info.filename, f"{info.file_size} {info.CRC}") for info in self._zip.infolist() if not info.is_dir()]

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        if self._zip.getinfo(path).file_size > LARGEST_FILE:  # a zip bomb says so here, or fails its checksum
            raise OSError(f"larger than {LARGEST_FILE} bytes")
        return self._zip.read(path)

    @property
    def _zip(self) -> zipfile.ZipFile:
        # Each process opens its own: a shared file position would mix up the reads of forked workers.
        if getattr(self, "_opened", (None,))[0] != os.getpid():
            self._opened = (os.getpid(), zipfile.ZipFile(self.path))
        return self._opened[1]

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_opened"}


def open_tree(path: Path) -> Tree:
    """Return the tree at a directory or zip file."""
    if path.is_dir():
        return DirectoryTree(path)
    if path.is_file() and zipfile.is_zipfile(path):
        return ZipTree(path)
    raise DataError(f"{path} is neither a directory nor a zip file of images")
