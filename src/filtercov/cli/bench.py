"""`filtercov bench`: how fast a network trains on this machine, ours and plain PyTorch's."""

from __future__ import annotations

from typing import Annotated

import typer

from filtercov.cli import options
from filtercov.cli.say import say, say_table
from filtercov.lab import bench as lab
from filtercov.lab.report.results_table import markdown_table
from filtercov.nn.tune import LAYER_HEADING, SECONDS


def bench(
    model: options.NetworkName = lab.MODEL,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in a step.")] = lab.BATCH,
    img_size: Annotated[
        int | None, typer.Option(min=1, help="Height and width; 32 for our models, timm's own for timm's if not given.")
    ] = None,
    frozen: Annotated[bool, typer.Option("--frozen", help="Freeze the depthwise filters.")] = False,
    seconds: Annotated[float, typer.Option(min=0, help="Time for tuning, and again for comparing.")] = SECONDS,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Tune a network for this machine and compare its training step with plain PyTorch's, in both layouts."""
    measured = lab.bench(
        model, batch_size=batch_size, image_size=img_size, frozen=frozen, seconds=seconds, device=device
    )
    layers = [[*LAYER_HEADING], *([*row.cells()] for row in measured.tuning.layers)]
    say(f"{measured.setting}\n")
    say_table(measured.table, right=(1, 3, 4, 5, 6, 7))
    say("")
    say_table(layers, right=(4, 5, 6))
    if device != "cpu":
        say("\nWhat to paste into an issue:\n")
        typer.echo("\n\n".join([measured.setting, markdown_table(measured.table), markdown_table(layers)]))
