"""What commands share: options that several have, each explained in one place, and how they print; without torch.

Printing escapes what is in text from files, breaks prose between words, and fits tables to the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Option, echo

from filtercov.errors import StorageError
from filtercov.printable import printable

RUNS = "runs"

Network = Annotated[str, Option(help="One of ours, such as convmixer_256_8_k9_p2 or convnext_atto_p2, or of timm's.")]
NetworkName = Annotated[str, Argument(help="One of ours, such as convmixer_256_8_k9_p2, or a name timm knows.")]
Images = Annotated[str, Option(help="embedded, cifar10 or folder:PATH (a directory or a zip).")]
Runs = Annotated[str, Option(help="Directory where runs are kept and looked for; on Ray one that every node sees.")]
DataRoot = Annotated[Path | None, Option(help="Directory of CIFAR-10's archive; ~/.cache/filtercov if not given.")]
Download = Annotated[bool, Option("--download", help="Fetch CIFAR-10 to the data root where it is missing.")]
DataLimit = Annotated[int | None, Option(min=1, help="Use only so many training images, the classes in proportion.")]
ImageSize = Annotated[int | None, Option(min=1, help="Scale a folder's images to this size.")]
Augment = Annotated[str | None, Option(help="none, light, randaugment, cifar or a1.")]
BatchSize = Annotated[
    int | None, Option("--batch-size", "-b", min=1, help="Images per step, of all processes together.")
]
LearningRate = Annotated[float | None, Option(help="Highest learning rate.")]
Seed = Annotated[int, Option(min=0, max=2**63 - 1, help="Decides weights, filters, order of images, augmentation.")]
Schedule = Annotated[
    str | None,
    Option(
        help="σ by depth: three numbers 'σ0,v,a' or a preset; with sawtooth: before it starting again at each stage."
    ),
]
MinKernelSize = Annotated[
    int | None, Option(min=1, help="Leave smaller filters alone; 5 for the closed form if not given.")
]
EngineName = Annotated[str, Option(help="local or ray.")]
Workers = Annotated[int, Option(min=1, help="Processes of the local engine, threads divided among them.")]
RayAddress = Annotated[str | None, Option(help="A Ray cluster; one is started here if not given.")]
CpusPerRun = Annotated[float, Option(min=0, help="CPUs of each run on Ray.")]
GpusPerRun = Annotated[float, Option(min=0, help="GPUs of each run on Ray.")]
Device = Annotated[str, Option(help="cpu, cuda or another of PyTorch's.")]


def check_output(out: Path | None, *read: str | Path | None) -> None:
    """Refuse to write over a file that the command reads; None stands for no file."""
    for source in read:
        with suppress(OSError, ValueError):  # one of them is not there, or no name of a file
            if out is not None and source is not None and out.samefile(source):
                message = "needed another place to write to, got the file that is read; choose another"
                raise StorageError(f"{out}: {message}")


def say(text: str, *, err: bool = False) -> None:
    """Print lines to standard output, or to standard error, with everything that is not for the eye escaped.

    On a terminal lines that are too long are broken between words.
    """
    console = Console(stderr=err)
    lines = "\n".join(map(printable, text.split("\n")))
    console.print(Text(lines), soft_wrap=not console.is_terminal)


def say_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """Print rows, the first of them the heading, in aligned columns; those at `right` have numbers.

    On a terminal that is too narrow cells are broken between words.
    """
    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for i, (heading, *cells) in enumerate(zip(*rows, strict=True)):
        longest = max(len(word) for cell in (heading, *cells) for word in printable(cell).split(" "))
        table.add_column(Text(printable(heading)), justify="right" if i in right else "left", min_width=longest)
    for row in rows[1:]:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(width=None if Console().is_terminal else 100_000)
    with console.capture() as printed:
        console.print(table)
    echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def say_all(parts: Iterable[str | Sequence[Sequence[str]]]) -> None:
    """Print lines and tables in their order."""
    for part in parts:
        if isinstance(part, str):
            say(part)
        else:
            say_table(part)
