"""How commands print: text from files escaped, prose broken between words, tables in columns that fit the terminal."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import IO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from filtercov.printable import printable

_COLUMNS = re.compile(r"\S {2,}\S")


def say(text: str, *, err: bool = False) -> None:
    """Print lines to standard output, or to standard error, with everything that is not for the eye escaped.

    On a terminal lines of prose that are too long are broken between words; lines in columns are left as they are.
    """
    width = _width(sys.stderr if err else sys.stdout)
    lines = [line for part in text.split("\n") for line in _broken(printable(part), width)]
    typer.echo("\n".join(lines), err=err)


def say_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print rows, the first of them the heading, in aligned columns; those at `right` have numbers.

    On a terminal that is too narrow cells are broken between words.
    """
    if not rows:
        return
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    width = _width(sys.stdout)
    if width is None or sum(widths) + 2 * (len(widths) - 1) <= width:
        for row in rows:
            cells = [
                cell.rjust(w) if i in right else cell.ljust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ]
            typer.echo("  ".join(cells).rstrip())
        return
    table = Table(box=None, pad_edge=False, header_style="")
    for i, heading in enumerate(rows[0]):
        longest = max(len(word) for row in rows for word in row[i].split(" "))
        table.add_column(Text(heading), justify="right" if i in right else "left", min_width=longest)
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    Console().print(table)


def _width(stream: IO[str] | None) -> int | None:
    """Return how many columns a stream shows, None if it is no terminal or was closed before the start."""
    return shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None


def _broken(line: str, width: int | None) -> list[str]:
    if width is None or len(line) <= width or _COLUMNS.search(line):
        return [line]
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
