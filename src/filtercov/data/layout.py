"""Which files of a folder dataset are images, and of which split and class: SPLIT/CLASS/…/file, nothing is opened."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from filtercov.errors import DataError

SPLITS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}

# What systems and programs leave behind: nobody put it there as an image, so it is passed over without a word.
_CLUTTER = ("__macosx", "__pycache__", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "@eadir", "lost+found")
_BACKUPS = ("~", ".bak", ".orig", ".tmp", ".swp", ".part", ".crdownload")
# What datasets keep beside their images. A name that is in neither list is tried, and reported if it is no image.
_TEXTS = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".rst", ".html", ".pdf", ".log")
_ARRAYS = (".npy", ".npz", ".mat", ".h5", ".pkl", ".parquet", ".db", ".zip", ".tar", ".gz", ".ini", ".py", ".sh")
_OF_CAMERAS = (".aae", ".xmp", ".thm", ".mp4", ".mov", ".avi", ".url", ".lnk")
_SIDECARS = frozenset((*_TEXTS, *_ARRAYS, *_OF_CAMERAS))
_PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")


@dataclass(frozen=True)
class Entry:
    """What lies in a tree: its path with `/` between names, and a stamp that changes when it changes."""

    path: str
    stamp: str = ""
    kind: Literal["file", "directory", "broken link"] = "file"


@dataclass(frozen=True)
class ImageFile:
    """One file: its path within the tree, split (train, validation or test), class, and stamp."""

    path: str
    split: str
    label: str
    stamp: str


def is_clutter(name: str) -> bool:
    """Return whether a file or directory of this name is hidden, a system's own, or a program's backup.

    >>> [is_clutter(name) for name in ("._cat.jpg", "__MACOSX", "Thumbs.db", "cat.jpg~", "cat.jpg")]
    [True, True, True, True, False]
    """
    lower = name.lower()
    autosaved = len(name) > 1 and name[0] == name[-1] == "#"
    return name.startswith(".") or autosaved or lower in _CLUTTER or lower.endswith(_BACKUPS)


def arrange(entries: Iterable[Entry], source: Path) -> tuple[ImageFile, ...]:
    """Return the images among the entries of `source`, sorted by path; directories above the splits are looked through.

    Where there is `val/` but no `test/`, as in ImageNet, `val/` is the test set.

    >>> files = arrange([Entry("pets/train/cat/0/a.jpg"), Entry("pets/val/cat/b.jpg")], Path("pets.zip"))
    >>> [(file.split, file.label) for file in files]
    [('train', 'cat'), ('test', 'cat')]
    """
    placed = _placed(entries, source)
    _refuse_two_names_for_a_split(placed, source)
    for entry in placed:
        _refuse_what_has_no_class(entry, source)
    files = [entry for entry in placed if entry.is_image]
    _refuse_empty_classes(placed, files, source)
    splits = {name: SPLITS[name.lower()] for name in {entry.inside[0] for entry in files}}
    if "test" not in splits.values():
        splits = {name: "test" if split == "validation" else split for name, split in splits.items()}
    return tuple(ImageFile(e.path, splits[e.inside[0]], _same_in_any_spelling(e.inside[1]), e.stamp) for e in files)


@dataclass(frozen=True)
class _Placed(Entry):
    """An entry of a split; `inside` are the names of its path from the split's on."""

    inside: tuple[str, ...] = ()

    @property
    def is_image(self) -> bool:
        suffix = PurePosixPath(self.inside[-1]).suffix.lower()
        return self.kind != "directory" and len(self.inside) >= 3 and suffix not in _SIDECARS


def _placed(entries: Iterable[Entry], source: Path) -> list[_Placed]:
    """Return what lies in the splits nearest to the top of the tree, sorted by path."""
    by_base: dict[tuple[str, ...], list[_Placed]] = {}
    for entry in sorted(entries, key=lambda entry: entry.path):
        names = tuple(entry.path.split("/"))
        depth = next((depth for depth, name in enumerate(names) if name.lower() in SPLITS), None)
        if depth is not None and not any(map(is_clutter, names)):
            placed = _Placed(entry.path, entry.stamp, entry.kind, names[depth:])
            by_base.setdefault(names[:depth], []).append(placed)
    trained = [base for base, inside in by_base.items() if any(_trains(entry) for entry in inside)]
    if not trained:
        raise DataError(f"{source} holds no train/CLASS/image files; arrange it as train/CLASS/*, test/CLASS/*")
    top = [base for base in trained if len(base) == min(map(len, trained))]
    if len(top) > 1:
        shown = " and ".join("/".join((*base, "train")) for base in top[:2])
        raise DataError(f"{source} holds more than one dataset, {shown}; name the directory of one of them")
    return by_base[top[0]]


def _trains(entry: _Placed) -> bool:
    return SPLITS[entry.inside[0].lower()] == "train" and entry.is_image


def _refuse_two_names_for_a_split(placed: Sequence[_Placed], source: Path) -> None:
    names: dict[str, str] = {}
    for entry in placed:
        name = entry.inside[0]
        other = names.setdefault(SPLITS[name.lower()], name)
        if entry.is_image and other != name:
            raise DataError(f"{source} holds both {other}/ and {name}/, which mean the same; keep one of them")


def _refuse_what_has_no_class(entry: _Placed, source: Path) -> None:
    if len(entry.inside) > 2:
        return
    if entry.kind == "broken link":
        raise DataError(f"{source}: {entry.path} is a link to nothing; mend or remove it")
    if entry.kind == "file" and len(entry.inside) == 2 and entry.path.lower().endswith(_PICTURES):
        raise DataError(f"{source}: {entry.path} is in no class; move it to {entry.inside[0]}/CLASS/ or remove it")


def _refuse_empty_classes(placed: Sequence[_Placed], files: Sequence[_Placed], source: Path) -> None:
    filled = {entry.inside[:2] for entry in files}
    for entry in placed:
        is_class = entry.kind == "directory" and len(entry.inside) == 2
        if is_class and SPLITS[entry.inside[0].lower()] == "train" and entry.inside not in filled:
            raise DataError(f"{source}: the class {entry.path} holds no images; fill it or remove it")


def _same_in_any_spelling(label: str) -> str:
    """Return the composed form: macOS stores é as two characters, others as one, and a class is a class."""
    return unicodedata.normalize("NFC", label)
