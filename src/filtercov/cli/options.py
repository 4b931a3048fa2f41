"""Options that several commands have, each spelled, explained and set by default in one place, without torch."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from filtercov.errors import StorageError

RUNS = "runs"


def check_output(out: Path | None, *read: str | Path | None) -> None:
    """Refuse to write over a file that the command reads; None stands for no file."""
    for source in read:
        with suppress(OSError, ValueError):  # one of them is not there, or no name of a file
            if out is not None and source is not None and out.samefile(source):
                message = "needed another place to write to, got the file that is read; choose another"
                raise StorageError(f"{out}: {message}")


Network = Annotated[
    str, typer.Option("--model", help="One of ours, such as convmixer_256_8_k9_p2 or convnext_atto_p2, or of timm's.")
]
NetworkName = Annotated[str, typer.Argument(help="One of ours, such as convmixer_256_8_k9_p2, or a name timm knows.")]
Images = Annotated[str, typer.Option("--data", help="embedded, cifar10 or folder:PATH (a directory or a zip).")]
Runs = Annotated[
    str, typer.Option("--runs", help="Directory where runs are kept and looked for; on Ray one that every node sees.")
]
DataRoot = Annotated[
    Path | None, typer.Option("--data-root", help="Directory of CIFAR-10's archive; ~/.cache/filtercov if not given.")
]
Download = Annotated[bool, typer.Option("--download", help="Fetch CIFAR-10 to the data root where it is missing.")]
DataLimit = Annotated[
    int | None, typer.Option("--data-limit", min=1, help="Use only so many training images, the classes in proportion.")
]
ImageSize = Annotated[int | None, typer.Option("--img-size", min=1, help="Scale a folder's images to this size.")]
Augment = Annotated[str | None, typer.Option("--augment", help="none, light, randaugment, cifar or a1.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", "-b", min=1, help="Images per step, of all processes together.")
]
LearningRate = Annotated[float | None, typer.Option("--lr", help="Highest learning rate.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**63 - 1, help="Decides weights, filters, order of images, augmentation.")
]
Schedule = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        help="σ by depth: three numbers 'σ0,v,a' or a preset; with sawtooth: before it starting again at each stage.",
    ),
]
MinKernelSize = Annotated[
    int | None,
    typer.Option("--min-kernel-size", min=1, help="Leave smaller filters alone; 5 for the closed form if not given."),
]
EngineName = Annotated[str, typer.Option("--engine", help="local or ray.")]
Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Processes of the local engine, threads divided among them.")
]
RayAddress = Annotated[
    str | None, typer.Option("--ray-address", help="A Ray cluster; one is started here if not given.")
]
CpusPerRun = Annotated[float, typer.Option("--cpus-per-run", min=0, help="CPUs of each run on Ray.")]
GpusPerRun = Annotated[float, typer.Option("--gpus-per-run", min=0, help="GPUs of each run on Ray.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda or another of PyTorch's.")]
