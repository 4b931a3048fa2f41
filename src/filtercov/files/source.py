"""Where something came from: names as people gave them, and checksums by which the same content is known again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """What was read: its name as it was given, and the SHA-256 of its content; empty for a name without a file."""

    name: str
    sha256: str = ""


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_sha256(root: Path, files: Iterable[Path]) -> str:
    """Return one SHA-256 for several files under `root`: what `sha256sum FILES | sha256sum` prints there."""
    lines = "".join(f"{file_sha256(path)}  {path.relative_to(root).as_posix()}\n" for path in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()
