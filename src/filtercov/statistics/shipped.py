"""Statistics that ship with the package: which there are, where each came from, and where its file is.

Each is a statistics file like any other, checksummed, whose description also has its provenance. The file is
all there is to a reference: what stands in the folder is known, and `tools/ship_reference.py` puts it there. Means and
covariances are rounded to float32, so that they take half the room and a last bit of somebody's linear algebra library
does not make another file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType

from filtercov.errors import SourceError
from filtercov.files import read_description

FOLDER = Path(__file__).parent / "shipped"
SUFFIX = ".safetensors"
LARGEST = 8_000_000  # bytes, of all references together
PROVENANCE = "provenance"  # the entry of a file's description


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The provenance of shipped statistics, and the command that makes them again; None if unknown."""

    network: str
    data: str
    epochs: int | None
    accuracy: float | None  # in percent
    judged_on: str | None  # the images that the accuracy is of: test or validation
    command: str  # of a run: what trained it; of others' weights: what measured them
    version: str  # what the command ran with
    weights_sha256: str  # of the file that was measured
    precision: str  # of means and covariances in the file
    licence: str
    credit: str  # whose work it is

    def __str__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        width = max(map(len, shown))
        return "\n".join(f"{name.ljust(width)}  {'-' if value is None else value}" for name, value in shown.items())


REFERENCES: Mapping[str, Reference] = MappingProxyType(
    {path.stem: Reference(**read_description(path)[PROVENANCE]) for path in sorted(FOLDER.glob(f"*{SUFFIX}"))}
)


def shipped_file(name: str) -> Path:
    """The file of a reference; a `SourceError` says which there are."""
    if name not in REFERENCES:
        raise SourceError(f"no statistics called {name!r} ship with filtercov, those that do are {shipped_names()}")
    return FOLDER / f"{name}{SUFFIX}"


def locate(text: str, root: Path | None = None) -> Path | None:
    """The file that a path or the name of a reference stands for, None if there is neither.

    A path that exists goes before a name; relative paths start at `root`.

    >>> locate("efficientnet-lite0").name, locate("nowhere")
    ('efficientnet-lite0.safetensors', None)
    """
    path = (root or Path()) / text
    if os.path.exists(path):  # noqa: PTH110 - where pathlib raises for a name that is too long
        return path
    return shipped_file(text) if text in REFERENCES else None


def shipped_names() -> str:
    """The names of all references."""
    return ", ".join(REFERENCES)
