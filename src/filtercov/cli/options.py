"""Options that several commands have, each spelled, explained and set by default in one place, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SCALE = "small"
RUNS = "runs"

Scale = Annotated[str, typer.Option("--scale", help="paper, small (hours on 2 cores) or smoke (seconds).")]
Runs = Annotated[
    str, typer.Option("--runs", help="Directory where runs are kept and looked for; on Ray also an address.")
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
Seeds = Annotated[int | None, typer.Option("--seeds", help="Seeds per cell, in place of the scale's.")]
Workers = Annotated[int, typer.Option("--workers", help="Processes of the local engine, threads divided among them.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda or another of PyTorch's.")]
