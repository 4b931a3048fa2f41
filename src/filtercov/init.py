"""Initialise the depthwise filters of any model: the paper's method in one call."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from filtercov.assign import assign_filters_, first_shared
from filtercov.covariance.forms import show_size
from filtercov.covariance.root import Negative, Root, check_negative, covariance_root, gaussian_roots
from filtercov.depthwise.model import DepthwiseLayer, LayerFilter, depthwise_layers
from filtercov.errors import CovarianceError, ModelError, SourceError
from filtercov.init_report import InitReport, InitRow
from filtercov.sample import check_generator, check_weight, one_thread, sample_filters
from filtercov.schedule import PRESETS, QuadraticSchedule, SawtoothSchedule
from filtercov.statistics import FilterStatistics, LayerStatistics

Prescription = float | LayerStatistics | ArrayLike
Source = str | QuadraticSchedule | SawtoothSchedule | FilterStatistics | Callable[[DepthwiseLayer], Prescription]
Scale = Literal["match"] | float | None


def init_(
    model: nn.Module,
    source: Source = "imagenet-thawed",
    *,
    filter_fn: LayerFilter | None = None,
    min_kernel_size: int = 5,
    scale: Scale = None,
    negative: Negative = "clip",
    generator: torch.Generator | None = None,
    example_input: Any = None,
) -> InitReport:
    """Initialise the filters of every depthwise convolution in `model`, in place, and report what was done.

    `source` is one of

    * a preset's name, see `PRESETS`, or a schedule: the closed form, with σ by depth;
    * `FilterStatistics` of a trained model: filters are drawn from its layers' means and covariances, interpolated over
      depth where the models differ in it;
    * a function of the layer that returns a covariance (n, n), a σ for the closed form, or `LayerStatistics`.

    Layers are left alone if `filter_fn(layer)` is false, or if their kernel's longest side is under
    `min_kernel_size`: the paper found the closed form no help to 3×3 filters. They count for depth all the same.
    `scale="match"` keeps the variance that each layer's weights had, for networks without normalisation after the
    convolution; a number multiplies the filters. `negative` says what becomes of negative eigenvalues, see
    `symmetric_root`. `example_input` traces the order in which layers run, see `depthwise_layers`.

    All chosen layers are changed or, on any error, none.

    >>> net = nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 16, 7, groups=16))
    >>> print(init_(net, "cifar-p2", generator=torch.Generator().manual_seed(0)))
    layer  kernel  channels  depth  source   negative  outcome
    0         3x3        16  0.000  -               -  skipped: 3x3 is under min_kernel_size=5
    1         7x7        16  1.000  σ = 1.9     2.75%  initialised
    1 of 2 depthwise layers initialised
    """
    check_negative(negative)
    check_generator(generator)
    _check_scale(scale)
    layers = depthwise_layers(model, example_input)
    skipped = _skipped(layers, filter_fn, min_kernel_size)
    chosen = [layer for layer in layers if layer not in skipped]
    for layer in chosen:
        check_weight(layer.weight, layer.name)
    skipped |= {layer: f"shares its weight with {other.name}" for layer, other in first_shared(chosen).items()}
    chosen = [layer for layer in chosen if layer not in skipped]

    prescribe = _prescriber(source, len(layers))
    prescriptions = [prescribe(layer) for layer in chosen]
    rows, staged = {}, []
    with one_thread():
        for layer, prescription, root in _with_roots(chosen, prescriptions, negative):
            staged.append(_sample(layer, root, prescription, scale, generator))
            rows[layer] = _row(layer, prescription, root)
        assign_filters_(chosen, staged)
    return InitReport(tuple(rows.get(layer) or _skipped_row(layer, skipped[layer]) for layer in layers))


def _skipped(
    layers: list[DepthwiseLayer], filter_fn: LayerFilter | None, min_kernel_size: int
) -> dict[DepthwiseLayer, str]:
    """Return the layers to leave alone, each with the reason."""
    skipped = {}
    for layer in layers:
        if max(layer.kernel_size) < min_kernel_size:
            skipped[layer] = f"{show_size(layer.kernel_size)} is under min_kernel_size={min_kernel_size}"
        elif filter_fn is not None and not filter_fn(layer):
            skipped[layer] = "not chosen by filter_fn"
    return skipped


def _prescriber(source: Source, count: int) -> Callable[[DepthwiseLayer], Prescription]:
    """Turn any source into a function of the layer."""
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
        return lambda layer: _matching(statistics.at(layer.depth), layer)
    if callable(source):
        return source
    raise SourceError(
        "init_: needed a preset name, a schedule, FilterStatistics or a function of the layer as source, got "
        f"{type(source).__name__}"
    )


def _matching(statistics: LayerStatistics, layer: DepthwiseLayer) -> LayerStatistics:
    if statistics.kernel_size != layer.kernel_size:
        square = len(layer.kernel_size) == 2 and len(set(layer.kernel_size)) == 1
        size = layer.kernel_size[0] if square else layer.kernel_size
        raise SourceError(
            f"{layer.name}: {show_size(layer.kernel_size)} filters, but the statistics at depth {layer.depth:.3g} are "
            f"of {show_size(statistics.kernel_size)} filters; resize them first with "
            f"statistics.resize(kernel_size={size}), or where kernel sizes differ from layer to layer pass "
            "lambda layer: statistics.at(layer.depth, layer.kernel_size) as source"
        )
    return statistics


def _with_roots(
    layers: list[DepthwiseLayer], prescriptions: list[Prescription], negative: Negative
) -> Iterator[tuple[DepthwiseLayer, Prescription, Root]]:
    """Yield each layer with its prescription and its root; layers of one kernel size and σ share a root."""
    wanted = Counter(
        (layer.kernel_size, p) for layer, p in zip(layers, prescriptions, strict=True) if isinstance(p, int | float)
    )
    sizes = {size for size, _ in wanted}
    closed = {size: gaussian_roots(size, [s for k, s in wanted if k == size], negative=negative) for size in sizes}
    held: dict[tuple[tuple[int, ...], float], Root] = {}
    for layer, prescription in zip(layers, prescriptions, strict=True):
        try:
            if isinstance(prescription, int | float):
                key = (layer.kernel_size, prescription)
                root = held[key] if key in held else held.setdefault(key, next(closed[layer.kernel_size]))
                wanted[key] -= 1
                if not wanted[key]:
                    del held[key]
            else:
                cov = prescription.covariance if isinstance(prescription, LayerStatistics) else prescription
                root = covariance_root(cov, layer.kernel_size, negative=negative)
        except CovarianceError as error:
            raise CovarianceError(f"{layer.name}: {error}") from None
        yield layer, prescription, root


def _sample(
    layer: DepthwiseLayer,
    root: Root,
    prescription: Prescription,
    scale: Scale,
    generator: torch.Generator | None,
) -> Tensor:
    """Return new filters for a layer, in its weight's type, without touching it."""
    mean = prescription.mean if isinstance(prescription, LayerStatistics) else None
    if mean is None and not root.matrix.any():
        raise CovarianceError(
            f"{layer.name}: needed a covariance that is not all zero, or every filter would be zero; use a larger σ"
        )
    weight = layer.weight
    if scale == "match":
        filters = sample_filters(root, weight.shape[0], mean=mean, generator=generator)
        return (filters * _matching_factor(layer, filters)).to(weight.dtype)
    return sample_filters(
        root, weight.shape[0], mean=mean, generator=generator, dtype=weight.dtype, scale=1.0 if scale is None else scale
    )


def _matching_factor(layer: DepthwiseLayer, filters: Tensor) -> float:
    before = float(layer.weight.detach().double().var(correction=0))
    after = float(filters.var(correction=0))
    if not (np.isfinite(before) and before > 0 and after > 0):
        raise ModelError(
            f"{layer.name}: scale='match' needs weights and filters with a finite, positive variance, got {before:.3g} "
            f"and {after:.3g}"
        )
    return float(np.sqrt(before / after))


def _row(layer: DepthwiseLayer, prescription: Prescription, root: Root) -> InitRow:
    sigma = float(prescription) if isinstance(prescription, int | float) else None
    source_layer = None
    if sigma is None:
        source_layer = prescription.name if isinstance(prescription, LayerStatistics) else "given covariance"
    return InitRow(
        name=layer.name,
        kernel_size=layer.kernel_size,
        channels=layer.module.out_channels,
        depth=layer.depth,
        initialised=True,
        sigma=sigma,
        source_layer=source_layer,
        negative_mass=root.negative_mass,
    )


def _skipped_row(layer: DepthwiseLayer, reason: str) -> InitRow:
    return InitRow(layer.name, layer.kernel_size, layer.module.out_channels, layer.depth, False, reason)


def _check_scale(scale: Scale) -> None:
    number = isinstance(scale, int | float) and np.isfinite(scale) and scale > 0
    if not (scale is None or scale == "match" or number):
        raise SourceError(f"scale: needed None, 'match' or a positive number, got {scale!r}")
