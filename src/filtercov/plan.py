"""The plan of an initialisation: which layers get new filters, and what each is drawn from. No framework is needed.

    source  →  one `Prescription` per layer  →  one `Target` per layer (root, mean, report row)

A source is a preset, a schedule, statistics or a function of the layer. `Plan` asks it for every layer, leaves out
those that the caller or the method does not want, and computes the roots. torch, JAX and Keras draw from the targets.
"""

from __future__ import annotations

import difflib
import math
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from numpy.typing import ArrayLike

from filtercov.covariance.closed_form import check_sigma
from filtercov.covariance.forms import Array, as_array, as_float, show_size
from filtercov.covariance.root import Negative, Root, check_negative, covariance_root, gaussian_roots
from filtercov.covariance.transfer import LayerStatistics, Resizing, resizing_notes
from filtercov.errors import CovarianceError, FiltercovWarning, NothingChosenError, SourceError
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
            source += f", {show_size(self.resized.from_size)}"
        negative = "-" if self.negative_mass is None else f"{self.negative_mass:.2%}"
        outcome = "initialised" if self.initialised else f"skipped: {self.reason}"
        size, channels, depth = show_size(self.kernel_size), str(self.channels), f"{self.depth:.3f}"
        return tuple(map(printable, (self.name, size, channels, depth, source, negative, outcome)))


@dataclass(frozen=True)
class InitReport(Sequence[InitRow]):
    """The rows of an initialisation, one per depthwise layer in forward order, and notes; prints as a table.

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

    def __str__(self) -> str:
        table: list[tuple[str, ...]] = [("layer", "kernel", "channels", "depth", "source", "negative", "outcome")]
        table += [row.cells for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        left = {0, 4, 6}  # columns of words
        lines = [
            "  ".join(
                cell.ljust(w) if i in left else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        ]
        total = f"{len(self.initialised)} of {len(self)} depthwise layers initialised"
        return "\n".join([*map(str.rstrip, lines), total, *(printable(f"note: {note}") for note in self.notes)])


@dataclass(frozen=True)
class Prescription:
    """What a source says of one layer: a σ for the closed form, or a covariance with or without a mean."""

    sigma: float | None = None
    covariance: Array | None = None
    mean: Array | None = None
    source_layer: str | None = None
    resized: Resizing | None = None


@dataclass(frozen=True)
class Target:
    """What one layer's filters are drawn from: N(mean, root @ root), and the layer's row in the report."""

    root: Root
    mean: Array | None  # (n,)
    row: InitRow


class Plan(Generic[L]):
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
        self.layers, self.source, self.negative, self.who = layers, source, negative, who
        self.skipped: dict[L, str] = {}
        self.prescribed: dict[L, Prescription] = {}
        least = 1 if min_kernel_size is None else _check_min_kernel_size(min_kernel_size)
        prescribe = _function_of_layer(source, len(layers), who)
        for layer in layers:
            if filter_fn is not None and not filter_fn(layer):
                self.skipped[layer] = NOT_CHOSEN
            elif max(layer.kernel_size) < least:
                self.skipped[layer] = _too_small(layer, least)
            else:
                prescription = _recognise(prescribe(layer), layer)
                closed_form = prescription.sigma is not None and min_kernel_size is None
                if closed_form and max(layer.kernel_size) < CLOSED_FORM_MIN_KERNEL:
                    self.skipped[layer] = _too_small(layer, CLOSED_FORM_MIN_KERNEL)
                else:
                    self.prescribed[layer] = prescription
        self.refuse_if_empty()

    def skip(self, layer: L, reason: str) -> None:
        """Leave a layer alone that had been chosen."""
        del self.prescribed[layer]
        self.skipped[layer] = reason

    def refuse_if_empty(self) -> None:
        """Raise if no layer is left: a call that changes nothing has been misunderstood."""
        if self.prescribed:
            return
        reasons = ", ".join(f"{count} × {reason}" for reason, count in Counter(self.skipped.values()).items())
        small = [max(layer.kernel_size) for layer in self.layers if self.skipped[layer] != NOT_CHOSEN]
        if small:
            advice = (
                f"pass min_kernel_size={max(small)} to initialise them all the same, or transfer the FilterStatistics "
                "of a trained model, which help filters as small as these too"
            )
        else:
            example = self.layers[0].name
            advice = f"filter_fn gets layers, with names such as {example!r}, and returns true for those it chooses"
        finding = f"{self.who}: needed a layer to initialise, got none of {len(self.layers)} depthwise ones ({reasons})"
        raise NothingChosenError(finding, advice)

    def targets(self) -> Iterator[tuple[L, Target]]:
        """Yield each chosen layer with its target, one at a time: roots of large kernels take memory."""
        closed_forms = Counter(
            (layer.kernel_size, prescription.sigma)
            for layer, prescription in self.prescribed.items()
            if prescription.sigma is not None
        )
        roots = {
            size: gaussian_roots(size, [s for k, s in closed_forms if k == size], negative=self.negative)
            for size, _ in closed_forms
        }
        shared: dict[tuple[tuple[int, ...], float], Root] = {}  # closed forms of several layers
        for layer, prescription in self.prescribed.items():
            size, sigma = layer.kernel_size, prescription.sigma
            if sigma is None:
                root = self._root_of(layer, prescription)
            elif (size, sigma) in shared:
                root = shared[size, sigma]
            else:
                root = next(roots[size])
                if closed_forms[size, sigma] > 1:
                    shared[size, sigma] = root
            yield layer, Target(root, prescription.mean, _initialised_row(layer, prescription, root))

    def report(self, initialised: Sequence[InitRow], *, stacklevel: int = 2) -> InitReport:
        """Report every layer, with notes; warn of what was probably not wanted. A warning may be made an error."""
        by_name = {row.name: row for row in initialised}
        rows = tuple(
            by_name[layer.name]
            if layer in self.prescribed
            else InitRow(layer.name, layer.kernel_size, layer.channels, layer.depth, False, self.skipped[layer])
            for layer in self.layers
        )
        notes = [*_fit_notes(self.source), *resizing_notes([(row.kernel_size, row.resized) for row in rows])]
        notes += _empty_notes(rows)
        for note, doubtful in notes:
            if doubtful:
                warnings.warn(f"{self.who}: {note}", FiltercovWarning, stacklevel=stacklevel + 1)
        return InitReport(rows, tuple(note for note, _ in notes))

    def _root_of(self, layer: L, prescription: Prescription) -> Root:
        assert prescription.covariance is not None
        try:
            return covariance_root(prescription.covariance, layer.kernel_size, negative=self.negative)
        except CovarianceError as error:
            raise CovarianceError(f"{layer.name}: {error}") from None


def check_filter_fn(filter_fn: object, who: str) -> None:
    """Raise unless a choice of layers is None or a function of a layer; a name, say, is neither."""
    if filter_fn is None or callable(filter_fn):
        return
    advice = f"; pass lambda layer: {filter_fn!r} in layer.name" if isinstance(filter_fn, str) else ""
    raise SourceError(f"{who}: needed filter_fn to be a function of a layer, got {type(filter_fn).__name__}{advice}")


def _check_min_kernel_size(min_kernel_size: int) -> int:
    try:
        return operator.index(min_kernel_size)
    except TypeError:
        raise SourceError(f"min_kernel_size: needed a whole number or None, got {min_kernel_size!r}") from None


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
    if hasattr(source, "at"):
        statistics = source
        return lambda layer: statistics.at(layer.depth, layer.kernel_size)
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
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise SourceError(f"{who}: unknown preset {name!r}, the known ones are {', '.join(PRESETS)}{hint}")


def _recognise(value: object, layer: Layer) -> Prescription:
    """Return what a source says of a layer as a prescription; errors name the layer."""
    try:
        if isinstance(value, LayerStatistics):
            fitting = value.resize(layer.kernel_size)
            return Prescription(
                covariance=fitting.covariance, mean=fitting.mean, source_layer=value.name, resized=fitting.resized
            )
        if isinstance(value, bool) or getattr(value, "ndim", None) == 0 or as_float(value) is not None:
            return Prescription(sigma=check_sigma(value))
        if value is None or isinstance(value, str | bytes | dict | set) or hasattr(value, "at"):
            n = math.prod(layer.kernel_size)
            raise SourceError(
                f"needed a σ, a covariance ({n}, {n}) or LayerStatistics from the source for every layer, got "
                f"{type(value).__name__}"
            )
        return Prescription(covariance=as_array(value, "covariance"), source_layer="given covariance")  # type: ignore[arg-type]
    except (CovarianceError, SourceError) as error:
        raise type(error)(f"{layer.name}: {error}") from None


def _initialised_row(layer: Layer, prescription: Prescription, root: Root) -> InitRow:
    return InitRow(
        name=layer.name,
        kernel_size=layer.kernel_size,
        channels=layer.channels,
        depth=layer.depth,
        initialised=True,
        sigma=prescription.sigma,
        source_layer=prescription.source_layer,
        negative_mass=root.negative_mass,
        resized=prescription.resized,
        filled=root.filled(FILLED),
    )


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
