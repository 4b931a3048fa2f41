"""`filtercov scan`: which files of an image folder cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from filtercov.cli.say import say
from filtercov.lab.data import scan as scan_folder
from filtercov.printable import counted


def scan(
    path: Annotated[
        Path, typer.Argument(help="Images as train/CLASS/*.jpg and test/CLASS/*.jpg, a directory or a zip.")
    ],
) -> None:
    """List every file of an image folder that cannot be read as an image; exit with 1 if there are any."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("decoding", total=None)
        report = scan_folder(path, progress=lambda done, total: bar.update(task, completed=done, total=total))
    for bad in report.bad:
        say(str(bad))
    splits = sorted({split for split, _ in report.images})
    counts = {split: sum(n for (s, _), n in report.images.items() if s == split) for split in splits}
    classes = len({label for _, label in report.images})
    summary = ", ".join(f"{count} in {split}" for split, count in counts.items())
    found = f"{counted(sum(counts.values()), 'image')} of {counted(classes, 'class', 'classes')}"
    say(f"{found} ({summary}), {counted(len(report.bad), 'file')} unusable")
    if report.bad:
        raise typer.Exit(1)
