"""What each layer's filters are to be drawn from: any source as a function of the layer, and what it may return.

Nothing here knows a framework: layers are whatever has a name, a kernel size and a depth.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import Protocol, TypeGuard, TypeVar

from numpy.typing import ArrayLike

from filtercov.covariance import forms
from filtercov.covariance.closed_form import check_sigma
from filtercov.covariance.forms import Array, as_float, show_size
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, SourceError
from filtercov.schedule import PRESETS, QuadraticSchedule, SawtoothSchedule


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
    """The statistics of a network at any relative depth, as `FilterStatistics` has them."""

    def at(self, depth: float, /) -> LayerStatistics: ...  # noqa: D102


L = TypeVar("L", bound=Layer)
Source = (
    str | QuadraticSchedule | SawtoothSchedule | StatisticsByDepth | Callable[[L], float | LayerStatistics | ArrayLike]
)

# A σ for the closed form, the statistics of a layer, or a covariance (n, n).
Prescription = float | LayerStatistics | Array

STATISTICS = "stats:"  # before a file of statistics, or the name of some that ship, where those can be read

NEEDED = "needed a preset name, a schedule, FilterStatistics or a function of the layer as source"

# How a framework's arrays are read, with what to call them in an error.
AsArray = Callable[[ArrayLike, str], Array]


def prescriber(
    source: Source[L], count: int, *, who: str = "init_", as_array: AsArray = forms.as_array
) -> Callable[[L], Prescription]:
    """Return the function of the layer that a source stands for, in a model of `count` depthwise layers.

    Errors name `who` was called.
    """
    prescribe = _function_of_layer(source, count, who)

    def checked(layer: L) -> Prescription:
        prescription = prescribe(layer)
        try:
            return _recognised(prescription, layer, as_array)
        except (CovarianceError, SourceError) as error:
            raise type(error)(f"{layer.name}: {error}") from None

    return checked


def _function_of_layer(source: Source[L], count: int, who: str) -> Callable[[L], object]:
    if isinstance(source, str):
        if source.startswith(STATISTICS):
            file = source.removeprefix(STATISTICS)
            raise SourceError(
                f"{who}: {source!r} names statistics in a file, which is read with torch; read it first, statistics = "
                f"filtercov.FilterStatistics.load({file!r}) or .shipped({file!r}), and pass lambda layer: "
                "statistics.at(layer.depth, layer.kernel_size)"
            )
        if source not in PRESETS:
            close = difflib.get_close_matches(source, PRESETS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise SourceError(f"{who}: unknown preset {source!r}, the known ones are {', '.join(PRESETS)}{hint}")
        source = PRESETS[source]
    if isinstance(source, type):
        raise SourceError(f"{who}: {NEEDED}, got the class {source.__name__}; make one first, {source.__name__}(...)")
    if isinstance(source, SawtoothSchedule) and sum(source.stages) != count:
        raise SourceError(
            f"{who}: the model has {count} depthwise layers, but stages={source.stages} add up to {sum(source.stages)}"
        )
    if isinstance(source, QuadraticSchedule | SawtoothSchedule):
        schedule = source
        return lambda layer: schedule(layer.depth)
    if _has_statistics(source):
        statistics = source
        return lambda layer: statistics.at(layer.depth)
    if callable(source):
        return source
    number = isinstance(source, int | float)
    raise SourceError(
        f"{who}: {NEEDED}, got "
        + (f"{source!r}; for one σ everywhere pass lambda layer: {source!r}" if number else type(source).__name__)
    )


def _has_statistics(source: object) -> TypeGuard[StatisticsByDepth]:
    return callable(getattr(source, "at", None))


def _recognised(prescription: object, layer: Layer, as_array: AsArray) -> Prescription:
    """Return what a source prescribes as one of three types, or say what is wrong with it."""
    if isinstance(prescription, LayerStatistics):
        return _matching(prescription, layer)
    single = isinstance(prescription, bool) or getattr(prescription, "ndim", None) == 0
    if single or as_float(prescription) is not None:
        return check_sigma(prescription)
    if prescription is None or isinstance(prescription, str | bytes | dict | set) or _has_statistics(prescription):
        n = math.prod(layer.kernel_size)
        came = type(prescription).__name__
        if prescription is None:
            came = "None; a function given as source must return one for every layer"
        raise SourceError(f"needed a σ, a covariance ({n}, {n}) or LayerStatistics from the source, got {came}")
    return as_array(prescription, "covariance")  # type: ignore[arg-type]


def _matching(statistics: LayerStatistics, layer: Layer) -> LayerStatistics:
    if statistics.kernel_size != layer.kernel_size:
        square = len(layer.kernel_size) == 2 and len(set(layer.kernel_size)) == 1
        size = layer.kernel_size[0] if square else layer.kernel_size
        raise SourceError(
            f"{show_size(layer.kernel_size)} filters, but the statistics at depth {layer.depth:.3g} are "
            f"of {show_size(statistics.kernel_size)} filters; resize them first with "
            f"statistics.resize(kernel_size={size}), or where kernel sizes differ from layer to layer pass "
            "lambda layer: statistics.at(layer.depth, layer.kernel_size) as source"
        )
    return statistics
