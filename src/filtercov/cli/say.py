"""How commands print: names and notes come from files, which may hold what a terminal would obey."""

from __future__ import annotations

import typer

from filtercov.printable import printable


def say(text: str, *, err: bool = False) -> None:
    """Print lines to standard output, or to standard error, with everything that is not for the eye escaped."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err)
