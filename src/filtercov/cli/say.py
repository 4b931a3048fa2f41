"""How commands print: text from files escaped, prose broken between words, tables in columns that fit the terminal."""

from __future__ import annotations

from collections.abc import Sequence

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
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    console = Console()
    if not console.is_terminal or sum(widths) + 2 * (len(widths) - 1) <= console.width:
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
    console.print(table)
