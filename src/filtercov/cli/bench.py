"""`filtercov bench`: how fast a network trains on this machine, ours and plain PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from filtercov.cli import options
from filtercov.cli.say import say, say_table
from filtercov.errors import FiltercovError, ModelError
from filtercov.lab import bench as lab
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
    try:
        measured = lab.bench(
            model, batch_size=batch_size, image_size=img_size, frozen=frozen, seconds=seconds, device=device
        )
    except FiltercovError:
        raise
    except (RuntimeError, ValueError) as error:  # what a network says of images that it cannot take
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"{model}: needed a batch that it can train on, got --batch-size {batch_size} of --img-size "
            f"{img_size or 'its own'} ({reason}); choose others"
        ) from None
    tuning = measured.tuning
    size = f"{measured.batch_size} x 3 x {measured.image_size} x {measured.image_size}"
    early = ", which was too short to try all" if tuning.ended_early else ""
    setting = [
        f"{measured.machine}; GEMM 2048x2048x2048 {measured.gemm / 1e9:.0f} GFLOP/s",
        f"{measured.model}, {'frozen' if frozen else 'trained'} depthwise filters, {size}",
        f"ours is: {tuning.kept}, after {tuning.seconds:.0f} s of tuning{early}\n",
    ]
    say("\n".join(setting))
    rows: list[tuple[str, ...]] = [
        ("training step", "ms", "ours is faster, median (quartiles)", *lab.KINDS, "peak MiB")
    ]
    for contestant in measured.contestants:
        shares = [f"{contestant.shares[kind]:.0%}" for kind in lab.KINDS]
        peak = f"{contestant.peak_bytes / 2**20:.0f}"
        faster = "" if contestant.name == lab.OURS else str(measured.ratio(contestant))
        rows.append((contestant.name, f"{contestant.best * 1e3:.1f}", faster, *shares, peak))
    say_table(rows, right=(1, 3, 4, 5, 6, 7))
    say("")
    layers = [LAYER_HEADING, *(row.cells() for row in tuning.layers)]
    say_table(layers, right=(4, 5, 6))
    if device != "cpu":
        say("\nWhat to paste into an issue:\n")
        typer.echo("\n".join([*setting, markdown(rows), "", markdown(layers)]))


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows, the first of them the heading, as a table in Markdown.

    >>> print(markdown([("step", "ms"), ("ours", "3.1")]))
    | step | ms |
    |---|---|
    | ours | 3.1 |
    """
    heading, *others = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([heading, "|" + "---|" * len(rows[0]), *others])
