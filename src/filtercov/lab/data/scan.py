"""`scan`: which files of a folder dataset cannot be read, and how many can."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from filtercov.errors import BadImagesError
from filtercov.lab.data.decode import UndecodableError, open_image
from filtercov.lab.data.tree import Tree, open_tree


@dataclass(frozen=True)
class BadFile:
    """A file that cannot be used and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        # A name may be bytes that are no text, which Python keeps as surrogates and no terminal prints.
        return f"{os.fsencode(self.path).decode(errors='replace')}: {self.reason}"


@dataclass(frozen=True)
class ScanReport:
    """What a folder holds: readable images by (split, class), and every bad file."""

    images: dict[tuple[str, str], int]
    bad: tuple[BadFile, ...]


@dataclass
class BadFiles:
    """The bad files met so far; one more than `limit` is an error that names them."""

    limit: int
    found: dict[str, BadFile] = field(default_factory=dict)

    def add(self, bad: BadFile) -> None:
        """Note a bad file, once however often it is met."""
        self.found.setdefault(bad.path, bad)
        if len(self.found) > self.limit:
            shown = "; ".join(map(str, list(self.found.values())[:10]))
            raise BadImagesError(
                f"more than {self.limit} images cannot be read ({shown}{'; …' if len(self.found) > 10 else ''}); "
                "list them all with `filtercov scan`, repair or remove them, or allow more"
            )


def scan(path: Path | str, *, progress: Callable[[int, int], None] | None = None) -> ScanReport:
    """Decode every file of a folder dataset and report the bad ones; `progress` is told (done, all)."""
    tree = open_tree(Path(path))
    images = {(file.split, file.label): 0 for file in tree.files}
    bad = []
    for done, file in enumerate(tree.files, start=1):
        try:
            open_image(read(tree, file.path), channels=3)
            images[file.split, file.label] += 1
        except UndecodableError as error:
            bad.append(BadFile(file.path, str(error)))
        if progress is not None:
            progress(done, len(tree.files))
    return ScanReport(images, tuple(bad))


def read(tree: Tree, path: str) -> bytes:
    """Return a file's content; one that cannot be read counts as undecodable."""
    try:
        return tree.read(path)
    except Exception as error:  # permissions, vanished files, broken or encrypted zip members
        raise UndecodableError(f"cannot be read: {error}") from error
