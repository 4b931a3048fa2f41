"""Options that several commands have, each spelled, explained and set by default in one place, without torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from filtercov.errors import ConfigError, StorageError

SCALE = "small"
RUNS = "runs"
CIFAR = "cifar10"


def within(least: float, most: float = math.inf) -> Callable[..., Any]:
    """The callback of an option that refuses numbers below `least` and those over `most`.

    What the library itself refuses by name, such as a learning rate, needs none.
    """

    def check(option: typer.CallbackParam, value: Any) -> Any:
        # Written so that nan is refused too; whole numbers may be too large to be made a float of.
        if value is None or (value >= least and value <= most and value < math.inf):
            return value
        bounds = f"at least {least}{f' and at most {most}' if most < math.inf else ''}"
        raise ConfigError(f"{option.opts[0]} must be {bounds}, got {value}")

    return check


def check_output(out: Path | None, *read: str | Path | None) -> None:
    """Refuse to write over a file that the command reads; None stands for no file."""
    for source in read:
        if out is not None and source is not None and _same(out, source):
            raise StorageError(
                f"{out}: needed another place to write to, got the file that is read; choose another name"
            )


def _same(first: str | Path, second: str | Path) -> bool:
    try:
        return Path(first).samefile(second)
    except (OSError, ValueError):  # one of them is not there, or no name of a file
        return False


SEEDS = within(0, 2**63 - 1)  # what both torch and a run's configuration take

Scale = Annotated[str, typer.Option("--scale", help="paper, small (hours on 2 cores) or smoke (seconds).")]
Runs = Annotated[
    str, typer.Option("--runs", help="Directory where runs are kept and looked for; on Ray one that every node sees.")
]
Data = Annotated[str, typer.Option("--data", help="CIFAR-10: cifar10, or folder:PATH of a directory or a zip.")]
Imagenet = Annotated[
    str | None, typer.Option("--imagenet", help="ImageNet: folder:PATH of train/CLASS/*.jpg, val/CLASS/*.jpg.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Directory of CIFAR-10's archive; ~/.cache/filtercov if not given."),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch CIFAR-10 to the data root where it is missing.")]
Schedule = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="σ by depth: three numbers 'σ0,v,a' or a preset; with sawtooth: before it starting again at each stage.",
    ),
]
Also = Annotated[
    list[str] | None,
    typer.Option("--also", help="A further initialisation to compare, such as kaiming or stats:FILE; may be repeated."),
]
Seeds = Annotated[
    int | None, typer.Option("--seeds", callback=within(1), help="Seeds per cell, in place of the scale's.")
]
Workers = Annotated[
    int,
    typer.Option("--workers", callback=within(1), help="Processes of the local engine, threads divided among them."),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", help="Passes over the training images; the recipe's if not given.")
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", "-b", help="Images per step, of all processes together.")
]
LearningRate = Annotated[float | None, typer.Option("--lr", help="Highest learning rate.")]
DataLimit = Annotated[
    int | None,
    typer.Option(
        "--data-limit", callback=within(1), help="Use only so many training images, the classes in proportion."
    ),
]
ImageSize = Annotated[
    int | None, typer.Option("--img-size", callback=within(1), help="Scale a folder's images to this size.")
]
Augment = Annotated[str | None, typer.Option("--augment", help="none, light, randaugment, cifar or a1.")]
EngineName = Annotated[str, typer.Option("--engine", help="local or ray.")]
RayAddress = Annotated[
    str | None, typer.Option("--ray-address", help="A Ray cluster; one is started here if not given.")
]
CpusPerRun = Annotated[float, typer.Option("--cpus-per-run", callback=within(0), help="CPUs of each run on Ray.")]
GpusPerRun = Annotated[float, typer.Option("--gpus-per-run", callback=within(0), help="GPUs of each run on Ray.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda or another of PyTorch's.")]
