"""The files of an image folder, as a directory or inside a zip: which are images, of which split and class.

The rule is SPLIT/CLASS/…/file, below any directories; no file is opened to find out.
"""

import hashlib
import os
import re
import stat
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from filtercov.errors import DataError

SPLITS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}
LARGEST_FILE = 256 * 2**20  # bytes of a file; larger ones are not read

# What is above the split nearest to the top, the split, and the class, None for what lies in no class.
_PLACE = re.compile(rf"(|.*?/)({'|'.join(SPLITS)})/(?:([^/]+)/)?.*", re.IGNORECASE | re.ASCII | re.DOTALL)
# Hidden files, and what systems and programs leave behind: ignored.
_SYSTEMS = r"__macosx|__pycache__|thumbs\.db|ehthumbs\.db|desktop\.ini|icon\r|@eadir|lost\+found|#[^/]*#"
_BACKUPS = r"~|\.bak|\.orig|\.tmp|\.swp|\.part|\.crdownload"
_CLUTTER = re.compile(rf"(^|/)\.|(^|/)({_SYSTEMS})(/|$)|({_BACKUPS})(/|$)", re.IGNORECASE)
# What datasets keep beside their images: ignored. Any other file is tried, and reported if it is not an image.
_TEXTS = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".rst", ".html", ".pdf", ".log")
_ARRAYS = (".npy", ".npz", ".mat", ".h5", ".pkl", ".parquet", ".db", ".zip", ".tar", ".gz", ".ini", ".py", ".sh")
_CAMERAS = (".aae", ".xmp", ".thm", ".mp4", ".mov", ".avi", ".url", ".lnk")
_NO_IMAGES = (*_TEXTS, *_ARRAYS, *_CAMERAS, "/")  # a directory's path ends with /
_PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")


class Entry(NamedTuple):
    """A path with `/` between names, and at the end of a directory; a file's stamp changes when the file does."""

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
        """All files and directories; clutter may be left out."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the content of a file."""

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

    def fingerprint(self, *settings: object) -> str:
        """Return a hash of the settings and of all files' paths and stamps."""
        digest = hashlib.sha256(repr(settings).encode())
        for file in self.files:
            digest.update(f"{file.path}\0{file.stamp}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()[:24]


def open_tree(path: Path) -> Tree:
    """Return the tree at a directory or zip file."""
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
        pending = [("", frozenset({_identity(self.path.stat())}))]
        while pending:
            folder, above = pending.pop()
            for entry in self._listed(folder):
                path = folder + entry.name
                try:
                    status = entry.stat()
                except OSError:  # a link to nothing
                    parent = folder.rstrip("/").rpartition("/")[2]
                    if not SPLITS.keys().isdisjoint((entry.name.lower(), parent.lower())):
                        raise DataError(f"{self.path / path} is a link to nothing; repair or remove it") from None
                    yield Entry(path, "broken link")  # of an image: reported when it is read
                    continue
                if stat.S_ISREG(status.st_mode):
                    # A copy can keep size and time of what it replaces, but not the inode and its own time.
                    yield Entry(path, f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}")
                elif stat.S_ISDIR(status.st_mode) and _identity(status) not in above:
                    yield Entry(f"{path}/")
                    pending.append((f"{path}/", above | {_identity(status)}))

    def _listed(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path / folder) as entries:
                return [entry for entry in entries if not is_clutter(entry.name)]
        except OSError as error:  # skipping it would drop a class, or part of one, silently
            raise DataError(f"{self.path / folder} cannot be listed: {error.strerror}; repair or remove it") from error

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        full = self.path / path
        _check_size(full.stat().st_size)
        return full.read_bytes()


class ZipTree(Tree):
    """Files inside a zip, read in place. Of members with the same name the last counts, as when unpacking."""

    def _entries(self) -> Iterator[Entry]:
        return (Entry(path, f"{info.file_size} {info.CRC}") for path, info in self._members.items())

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        info = self._members[path]
        _check_size(info.file_size)  # a zip bomb says so here, or fails its checksum
        return self._zip.read(info)

    @cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        try:
            # Some programs on Windows write backslashes.
            return {info.filename.replace("\\", "/"): info for info in self._zip.infolist()}
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise DataError(f"{self.path} cannot be read as a zip file: {error}; fetch or make it anew") from error

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


def _check_size(size: int) -> None:
    if size > LARGEST_FILE:
        raise OSError(f"larger than {LARGEST_FILE} bytes")


def is_clutter(path: str) -> bool:
    """Whether a file or a directory above it is hidden, a system's own, or a program's backup.

    >>> [is_clutter(path) for path in ("._cat.jpg", "__MACOSX/cat.jpg", "Thumbs.db", "cat.jpg~", "my.cat.jpg")]
    [True, True, True, True, False]
    """
    return _CLUTTER.search(path) is not None


def find_images(entries: Iterable[Entry], source: Path) -> tuple[ImageFile, ...]:
    """Return the images among the entries of `source`, sorted by path.

    Where there is `val/` but no `test/`, as in ImageNet, `val/` is the test set.

    >>> files = find_images([Entry("pets/train/cat/0/a.jpg"), Entry("pets/val/cat/b.jpg")], Path("pets.zip"))
    >>> [(file.split, file.label) for file in files]
    [('train', 'cat'), ('test', 'cat')]
    """
    images: list[tuple[Entry, str, str]] = []  # with the directories of its split and class
    train_classes = {}
    for entry, split, label in _nearest_splits(entries, source):
        if label is None:
            if entry.path.lower().endswith(_PICTURES):
                raise DataError(f"{source}: {entry.path} is in no class; move it to {split}/CLASS/ or remove it")
            continue
        if split.lower() == "train":
            train_classes[label] = f"{split}/{label}"
        if not entry.path.lower().endswith(_NO_IMAGES):
            images.append((entry, split, label))
    splits = _split_names(dict.fromkeys(split for _, split, _ in images), source)
    filled = {label for _, split, label in images if splits[split] == "train"}
    for label, folder in train_classes.items():
        if label not in filled:
            raise DataError(f"{source}: the class {folder} holds no images; fill it or remove it")
    return tuple(ImageFile(entry.path, splits[split], label, entry.stamp) for entry, split, label in images)


def _nearest_splits(entries: Iterable[Entry], source: Path) -> list[tuple[Entry, str, str | None]]:
    """Return the entries in the splits nearest to the top, sorted by path, with split and class."""
    found: dict[str, list[tuple[Entry, str, str | None]]] = {}  # by the path above the splits
    trained = set()
    for entry in sorted(entries):
        match = _PLACE.fullmatch(entry.path)
        if match is None or is_clutter(entry.path):
            continue
        above, split, label = match.groups()
        found.setdefault(above, []).append((entry, split, label))
        if split.lower() == "train" and label is not None and not entry.path.lower().endswith(_NO_IMAGES):
            trained.add(above)
    if not trained:
        raise DataError(f"{source} holds no train/CLASS/image files; arrange it as train/CLASS/*, test/CLASS/*")
    depth = min(above.count("/") for above in trained)
    nearest, *others = sorted(above for above in trained if above.count("/") == depth)
    if others:
        raise DataError(f"{source} holds two datasets, {nearest} and {others[0]}; name the directory of one of them")
    return found[nearest]


def _split_names(directories: Iterable[str], source: Path) -> dict[str, str]:
    """Return the split that each directory is."""
    by_split: dict[str, str] = {}
    for directory in directories:
        other = by_split.setdefault(SPLITS[directory.lower()], directory)
        if other != directory:
            raise DataError(f"{source} holds both {other}/ and {directory}/, which mean the same; keep one of them")
    if "test" not in by_split and "validation" in by_split:
        by_split["test"] = by_split.pop("validation")
    return {directory: split for split, directory in by_split.items()}
