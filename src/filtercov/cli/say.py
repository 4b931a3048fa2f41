"""How commands print: text from files escaped, prose broken between words, tables in columns that fit the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from filtercov.printable import printable


def say(text: str, *, err: bool = False) -> None:
    """Print lines to standard output, or to standard error, with everything that is not for the eye escaped.

    On a terminal lines that are too long are broken between words.
    """
    console = Console(stderr=err)
    lines = "\n".join(map(printable, text.split("\n")))
    console.print(Text(lines), soft_wrap=not console.is_terminal)


def say_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print rows, the first of them the heading, in aligned columns; those at `right` have numbers.

    On a terminal that is too narrow cells are broken between words.
    """
    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for i, (heading, *cells) in enumerate(zip(*rows, strict=True)):
        longest = max(len(word) for cell in (heading, *cells) for word in printable(cell).split(" "))
        table.add_column(Text(printable(heading)), justify="right" if i in right else "left", min_width=longest)
    for row in rows[1:]:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(width=None if Console().is_terminal else 100_000)
    with console.capture() as printed:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def say_all(parts: Iterable[str | Sequence[Sequence[str]]]) -> None:
    """Print lines and tables in their order."""
    for part in parts:
        if isinstance(part, str):
            say(part)
        else:
            say_table(part)
