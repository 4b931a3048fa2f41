"""`filtercov inspect`, `filtercov explore` and `filtercov figures`."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from filtercov.cli import options
from filtercov.cli.say import say, say_table
from filtercov.lab.report.explore import explore_page
from filtercov.lab.report.figures import write_figures
from filtercov.lab.report.inspect import look
from filtercov.lab.report.page import write_output
from filtercov.lab.report.watched import WatchedReport

TARGET = (
    "A checkpoint (.safetensors, .pth), a statistics file or the name of one that ships, a run's directory, one of our "
    "models, or timm:NAME; or a watched run (.watched)."
)


def inspect(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help=TARGET)],
    against: Annotated[str | None, typer.Option(help="Another target to compare with, layer by layer.")] = None,
    out: Annotated[Path | None, typer.Option(help="HTML page to write; inspect.html without --json.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as JSON.")] = False,
    untrained: Annotated[bool, typer.Option(help="Take timm:NAME without its pretrained weights.")] = False,
) -> None:
    """Look at the filters of any model: covariances, spectra and filters of every depthwise layer, and σ by depth.

    Of a run that was watched while it trained, all that over time.
    """
    options.check_output(out, target, against)
    report = look(target, against=against, untrained=untrained)
    if isinstance(report, WatchedReport) and not as_json:
        rows = report.table()
        say_table(rows, right=range(1, len(rows[0]) - 1))
        say(report.finding)
    if out is not None or not as_json:
        written = write_output(out or Path("inspect.html"), report.page(command=context.obj))
        say(f"wrote {written}", err=as_json)
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=1, allow_nan=False))
    for note in report.notes:
        say(f"note: {note}", err=True)


def explore(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="HTML page to write.")] = Path("explore.html"),
    open_it: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser, where there is one.")] = True,
) -> None:
    """Write a page on which to move kernel size, depth and σ and see what filters come of it."""
    written = write_output(out, explore_page(command=context.obj))
    say(f"wrote {written}")
    screen = sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if open_it and screen:  # elsewhere a text browser would take over the terminal
        webbrowser.open(written.resolve().as_uri())


def figures(
    directory: Annotated[Path, typer.Argument(help="Where to write the figures, as SVG files.")],
) -> None:
    """Draw the paper's illustrations: the construction, the schedule, covariances by depth and example filters."""
    for path in write_figures(directory):
        say(f"wrote {path}")
