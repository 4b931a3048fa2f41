"""The plan of an initialisation: which layers get new filters, and what each is drawn from. No framework is needed.

A source is a preset, a schedule, statistics or a function of the layer. `InitPlan` asks it for every layer, leaves out
those that the caller or the method does not want, and computes the root and the mean that torch, JAX and Keras draw
from.
"""

from __future__ import annotations

import difflib
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from numpy.typing import ArrayLike

from filtercov.covariance.closed_form import check_sigma
from filtercov.covariance.forms import Array, as_array, as_float, as_whole, show_size
from filtercov.covariance.root import Negative, Root, check_negative, covariance_root, gaussian_roots
from filtercov.covariance.transfer import LayerStatistics, Resizing, resizing_notes
from filtercov.errors import CovarianceError, FiltercovWarning, ModelError, SourceError
from filtercov.printable import counted, printable
from filtercov.schedule import PRESETS, FittedSchedule, QuadraticSchedule, SawtoothSchedule

STATISTICS = "stats:"  # prefix of a statistics file or of shipped statistics
CLOSED_FORM_MIN_KERNEL = 5  # the paper found the closed form no help to 3×3 filters
FILLED = 0.01  # a pixel counts as filled if its standard deviation exceeds this share of the largest one
LARGE_KERNEL = 11  # the paper's schedules were found with 9×9 filters
NOT_CHOSEN = "not chosen by filter_fn"
NEEDED = "needed a preset name, a schedule, FilterStatistics or a function of the layer as source"


class Layer(Protocol):
    """A depthwise layer of any framework."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def kernel_size(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def channels(self) -> int: ...  # noqa: D102

    @property
    def depth(self) -> float: ...  # noqa: D102


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
    another kernel size. `negative_mass` is the share of the covariance's spectrum that was negative. `filled` counts
    the pixels whose standard deviation exceeds 1 % of the largest one.
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


@dataclass(frozen=True)
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
        table = [head, *(row.cells for row in self.rows)]
        words = ("layer", "source", "outcome")  # aligned to the left, numbers to the right
        columns = []
        for name, *cells in zip(*table, strict=True):
            width = max(map(len, (name, *cells)))
            columns.append([f"{cell:{'<' if name in words else '>'}{width}}" for cell in (name, *cells)])
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        total = f"{len(self.initialised)} of {len(self)} depthwise layers initialised"
        if any(row.negative_mass for row in self.rows):
            total += "; negative: the share of a covariance's spectrum below zero"
        return "\n".join([*lines, total, *(printable(f"note: {note}") for note in self.notes)])


class Target(NamedTuple):
    """What one layer's filters are to be drawn from: its row of the report, with σ for the closed form, or these."""

    row: InitRow
    covariance: Array | None = None
    mean: Array | None = None  # (n,)


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
        check_filter_fn(filter_fn, who)
        least = 1 if min_kernel_size is None else as_whole(min_kernel_size, least=0)
        if least is None:
            raise SourceError(f"min_kernel_size: needed a whole number or None, got {min_kernel_size!r}")
        self.layers, self.source, self.negative, self.who = layers, source, negative, who
        self.skipped: dict[L, str] = {}
        self.chosen: dict[L, Target] = {}
        prescribe = _function_of_layer(source, len(layers), who)
        for layer in layers:
            if filter_fn is not None and not filter_fn(layer):
                self.skipped[layer] = NOT_CHOSEN
            elif max(layer.kernel_size) < least:
                self.skipped[layer] = _too_small(layer, least)
            else:
                with _naming(layer):
                    target = _target(layer, prescribe(layer))
                closed_form = target.row.sigma is not None and min_kernel_size is None
                if closed_form and max(layer.kernel_size) < CLOSED_FORM_MIN_KERNEL:
                    self.skipped[layer] = _too_small(layer, CLOSED_FORM_MIN_KERNEL)
                else:
                    self.chosen[layer] = target
        if not self.chosen:
            raise ModelError(self._nothing_chosen())

    def skip(self, layer: L, reason: str) -> None:
        """Leave a layer alone that had been chosen."""
        del self.chosen[layer]
        self.skipped[layer] = reason

    def draw(self, sample: Callable[[L, Root, Array | None], Filters]) -> tuple[list[Filters], InitReport]:
        """Draw filters from N(mean, root @ root) for each chosen layer with `sample(layer, root, mean)`, and report.

        A warning says what was probably not wanted; it comes before any layer is changed, for it may be an error.
        """
        drawn = []
        rows = {layer: row_of(layer, initialised=False, reason=reason) for layer, reason in self.skipped.items()}
        roots = self._closed_form_roots()
        for layer, (row, covariance, mean) in self.chosen.items():
            with _naming(layer):
                if covariance is None:
                    root = next(roots)
                else:
                    root = covariance_root(covariance, layer.kernel_size, negative=self.negative)
                drawn.append(sample(layer, root, mean))
            rows[layer] = replace(row, negative_mass=root.negative_mass, filled=root.filled(FILLED))
        in_order = tuple(rows[layer] for layer in self.layers)
        notes = [
            *_fit_notes(self.source),
            *resizing_notes([(row.kernel_size, row.resized) for row in in_order]),
            *_empty_notes(in_order),
        ]
        for note, doubtful in notes:
            if doubtful:
                warnings.warn(f"{self.who}: {note}", FiltercovWarning, stacklevel=3)
        preset = self.source if isinstance(self.source, str) else None
        return drawn, InitReport(in_order, tuple(note for note, _ in notes), preset)

    def _closed_form_roots(self) -> Iterator[Root]:
        """Yield the root of each layer with a σ, one at a time: roots of large kernels take memory."""
        needed = [(row.kernel_size, row.sigma) for row, *_ in self.chosen.values() if row.sigma is not None]
        layers = Counter(needed)
        roots = {
            size: gaussian_roots(size, [sigma for k, sigma in layers if k == size], negative=self.negative)
            for size, _ in layers
        }
        shared: dict[tuple[tuple[int, ...], float], Root] = {}
        for key in needed:
            root = shared[key] if key in shared else next(roots[key[0]])
            if layers[key] > 1:
                shared[key] = root
            yield root

    def _nothing_chosen(self) -> str:
        """Say why no layer is left: a call that changes nothing has been misunderstood."""
        reasons = ", ".join(f"{count} × {reason}" for reason, count in Counter(self.skipped.values()).items())
        small = [max(layer.kernel_size) for layer in self.layers if self.skipped[layer] != NOT_CHOSEN]
        if small:
            advice = (
                f"pass min_kernel_size={max(small)} to initialise them all the same, or transfer the statistics of a "
                "trained model, which help filters as small as these too"
            )
        else:
            example = self.layers[0].name
            advice = f"filter_fn gets layers, with names such as {example!r}, and returns true for those it chooses"
        finding = f"needed a layer to initialise, got none of {len(self.layers)} depthwise ones ({reasons})"
        return f"{self.who}: {finding}; {advice}"


def check_filter_fn(filter_fn: object, who: str) -> None:
    """Raise unless a choice of layers is None or a function of a layer; a name, say, is neither."""
    if filter_fn is None or callable(filter_fn):
        return
    advice = f"; pass lambda layer: {filter_fn!r} in layer.name" if isinstance(filter_fn, str) else ""
    raise SourceError(f"{who}: needed filter_fn to be a function of a layer, got {type(filter_fn).__name__}{advice}")


def _too_small(layer: Layer, least: int) -> str:
    return f"{show_size(layer.kernel_size)} is under min_kernel_size={least}"


def _function_of_layer(source: Source[L], count: int, who: str) -> Callable[[L], object]:
    """Turn any source into a function of the layer, in a model of `count` depthwise layers."""
    if isinstance(source, str):
        source = _preset(source, who)
    if isinstance(source, type):
        raise SourceError(f"{who}: {NEEDED}, got the class {source.__name__}; make one first, {source.__name__}(...)")
    if isinstance(source, SawtoothSchedule) and sum(source.stages) != count:
        raise SourceError(
            f"{who}: the model has {count} depthwise layers, but stages={source.stages} add up to {sum(source.stages)}"
        )
    if isinstance(source, QuadraticSchedule | SawtoothSchedule):
        schedule = source
        return lambda layer: schedule(layer.depth)
    if _has_layers(source):
        statistics: Any = source
        return lambda layer: statistics.at(layer.depth, layer.kernel_size)
    if callable(source):
        return source
    advice = f"{source!r}; for one σ everywhere pass lambda layer: {source!r}"
    raise SourceError(f"{who}: {NEEDED}, got {advice if isinstance(source, int | float) else type(source).__name__}")


def _has_layers(value: object) -> bool:
    return callable(getattr(value, "at", None))  # arrays of JAX have an `at` too, which is no function


def _preset(name: str, who: str) -> QuadraticSchedule:
    if name in PRESETS:
        return PRESETS[name]
    if name.startswith(STATISTICS):
        file = name.removeprefix(STATISTICS)
        raise SourceError(
            f"{who}: {name!r} names statistics in a file, which torch reads; pass FilterStatistics.load({file!r}) or "
            f"FilterStatistics.shipped({file!r}) from filtercov instead"
        )
    if Path(name).suffix or len(Path(name).parts) > 1 or os.path.exists(name):  # noqa: PTH110 - takes any length
        raise SourceError(
            f"{who}: needed the name of a preset, got {name!r}; statistics in a file are written "
            f"'{STATISTICS}{name}', a checkpoint is measured first with FilterStatistics.from_checkpoint({name!r})"
        )
    close = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise SourceError(f"{who}: unknown preset {name!r}, the known ones are {', '.join(PRESETS)}{hint}")


def _target(layer: Layer, value: object) -> Target:
    """Return what a source says of a layer: a σ, a covariance or statistics."""
    if isinstance(value, LayerStatistics):
        fitting = value.resize(layer.kernel_size)
        row = row_of(layer, source_layer=value.name, resized=fitting.resized)
        return Target(row, fitting.covariance, fitting.mean)
    if isinstance(value, bool) or getattr(value, "ndim", None) == 0 or as_float(value) is not None:
        return Target(row_of(layer, sigma=check_sigma(value)))
    if value is None or isinstance(value, str | bytes | dict | set) or _has_layers(value):
        n = math.prod(layer.kernel_size)
        raise SourceError(
            f"needed a σ, a covariance ({n}, {n}) or LayerStatistics from the source for every layer, got "
            f"{type(value).__name__}"
        )
    return Target(row_of(layer, source_layer="given covariance"), as_array(value, "covariance"))  # type: ignore[arg-type]


def row_of(layer: Layer, *, initialised: bool = True, **rest: Any) -> InitRow:
    """Return a layer's row in a report."""
    return InitRow(layer.name, layer.kernel_size, layer.channels, layer.depth, initialised, **rest)


@contextmanager
def _naming(layer: Layer) -> Iterator[None]:
    """Let errors begin with the name of the layer that they are about."""
    try:
        yield
    except (CovarianceError, ModelError, SourceError) as error:
        raise type(error)(f"{layer.name}: {error}") from None


Note = tuple[str, bool]  # a sentence, and whether it says that something is doubtful


def _fit_notes(source: object) -> list[Note]:
    if not isinstance(source, FittedSchedule):
        return []
    return [(f"σ is of a fitted schedule; {source.fit}", not source.fit.usable)]


def _empty_notes(rows: Sequence[InitRow]) -> list[Note]:
    """Note each large kernel size of which even the fullest layer is mostly empty."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for row in rows:
        if row.sigma is not None and row.filled is not None and max(row.kernel_size) >= LARGE_KERNEL:
            groups.setdefault(row.kernel_size, []).append(row.filled)
    notes = []
    for size, filled in groups.items():
        pixels = math.prod(size)
        if 2 * max(filled) < pixels:
            span = f"{min(filled)} to {max(filled)}" if min(filled) < max(filled) else str(filled[0])
            note = (
                f"σ leaves most of the {show_size(size)} filters empty in {counted(len(filled), 'layer')}: {span} of "
                f"{pixels} pixels vary by more than {FILLED:.0%} of what the centre does; the presets were found with "
                "9x9 filters, pass a schedule with larger σ to use larger ones"
            )
            notes.append((note, True))
    return notes
