"""`filtercov inspect`, `explore`, `figures` and `bench`: look at filters, and at the speed of a network."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option, echo

from filtercov.cli import options
from filtercov.cli.options import say, say_table
from filtercov.lab import bench as lab
from filtercov.lab.report.explore import explore_page
from filtercov.lab.report.figures import write_figures
from filtercov.lab.report.inspect import look
from filtercov.lab.report.page import write_output
from filtercov.lab.report.results_table import markdown_table
from filtercov.lab.report.watched import WatchedReport
from filtercov.nn.tune import LAYER_HEADING, SECONDS

TARGET = (
    "A checkpoint (.safetensors, .pth), a statistics file or the name of one that ships, a run's directory, one of our "
    "models, or timm:NAME; or a watched run (.watched)."
)


def inspect(
    context: Context,
    target: Annotated[str, Argument(help=TARGET)],
    against: Annotated[str | None, Option(help="Another target to compare with, layer by layer.")] = None,
    out: Annotated[Path | None, Option(help="HTML page to write; inspect.html without --json.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print every number as JSON.")] = False,
    untrained: Annotated[bool, Option(help="Take timm:NAME without its pretrained weights.")] = False,
) -> None:
    """Look at the filters of any model: covariances and filters of every depthwise layer, and σ by depth.

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
        echo(json.dumps(report.as_json(), indent=1, allow_nan=False))
    for note in report.notes:
        say(f"note: {note}", err=True)


def explore(
    context: Context,
    out: Annotated[Path, Option(help="HTML page to write.")] = Path("explore.html"),
    open_it: Annotated[bool, Option("--open/--no-open", help="Open it in a browser, where there is one.")] = True,
) -> None:
    """Write a page on which to move kernel size, depth and σ and see what filters come of it."""
    written = write_output(out, explore_page(command=context.obj))
    say(f"wrote {written}")
    screen = sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if open_it and screen:  # elsewhere a text browser would take over the terminal
        webbrowser.open(written.resolve().as_uri())


def figures(directory: Annotated[Path, Argument(help="Where to write the figures, as SVG files.")]) -> None:
    """Draw the paper's illustrations: the construction, the schedule, covariances by depth and example filters."""
    for path in write_figures(directory):
        say(f"wrote {path}")


def bench(
    model: options.NetworkName = lab.MODEL,
    batch_size: Annotated[int, Option(min=1, help="Images in a step.")] = lab.BATCH,
    img_size: Annotated[
        int | None, Option(min=1, help="Height and width; 32 for our models, timm's own for timm's if not given.")
    ] = None,
    frozen: Annotated[bool, Option("--frozen", help="Freeze the depthwise filters.")] = False,
    seconds: Annotated[float, Option(min=0, help="Time for tuning, and again for comparing.")] = SECONDS,
    device: Annotated[str, Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Tune a network for this machine and compare its training step with plain PyTorch's, in both layouts."""
    measured = lab.bench(
        model, batch_size=batch_size, image_size=img_size, frozen=frozen, seconds=seconds, device=device
    )
    layers = [[*LAYER_HEADING], *([*row.cells()] for row in measured.tuning.layers)]
    say(f"{measured.setting}\n")
    say_table(measured.table, right=(1,))
    say("")
    say_table(layers, right=(4, 5, 6))
    if device != "cpu":
        say("\nWhat to paste into an issue:\n")
        echo("\n\n".join([measured.setting, markdown_table(measured.table), markdown_table(layers)]))
