"""`filtercov info`, `filtercov init` and `filtercov stats`."""

from __future__ import annotations

import math
import platform
import warnings
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
from typer import Argument, Option

from filtercov.cli import options
from filtercov.cli.options import say, say_table
from filtercov.covariance.forms import show_size
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CheckpointError, FiltercovWarning, SourceError
from filtercov.filters import init_
from filtercov.lab.experiments.initialisations import parse_schedule
from filtercov.lab.models.lookup import create
from filtercov.layers.state_dict import write_state_dict
from filtercov.nn import native_status
from filtercov.printable import counted
from filtercov.schedule import PRESETS, fit_layer, fit_schedule
from filtercov.statistics.filter_statistics import FilterStatistics, is_statistics
from filtercov.statistics.shipped import REFERENCES

DEFAULT = "imagenet-thawed"  # of init_ too


def info() -> None:
    """Print versions, the native kernels, threads, presets and the statistics that ship."""
    packages = ("filtercov", "torch", "numpy", "timm", "ray")
    rows = {
        **{name: metadata.version(name) for name in packages if find_spec(name)},
        "python": platform.python_version(),
        "native kernels": str(native_status()).removeprefix("native kernels "),
        "threads": str(torch.get_num_threads()),
        "presets": ", ".join(PRESETS),
        "statistics": ", ".join(REFERENCES),
    }
    say_table(list(rows.items()))


def init(
    model: options.NetworkName,
    out: Annotated[Path, Option(help="Checkpoint to write, .safetensors or .pth.")],
    preset: Annotated[str | None, Option(help=f"One of {', '.join(PRESETS)}; {DEFAULT} if no source is given.")] = None,
    schedule: options.Schedule = None,
    statistics: Annotated[
        str | None,
        Option(
            help="Statistics to draw from, a file or a name that `filtercov info` lists, resized where the "
            "network's filters have another size."
        ),
    ] = None,
    seed: options.Seed = 0,
    num_classes: Annotated[int, Option(min=1, help="Classes of the model's head.")] = 1000,
    in_channels: Annotated[int, Option(min=1, help="Channels of the images.")] = 3,
    min_kernel_size: options.MinKernelSize = None,
) -> None:
    """Write an initial checkpoint that any trainer can start from, and print what was done to each layer."""
    given = {"--preset": preset, "--schedule": schedule, "--statistics": statistics}
    named = [flag for flag, value in given.items() if value is not None]
    if len(named) > 1:
        raise SourceError(f"needed one source of filters, got {' and '.join(named)}; leave out all but one")
    options.check_output(out, statistics)
    torch.manual_seed(seed)
    built = create(model, num_classes=num_classes, in_channels=in_channels)
    source: Any = preset or DEFAULT
    if schedule is not None:
        source = parse_schedule(schedule, built)
    elif statistics is not None:
        source = f"stats:{statistics}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FiltercovWarning)  # the report's notes say the same
        report = init_(built, source, min_kernel_size=min_kernel_size)
    write_state_dict(built.state_dict(), out)
    say(str(report))
    say(f"wrote {out}")


def stats(
    checkpoint: Annotated[Path, Argument(help="A checkpoint, .safetensors or .pth; its code is not needed.")],
    out: Annotated[Path, Option(help="Statistics file to write.")],
    like: Annotated[str | None, Option(help="The model it is of, which tells layers and their order.")] = None,
) -> None:
    """Measure the filter covariances of a checkpoint's depthwise layers and write them to a file."""
    if is_statistics(checkpoint):
        raise CheckpointError(
            f"{checkpoint}: these are filter statistics already; draw from them with filtercov init --statistics, or "
            "look at them with filtercov inspect"
        )
    options.check_output(out, checkpoint)
    measured = FilterStatistics.from_checkpoint(checkpoint, like=None if like is None else create(like))
    measured.save(out)
    rows: list[tuple[str, ...]] = [
        ("layer", "kernel", "filters", "variance", "nearest σ", "likeness", "by chance"),
        *map(_measured_row, measured.layers),
    ]
    say_table(rows, right=range(1, 7))
    for note in measured.notes:
        say(f"note: {note}")
    if any(max(layer.kernel_size) >= 5 for layer in measured.layers):
        fitted = fit_schedule(measured).short()
        if fitted.fit.usable:
            say(f"nearest schedule: QuadraticSchedule({fitted.sigma0!r}, {fitted.v!r}, {fitted.a!r})")
        say(f"schedule: {fitted.fit}")
    say(f"wrote {out}: {counted(len(measured.layers), 'layer')}")


def _measured_row(layer: LayerStatistics) -> tuple[str, ...]:
    fit = fit_layer(layer)
    variance = float(layer.covariance.trace()) / len(layer.mean)
    fitted = ((fit.sigma, ".3g"), (fit.likeness, ".2f"), (fit.chance, ".2f"))
    shown = ("-" if math.isnan(number) else format(number, form) for number, form in fitted)
    return (layer.name, show_size(layer.kernel_size), str(layer.count), f"{variance:.2e}", *shown)
