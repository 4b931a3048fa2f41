"""Refusing to write over what a command reads."""

from __future__ import annotations

from pathlib import Path

from filtercov.errors import OutputError


def check_output(out: Path | None, *read: str | Path | None) -> None:
    """Raise if the file that would be written is one of those that are read; None stands for no file."""
    for source in read:
        if out is not None and source is not None and _same(out, source):
            raise OutputError(
                f"{out}: needed another place to write to, got the file that is read; choose another name"
            )


def _same(first: str | Path, second: str | Path) -> bool:
    try:
        return Path(first).samefile(second)
    except (OSError, ValueError):  # one of them is not there, or no name of a file
        return False
