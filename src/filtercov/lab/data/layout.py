"""Which files of a folder dataset are images, and of which split and class: SPLIT/CLASS/…/file, nothing is opened."""

import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from filtercov.errors import DataError

SPLITS = {"train": "train", "test": "test", "val": "validation", "valid": "validation", "validation": "validation"}

# What systems and programs leave behind: nobody put it there as an image, so it is passed over without a word.
_CLUTTER = {"__macosx", "__pycache__", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "@eadir", "lost+found"}
_BACKUPS = ("~", ".bak", ".orig", ".tmp", ".swp", ".part", ".crdownload")
# What datasets keep beside their images. A name that is in neither list is tried, and reported if it is no image.
_TEXTS = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".rst", ".html", ".pdf", ".log")
_ARRAYS = (".npy", ".npz", ".mat", ".h5", ".pkl", ".parquet", ".db", ".zip", ".tar", ".gz", ".ini", ".py", ".sh")
_OF_CAMERAS = (".aae", ".xmp", ".thm", ".mp4", ".mov", ".avi", ".url", ".lnk")
_SIDECARS = frozenset((*_TEXTS, *_ARRAYS, *_OF_CAMERAS))
_PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")


class Entry(NamedTuple):
    """What lies in a tree: its path with `/` between names, and a stamp that changes when it changes."""

    path: str
    stamp: str = ""
    kind: Literal["file", "directory", "broken link"] = "file"


class ImageFile(NamedTuple):
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
    autosaved = name[0] == name[-1] == "#" and len(name) > 1
    return name[0] == "." or lower in _CLUTTER or lower.endswith(_BACKUPS) or autosaved


def arrange(entries: Iterable[Entry], source: Path) -> tuple[ImageFile, ...]:
    """Return the images among the entries of `source`, sorted by path; directories above the splits are looked through.

    Where there is `val/` but no `test/`, as in ImageNet, `val/` is the test set.

    >>> files = arrange([Entry("pets/train/cat/0/a.jpg"), Entry("pets/val/cat/b.jpg")], Path("pets.zip"))
    >>> [(file.split, file.label) for file in files]
    [('train', 'cat'), ('test', 'cat')]
    """
    placed = _placed(entries, source)
    for entry, inside in placed:
        _refuse_what_has_no_class(entry, inside, source)
    images = [(entry, inside) for entry, inside in placed if _is_image(entry, inside)]
    _refuse_empty_classes(placed, images, source)
    splits = _splits(dict.fromkeys(inside[0] for _, inside in images), source)
    labels = {inside[1]: _same_in_any_spelling(inside[1]) for _, inside in images}
    return tuple(ImageFile(entry.path, splits[inside[0]], labels[inside[1]], entry.stamp) for entry, inside in images)


# An entry of a split and the names of its directories, from the split's on: (train, CLASS, …).
_Placed = tuple[Entry, tuple[str, ...]]


def _placed(entries: Iterable[Entry], source: Path) -> list[_Placed]:
    """Return what lies in the splits nearest to the top of the tree, sorted by path."""
    places: dict[str, tuple[str, tuple[str, ...]] | None] = {}  # a million files lie in a thousand directories
    by_base: dict[str, list[_Placed]] = {}
    for entry in sorted(entries):
        folder, _, name = entry.path.rpartition("/")
        if folder not in places:
            places[folder] = _place(folder)
        place = places[folder]
        if place is not None and not is_clutter(name):
            by_base.setdefault(place[0], []).append((entry, place[1]))
        elif entry.kind == "broken link" and name.lower() in SPLITS:
            raise DataError(f"{source}: {entry.path} is a link to nothing; mend or remove it")
    trained = [base for base, placed in by_base.items() if any(_is_image(*pair, "train") for pair in placed)]
    if not trained:
        raise DataError(f"{source} holds no train/CLASS/image files; arrange it as train/CLASS/*, test/CLASS/*")
    nearest = min(base.count("/") for base in trained)
    first, *others = (base for base in trained if base.count("/") == nearest)
    if others:
        raise DataError(f"{source} holds two datasets, {first} and {others[0]}; name the directory of one of them")
    return by_base[first]


def _place(folder: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the path above a directory's split with a `/` after each name, and its names from the split on.

    >>> _place("pets/train/cat/young"), _place("pets/extra"), _place("__MACOSX/train/cat")
    (('pets/', ('train', 'cat', 'young')), None, None)
    """
    names = folder.split("/")
    depth = next((depth for depth, name in enumerate(names) if name.lower() in SPLITS), None)
    if depth is None or any(map(is_clutter, names)):
        return None
    return "".join(f"{name}/" for name in names[:depth]), tuple(names[depth:])


def _is_image(entry: Entry, inside: tuple[str, ...], split: str | None = None) -> bool:
    """Return whether an entry is meant as an image of a class, and of this split if one is given."""
    if entry.kind == "directory" or len(inside) < 2:
        return False
    if split is not None and SPLITS[inside[0].lower()] != split:
        return False
    return "." + entry.path.rpartition(".")[2].lower() not in _SIDECARS


def _splits(names: Iterable[str], source: Path) -> dict[str, str]:
    """Return which split each directory is, for `val/` without `test/` the test set."""
    directories: dict[str, str] = {}
    for name in names:
        other = directories.setdefault(SPLITS[name.lower()], name)
        if other != name:
            raise DataError(f"{source} holds both {other}/ and {name}/, which mean the same; keep one of them")
    if "test" not in directories and "validation" in directories:
        directories["test"] = directories.pop("validation")
    return {name: split for split, name in directories.items()}


def _refuse_what_has_no_class(entry: Entry, inside: tuple[str, ...], source: Path) -> None:
    if len(inside) > 1:
        return
    if entry.kind == "broken link":
        raise DataError(f"{source}: {entry.path} is a link to nothing; mend or remove it")
    if entry.kind == "file" and entry.path.lower().endswith(_PICTURES):
        raise DataError(f"{source}: {entry.path} is in no class; move it to {inside[0]}/CLASS/ or remove it")


def _refuse_empty_classes(placed: Iterable[_Placed], images: Iterable[_Placed], source: Path) -> None:
    filled = {inside[:2] for _, inside in images}
    classes = [(entry, inside) for entry, inside in placed if entry.kind == "directory" and len(inside) == 1]
    for entry, inside in classes:
        if SPLITS[inside[0].lower()] == "train" and (*inside, entry.path.rpartition("/")[2]) not in filled:
            raise DataError(f"{source}: the class {entry.path} holds no images; fill it or remove it")


def _same_in_any_spelling(label: str) -> str:
    """Return the composed form: macOS stores é as two characters, others as one, and a class is a class."""
    return unicodedata.normalize("NFC", label)
