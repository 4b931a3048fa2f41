"""Initialise the depthwise filters of any model: the paper's method in one call."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from filtercov.covariance.layer_statistics import LayerStatistics
from filtercov.covariance.numbers import as_float
from filtercov.covariance.root import Negative, Root, check_negative
from filtercov.errors import CovarianceError, ModelError, SourceError
from filtercov.filters.assign import assign_filters_, changed_with, first_shared
from filtercov.filters.sample import (
    as_array,
    check_drawing,
    check_generator,
    check_held,
    check_mean,
    check_weight,
    drawing,
    rounded,
    sample_filters,
)
from filtercov.layers.find import DepthwiseLayer, LayerFilter, depthwise_layers
from filtercov.prescription.choice import choose, initialised_row, make_report, nothing_chosen, with_roots
from filtercov.prescription.init_report import InitReport
from filtercov.prescription.prescriber import NEEDED, STATISTICS, Prescription, Source
from filtercov.schedule.schedules import PRESETS
from filtercov.statistics import references
from filtercov.statistics.filter_statistics import FilterStatistics

Scale = Literal["match"] | float | None


def init_(
    model: nn.Module,
    source: Source[DepthwiseLayer] = "imagenet-thawed",
    *,
    filter_fn: LayerFilter | None = None,
    min_kernel_size: int | None = None,
    scale: Scale = None,
    negative: Negative = "clip",
    generator: torch.Generator | None = None,
    seed: int | None = None,
    example_input: Any = None,
) -> InitReport:
    """Initialise the filters of every depthwise convolution in `model`, in place, and report what was done.

    `source` is one of

    * a preset's name, see `PRESETS`, or a schedule: the closed form, with σ by depth;
    * `FilterStatistics` of a trained model: filters are drawn from its layers' means and covariances, interpolated over
      depth where the models differ in it;
    * `"stats:NAME"`, one of the statistics that ship with filtercov, see `REFERENCES`, or `"stats:FILE"`, resized to
      the network's filters where their sizes differ;
    * a function of the layer that returns a covariance (n, n), a σ for the closed form, a `ClosedForm` with a σ per
      axis or a centre off the middle, or `LayerStatistics`.

    Layers are left alone if `filter_fn(layer)` is false, or if their kernel's longest side is under
    `min_kernel_size`. By default that is 5 for layers that would get the closed form, whichever kind of source says so,
    because the paper found it no help to 3×3 filters, and nothing for covariances and statistics, which help them too.
    Layers left alone count for depth all the same. Where none would be initialised, `NothingChosenError` is raised.

    `scale="match"` keeps the variance that each layer's weights had, for networks without normalisation after the
    convolution; a number multiplies the filters. `negative` says what becomes of negative eigenvalues, see
    `symmetric_root`. Random numbers are of `generator`, one on the CPU, or of a new one with `seed`, by default of
    torch's global one; a seed gives the same filters whatever torch's default type and device. `example_input` traces
    the order in which layers run, see `depthwise_layers`.

    Where little of resized statistics is left, where σ leaves most of a large kernel empty, or where a fitted schedule
    does not fit, the report has a note and a `FiltercovWarning` is given.

    All chosen layers are changed or, on any error, none.

    >>> net = nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 16, 7, groups=16))
    >>> print(init_(net, "cifar-p2", seed=0))
    layer  kernel  channels  depth  source   negative  outcome
    0         3x3        16  0.000  -               -  skipped: 3x3 is under min_kernel_size=5
    1         7x7        16  1.000  σ = 1.9     2.75%  initialised
    1 of 2 depthwise layers initialised
    """
    check_negative(negative)
    generator = check_generator(generator, seed)
    check_drawing("init_")
    scale = _check_scale(scale)
    source = _read_statistics(source)
    layers = depthwise_layers(model, example_input)
    skipped, prescribed = choose(
        layers, source, filter_fn=filter_fn, min_kernel_size=min_kernel_size, as_array=as_array
    )
    for layer in prescribed:
        check_weight(layer.weight, layer.name)
    left_out = list(skipped)
    for layer, other in first_shared(list(prescribed)).items():
        skipped[layer] = f"shares its weight with {other.name}"
        del prescribed[layer]
    if not prescribed:
        raise nothing_chosen(layers, skipped)
    for layer, other in changed_with(list(prescribed), left_out).items():
        skipped[layer] += f", but shares its weight with {other.name}, which was initialised"

    rows, staged = {}, []
    with drawing():
        for layer, prescription, root in with_roots(prescribed, negative):
            staged.append(_sample(layer, root, prescription, scale, generator))
            rows[layer] = initialised_row(layer, prescription, root)
        report = make_report(layers, source, rows, skipped, stacklevel=2)  # a warning may be an error
        assign_filters_(list(prescribed), staged)
    return report


def _read_statistics(source: Source[DepthwiseLayer]) -> Source[DepthwiseLayer]:
    """Return the function of the layer that `stats:` and a file or a reference's name stand for, or else the source."""
    if isinstance(source, nn.Module):  # it is a function, but not of a layer
        raise SourceError(
            f"init_: {NEEDED}, got a model, {type(source).__name__}; measure it first with "
            "FilterStatistics.from_model(source), or take its very filters with copy_filters_(model, source)"
        )
    if not isinstance(source, str):
        return source
    if source not in PRESETS and source in references.REFERENCES:
        raise SourceError(f"init_: {source!r} is the name of statistics; write '{STATISTICS}{source}'")
    if not source.startswith(STATISTICS):
        return source
    statistics = FilterStatistics.load(references.find(source.removeprefix(STATISTICS)))
    return lambda layer: statistics.at(layer.depth, layer.kernel_size)


def _sample(
    layer: DepthwiseLayer,
    root: Root,
    prescription: Prescription,
    scale: Scale,
    generator: torch.Generator | None,
) -> Tensor:
    """Return new filters for a layer, in its weight's type, without touching it."""
    weight, mean = layer.weight, None
    if isinstance(prescription, LayerStatistics):
        try:
            mean = check_mean(prescription.mean, layer.kernel_size)
        except CovarianceError as error:
            raise CovarianceError(f"{layer.name}: {error}") from None
    if scale == "match":
        exact = sample_filters(root, len(weight), mean=mean, generator=generator)
        filters = rounded((exact * _matching_factor(layer, exact)).numpy(), weight.dtype)
    else:
        factor = 1.0 if scale is None else scale
        filters = sample_filters(root, len(weight), mean=mean, generator=generator, dtype=weight.dtype, scale=factor)
    if not filters[0].any() and not filters.any():  # the first filter nearly always tells
        raise CovarianceError(
            f"{layer.name}: needed a covariance that is not all zero, or too small for {weight.dtype}, or every filter "
            "would be zero; use a larger σ or scale"
        )
    try:
        check_held(filters)
    except CovarianceError as error:
        raise CovarianceError(f"{layer.name}: {error}; use a smaller σ or scale") from None
    return filters


def _matching_factor(layer: DepthwiseLayer, filters: Tensor) -> float:
    before = float(layer.weight.detach().cpu().double().contiguous().var(correction=0))
    after = float(filters.var(correction=0))
    if not (np.isfinite(before) and before > 0 and after > 0):
        raise ModelError(
            f"{layer.name}: scale='match' needs weights and filters with a finite, positive variance, got {before:.3g} "
            f"and {after:.3g}"
        )
    return float(np.sqrt(before / after))


def _check_scale(scale: Scale) -> Scale:
    if scale is None or (isinstance(scale, str) and scale == "match"):
        return scale
    number = as_float(scale)
    if number is None or not 0 < number < np.inf:
        raise SourceError(f"scale: needed None, 'match' or a positive number, got {scale!r}")
    return number
