"""What each layer's filters are to be drawn from: any source as a function of the layer, and what it may return."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from numpy.typing import ArrayLike
from torch import Tensor

from filtercov.covariance.closed_form import check_sigma
from filtercov.covariance.forms import Array, show_size
from filtercov.covariance.scalar import as_float
from filtercov.depthwise.model import DepthwiseLayer
from filtercov.errors import CovarianceError, SourceError
from filtercov.filters.sample import as_array
from filtercov.schedule.schedules import PRESETS, QuadraticSchedule, SawtoothSchedule
from filtercov.statistics.filter_statistics import FilterStatistics, LayerStatistics

Source = (
    str
    | QuadraticSchedule
    | SawtoothSchedule
    | FilterStatistics
    | Callable[[DepthwiseLayer], float | LayerStatistics | ArrayLike | Tensor]
)

# A σ for the closed form, the statistics of a layer, or a covariance (n, n).
Prescription = float | LayerStatistics | Array


def prescriber(source: Source, count: int) -> Callable[[DepthwiseLayer], Prescription]:
    """Return the function of the layer that a source stands for, in a model of `count` depthwise layers."""
    prescribe = _function_of_layer(source, count)

    def checked(layer: DepthwiseLayer) -> Prescription:
        prescription = prescribe(layer)
        try:
            return _recognised(prescription, layer)
        except (CovarianceError, SourceError) as error:
            raise type(error)(f"{layer.name}: {error}") from None

    return checked


def _function_of_layer(source: Source, count: int) -> Callable[[DepthwiseLayer], object]:
    if isinstance(source, str):
        if source not in PRESETS:
            close = difflib.get_close_matches(source, PRESETS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise SourceError(f"init_: unknown preset {source!r}, the known ones are {', '.join(PRESETS)}{hint}")
        source = PRESETS[source]
    if isinstance(source, SawtoothSchedule) and sum(source.stages) != count:
        raise SourceError(
            f"init_: the model has {count} depthwise layers, but stages={source.stages} add up to {sum(source.stages)}"
        )
    if isinstance(source, QuadraticSchedule | SawtoothSchedule):
        schedule = source
        return lambda layer: schedule(layer.depth)
    if isinstance(source, FilterStatistics):
        statistics = source
        return lambda layer: statistics.at(layer.depth)
    if callable(source):
        return source
    raise SourceError(
        "init_: needed a preset name, a schedule, FilterStatistics or a function of the layer as source, got "
        f"{type(source).__name__}"
    )


def _recognised(prescription: object, layer: DepthwiseLayer) -> Prescription:
    """Return what a source prescribes as one of three types, or say what is wrong with it."""
    if isinstance(prescription, LayerStatistics):
        return _matching(prescription, layer)
    single = isinstance(prescription, bool) or getattr(prescription, "ndim", None) == 0
    if single or as_float(prescription) is not None:
        return check_sigma(prescription)
    if prescription is None or isinstance(prescription, str | bytes | dict | set | FilterStatistics):
        raise SourceError(
            f"needed a σ, a covariance ({layer.pixels}, {layer.pixels}) or LayerStatistics from the source, got "
            f"{type(prescription).__name__}"
        )
    return as_array(prescription, "covariance")  # type: ignore[arg-type]


def _matching(statistics: LayerStatistics, layer: DepthwiseLayer) -> LayerStatistics:
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
