"""The plan of an initialisation: which layers get new filters, and what each is drawn from. No framework is needed.

A source is a preset, a schedule, statistics or a function of the layer. `InitPlan` asks it for every layer, leaves out
those that the caller or the method does not want, and computes the root and the mean that torch, JAX and Keras draw
from.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.closed_form import check_sigma
from filtercov.covariance.forms import Array, as_array, show_size, whole_number
from filtercov.covariance.root import Negative, Root, check_negative, covariance_root, gaussian_roots
from filtercov.covariance.transfer import LayerStatistics, Resizing, resizing_doubts
from filtercov.errors import FiltercovWarning, ModelError, SourceError, naming
from filtercov.printable import aligned, counted, printable
from filtercov.schedule import PRESETS, FittedSchedule, Layer, QuadraticSchedule, SawtoothSchedule

STATISTICS = "stats:"  # prefix of a statistics file or of shipped statistics
CLOSED_FORM_MIN_KERNEL = 5  # the paper found the closed form no help to 3×3 filters
FILLED = 0.01  # a pixel counts as filled if its standard deviation exceeds this share of the largest one
LARGE_KERNEL = 11  # the paper's schedules were found with 9×9 filters
NEEDED = "needed a preset name, a schedule, FilterStatistics or a function of the layer as source"


class StatisticsByDepth(Protocol):
    """Statistics of a network at any relative depth and kernel size, such as `FilterStatistics`."""

    def at(self, depth: float, kernel_size: tuple[int, ...], /) -> LayerStatistics: ...  # noqa: D102


L = TypeVar("L", bound=Layer)
Filters = TypeVar("Filters")
Source = (
    str | QuadraticSchedule | SawtoothSchedule | StatisticsByDepth | Callable[[L], float | LayerStatistics | ArrayLike]
)


@dataclass(frozen=True)
class InitRow:
    """One depthwise layer of a report: what was done to it, from what, or why nothing was.

    `sigma` is set for the closed form; `source_layer` for a transfer, and `resized` if its statistics were measured at
    another kernel size. `negative_mass` is the share of the covariance's spectrum that was negative.
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

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as a table shows it."""
        source = f"σ = {self.sigma:.4g}" if self.sigma is not None else self.source_layer or "-"
        if self.resized is not None:
            source += f", from {show_size(self.resized.from_size)}"
        negative = "-" if self.negative_mass is None else f"{self.negative_mass:.2%}"
        outcome = "initialised" if self.initialised else f"skipped: {self.reason}"
        size, channels, depth = show_size(self.kernel_size), str(self.channels), f"{self.depth:.3f}"
        return tuple(map(printable, (self.name, size, channels, depth, source, negative, outcome)))


@dataclass(frozen=True, repr=False)
class InitReport(Sequence[InitRow]):
    """The rows of an initialisation, one per depthwise layer in forward order, and notes; prints as a table.

    `preset` is the name of the preset that was the source, if it was one.

    >>> row = InitRow("blocks.0.dw", (9, 9), 256, 0.0, True, sigma=0.08, negative_mass=0.0)
    >>> print(InitReport((row,)))
    layer        kernel  channels  depth  source    negative  outcome
    blocks.0.dw     9x9       256  0.000  σ = 0.08     0.00%  initialised
    1 of 1 depthwise layers initialised
    """

    rows: tuple[InitRow, ...]
    notes: tuple[str, ...] = ()
    preset: str | None = None

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

    def __str__(self) -> str:
        head = ("layer", "kernel", "channels", "depth", "source", "negative", "outcome")
        lines = aligned([head, *(row.cells for row in self)], numbers=("kernel", "channels", "depth", "negative"))
        total = f"{len(self.initialised)} of {len(self)} depthwise layers initialised"
        if any(row.negative_mass for row in self.rows):
            total += "; negative: the share of a covariance's spectrum below zero"
        return "\n".join([*lines, total, *(printable(f"note: {note}") for note in self.notes)])

    __repr__ = __str__  # what a notebook shows of init_(model)


class Target(NamedTuple):
    """The distribution of one layer's filters: the σ of its row, or a covariance and a mean (n,)."""

    row: InitRow
    covariance: Array | None = None
    mean: Array | None = None


class InitPlan(Generic[L]):
    """The layers an initialisation changes, in forward order, and the reason why it leaves the others alone."""

    def __init__(
        self,
        layers: Sequence[L],
        source: Source[L],
        *,
        filter_fn: Callable[[L], bool] | None = None,
        min_kernel_size: int | None = None,
        negative: Negative = "clip",
        who: str = "init_",
    ) -> None:
        check_negative(negative)
        given = whole_number(min_kernel_size or 0, "min_kernel_size", least=0, error=SourceError)
        self.layers, self.source, self.negative, self.who = layers, source, negative, who
        self.skipped: dict[L, str] = {}
        self.chosen: dict[L, Target] = {}
        prescribe = _function_of_layer(source, len(layers), who)
        for layer in layers:
            least = given
            if filter_fn is not None and not filter_fn(layer):
                self.skipped[layer] = "not chosen by filter_fn"
                continue
            if max(layer.kernel_size) >= least:
                with naming(layer.name):
                    self.chosen[layer] = _target(layer, prescribe(layer))
                if min_kernel_size is None and self.chosen[layer].row.sigma is not None:
                    least = CLOSED_FORM_MIN_KERNEL
            if max(layer.kernel_size) < least:
                self.skip(layer, f"{show_size(layer.kernel_size)} is under min_kernel_size={least}")
        if not self.chosen:
            raise ModelError(self._nothing_chosen())

    def skip(self, layer: L, reason: str) -> None:
        """Leave a layer alone."""
        self.chosen.pop(layer, None)
        self.skipped[layer] = reason

    def draw(self, sample: Callable[[L, Root, Array | None], Filters]) -> tuple[list[Filters], InitReport]:
        """Draw filters from N(mean, root @ root) for each chosen layer with `sample(layer, root, mean)`, and report.

        A warning says what was probably not wanted; it comes before any layer is changed, for it may be an error.
        """
        sigmas: dict[tuple[int, ...], list[float]] = {}
        for row, *_ in self.chosen.values():
            if row.sigma is not None:
                sigmas.setdefault(row.kernel_size, []).append(row.sigma)
        # Computed when they are asked for: the roots of large kernels take memory.
        roots = {size: gaussian_roots(size, of_size, negative=self.negative) for size, of_size in sigmas.items()}
        drawn = []
        filled: dict[tuple[int, ...], list[int]] = {}
        rows = {layer: row_of(layer, initialised=False, reason=reason) for layer, reason in self.skipped.items()}
        for layer, (row, covariance, mean) in self.chosen.items():
            with naming(layer.name):
                if covariance is None:
                    root = next(roots[layer.kernel_size])
                    filled.setdefault(layer.kernel_size, []).append(root.filled(FILLED))
                else:
                    root = covariance_root(covariance, layer.kernel_size, negative=self.negative)
                drawn.append(sample(layer, root, mean))
            rows[layer] = replace(row, negative_mass=root.negative_mass)
        in_order = tuple(rows[layer] for layer in self.layers)
        doubts = resizing_doubts((row.kernel_size, row.resized) for row in in_order) + _empty_kernels(filled)
        if isinstance(self.source, FittedSchedule) and not self.source.fit.usable:
            doubts.append(f"σ is of a fitted schedule; {self.source.fit}")
        for doubt in doubts:
            warnings.warn(f"{self.who}: {doubt}", FiltercovWarning, stacklevel=3)
        preset = self.source if isinstance(self.source, str) else None
        return drawn, InitReport(in_order, tuple(doubts), preset)

    def _nothing_chosen(self) -> str:
        """Say why no layer is left: a call that changes nothing has been misunderstood."""
        reasons = ", ".join(f"{count} × {reason}" for reason, count in Counter(self.skipped.values()).items())
        largest = max(max(layer.kernel_size) for layer in self.layers)
        return (
            f"{self.who}: needed a layer to initialise, got none of {len(self.layers)} depthwise ones ({reasons}); "
            f"pass min_kernel_size={largest} to initialise small filters all the same, transfer the statistics of a "
            f"trained model, which help these too, or have filter_fn choose layers, such as {self.layers[0].name!r}"
        )


def _function_of_layer(source: Source[L], count: int, who: str) -> Callable[[L], object]:
    """Turn any source into a function of the layer, in a model of `count` depthwise layers."""
    if isinstance(source, str):
        source = _preset(source, who)
    if isinstance(source, SawtoothSchedule) and sum(source.stages) != count:
        raise SourceError(
            f"{who}: the model has {count} depthwise layers, but stages={source.stages} add up to {sum(source.stages)}"
        )
    if isinstance(source, QuadraticSchedule | SawtoothSchedule):
        schedule = source
        return lambda layer: schedule(layer.depth)
    at: Any = getattr(source, "at", None)
    if callable(at):  # arrays of JAX have an `at` too, which is no function
        return lambda layer: at(layer.depth, layer.kernel_size)
    if callable(source):
        return source
    advice = f"{source!r}; for one σ everywhere pass lambda layer: {source!r}"
    raise SourceError(f"{who}: {NEEDED}, got {advice if isinstance(source, int | float) else type(source).__name__}")


def _preset(name: str, who: str) -> QuadraticSchedule:
    if name in PRESETS:
        return PRESETS[name]
    if name.startswith(STATISTICS):
        file = name.removeprefix(STATISTICS)
        raise SourceError(
            f"{who}: {name!r} names statistics in a file, which torch reads; pass FilterStatistics.load({file!r}) or "
            f"FilterStatistics.shipped({file!r}) from filtercov instead"
        )
    close = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise SourceError(
        f"{who}: unknown preset {name!r}{hint}; the presets are {', '.join(PRESETS)}, and statistics, shipped or in a "
        f"file, are written '{STATISTICS}{name}'"
    )


def _target(layer: Layer, value: Any) -> Target:
    """The target of a layer, from the source's answer: a σ, a covariance or statistics."""
    if isinstance(value, LayerStatistics):
        fitting = value.resize(layer.kernel_size)
        row = row_of(layer, source_layer=value.name, resized=fitting.resized)
        return Target(row, fitting.covariance, fitting.mean)
    if np.ndim(value) == 0:
        return Target(row_of(layer, sigma=check_sigma(value)))
    return Target(row_of(layer, source_layer="given covariance"), as_array(value, "covariance"))


def row_of(layer: Layer, *, initialised: bool = True, **rest: Any) -> InitRow:
    """A layer's row in a report."""
    return InitRow(layer.name, layer.kernel_size, layer.channels, layer.depth, initialised, **rest)


def _empty_kernels(filled: Mapping[tuple[int, ...], Sequence[int]]) -> list[str]:
    """Note each large kernel size of which even the fullest layer is mostly empty, from the pixels of each layer."""
    return [
        f"σ leaves most of the {show_size(size)} filters empty in {counted(len(pixels), 'layer')}: at most "
        f"{max(pixels)} of {math.prod(size)} pixels vary by more than {FILLED:.0%} of what the centre does; the "
        "presets were found with 9x9 filters, pass a schedule with larger σ to use larger ones"
        for size, pixels in filled.items()
        if max(size) >= LARGE_KERNEL and 2 * max(pixels) < math.prod(size)
    ]
