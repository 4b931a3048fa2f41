"""A folder of labelled images, as a directory or inside a zip, seen the same way: SPLIT/CLASS/…/file."""

import hashlib
import os
import re
import stat
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from filtercov.errors import DataError
from filtercov.lab.data.layout import Entry, ImageFile, arrange, is_clutter

LARGEST_FILE = 256 * 2**20  # an image file beyond this is not read
_UNUSUAL = re.compile(r"(^|/)\.{0,2}/|(^|/)\.\.?$|^[A-Za-z]:")  # a path with empty names, ., .. or a drive
_ABSOLUTE = re.compile(r"/|[A-Za-z]:")
_UTF8_NAME = 0x800  # the flag of a zip's member that says how its name is encoded


class Tree(ABC):
    """The files of a folder dataset."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def _entries(self) -> Iterator[Entry]:
        """Yield every file and directory; what is clutter may be left out."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return a file's content."""

    @cached_property
    def files(self) -> tuple[ImageFile, ...]:
        """Every image of every class, sorted by path."""
        return arrange(self._entries(), self.path)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have images: train, and of validation and test what there is."""
        return tuple(sorted({file.split for file in self.files}))

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The classes of the training files, sorted; the other files may have no others."""
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
    """Files below a directory. Links are followed, but not in circles; what cannot be opened is listed all the same."""

    def _entries(self) -> Iterator[Entry]:
        pending = [("", frozenset({_identity(self.path.stat())}))]
        while pending:
            folder, above = pending.pop()
            for entry in self._listed(folder):
                path = folder + entry.name
                try:
                    status = entry.stat()
                except OSError as error:
                    yield Entry(path, str(error.errno), "broken link")
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    # A copy can keep size and time of what it replaces, but not the inode and its own time.
                    stamp = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
                    yield Entry(path, stamp)
                elif _identity(status) not in above:
                    yield Entry(path, kind="directory")
                    pending.append((f"{path}/", above | {_identity(status)}))

    def _listed(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path / folder) as entries:
                return [entry for entry in entries if not is_clutter(entry.name)]
        except OSError as error:  # passing over it would drop a class, or part of one, without a word
            raise DataError(f"{self.path / folder} cannot be listed: {error.strerror}; mend or remove it") from error

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
    """Files inside a zip, read where they lie: nothing is unpacked. Of members with one name the last counts."""

    def _entries(self) -> Iterator[Entry]:
        for path, info in self._members.items():
            if path.endswith("/"):
                yield Entry(path.rstrip("/"), kind="directory")
            else:
                yield Entry(path, f"{info.file_size} {info.CRC}")

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        info = self._members[path]
        if info.file_size > LARGEST_FILE:  # a zip bomb says so here, or fails its checksum
            raise OSError(f"larger than {LARGEST_FILE} bytes")
        return self._zip.read(info)

    @cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        try:
            infos = self._zip.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise DataError(f"{self.path} cannot be read as a zip file: {error}; fetch or make it anew") from error
        return {self._path(info): info for info in infos}

    def _path(self, info: zipfile.ZipInfo) -> str:
        """Return a member's path with `/` between names, one after each if it is a directory."""
        name = info.filename
        if not info.flag_bits & _UTF8_NAME and not name.isascii():  # macOS writes UTF-8 and does not say so
            with suppress(UnicodeError):
                name = name.encode("cp437").decode()
        if "/" not in name:  # as some programs on Windows write them
            name = name.replace("\\", "/")
        if not _UNUSUAL.search(name):
            return name
        names = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in names or _ABSOLUTE.match(name):
            raise DataError(f"{self.path}: the name {name!r} leads out of the archive; make the archive anew")
        return "/".join(names) + ("/" if name.endswith("/") else "")

    @property
    def _zip(self) -> zipfile.ZipFile:
        # Each process opens its own: a shared file position would mix up the reads of forked workers.
        if getattr(self, "_opened", (None,))[0] != os.getpid():
            self._opened = (os.getpid(), zipfile.ZipFile(self.path))
        return self._opened[1]

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_opened", "_members")}


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def open_tree(path: Path) -> Tree:
    """Return the tree at a directory or zip file."""
    try:
        if path.is_dir():
            return DirectoryTree(path)
        if path.is_file() and zipfile.is_zipfile(path):
            return ZipTree(path)
    except OSError as error:
        raise DataError(f"{path} cannot be looked at: {error.strerror}; make it readable or name another") from error
    raise DataError(f"{path} is neither a directory nor a zip file of images")
