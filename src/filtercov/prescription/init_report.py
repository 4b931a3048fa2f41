"""What an initialisation did to each depthwise layer, as data and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from filtercov.covariance.forms import show_size
from filtercov.covariance.transfer import Resizing
from filtercov.printable import printable


@dataclass(frozen=True)
class InitRow:
    """One depthwise layer: what was done to it, from what, or why nothing was.

    `sigma` is set for a closed form; `source_layer` for a transfer,
    and `resized` where that was measured at another kernel size. `negative_mass` is the share of the covariance's
    spectrum that was negative and had to be dealt with, `filled` the number of pixels that vary by more than 1 % of
    what the most variable one does.
    """

    name: str
    kernel_size: tuple[int, ...]
    channels: int
    depth: float
    initialised: bool
    reason: str = ""
    sigma: float | None = None
    source_layer: str | None = None
    negative_mass: float | None = None
    resized: Resizing | None = None
    filled: int | None = None


@dataclass(frozen=True)
class InitReport(Sequence[InitRow]):
    """The rows of an initialisation, one per depthwise layer in forward order; prints as a table.

    `notes` say what the user should know about it.

    >>> row = InitRow("blocks.0.dw", (9, 9), 256, 0.0, True, sigma=0.08, negative_mass=0.0)
    >>> print(InitReport((row,)))
    layer        kernel  channels  depth  source    negative  outcome
    blocks.0.dw     9x9       256  0.000  σ = 0.08     0.00%  initialised
    1 of 1 depthwise layers initialised
    """

    rows: tuple[InitRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def initialised(self) -> tuple[InitRow, ...]:
        """The rows of the layers that were changed."""
        return tuple(row for row in self.rows if row.initialised)

    @property
    def skipped(self) -> tuple[InitRow, ...]:
        """The rows of the layers that were left alone."""
        return tuple(row for row in self.rows if not row.initialised)

    def __getitem__(self, index: int) -> InitRow:  # type: ignore[override]
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[InitRow]:
        return iter(self.rows)

    def __str__(self) -> str:
        header = ("layer", "kernel", "channels", "depth", "source", "negative", "outcome")
        table = [header, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(header))]
        right = (False, True, True, True, False, True, False)
        lines = [
            "  ".join(
                cell.rjust(w) if to_right else cell.ljust(w)
                for cell, w, to_right in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in table
        ]
        total = f"{len(self.initialised)} of {len(self)} depthwise layers initialised"
        return "\n".join([*lines, total, *(printable(f"note: {note}") for note in self.notes)])


def _cells(row: InitRow) -> tuple[str, ...]:
    source = f"σ = {row.sigma:.4g}" if row.sigma is not None else row.source_layer or "-"
    if row.resized is not None:
        source += f", {show_size(row.resized.from_size)}"
    negative = "-" if row.negative_mass is None else f"{row.negative_mass:.2%}"
    outcome = "initialised" if row.initialised else f"skipped: {row.reason}"
    size, channels, depth = show_size(row.kernel_size), str(row.channels), f"{row.depth:.3f}"
    return tuple(map(printable, (row.name, size, channels, depth, source, negative, outcome)))
