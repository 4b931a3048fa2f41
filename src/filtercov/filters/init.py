"""Initialise the depthwise filters of any model: the paper's method in one call."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from filtercov.covariance.forms import show_size
from filtercov.covariance.root import Negative, Root, check_negative, covariance_root, gaussian_roots
from filtercov.covariance.scalar import as_float
from filtercov.depthwise.model import DepthwiseLayer, LayerFilter, depthwise_layers
from filtercov.errors import CovarianceError, ModelError, NothingChosenError, SourceError
from filtercov.filters.assign import assign_filters_, first_shared
from filtercov.filters.init_report import InitReport, InitRow
from filtercov.filters.prescription import Prescription, Source, prescriber
from filtercov.filters.rounding import rounded
from filtercov.filters.sample import check_drawing, check_generator, check_mean, check_weight, drawing, sample_filters
from filtercov.statistics.filter_statistics import LayerStatistics

Scale = Literal["match"] | float | None

# The paper found the closed form no help to 3×3 filters; transfer helps them too.
LEAST_KERNEL_OF_CLOSED_FORM = 5

NOT_CHOSEN = "not chosen by filter_fn"


def init_(
    model: nn.Module,
    source: Source = "imagenet-thawed",
    *,
    filter_fn: LayerFilter | None = None,
    min_kernel_size: int | None = None,
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
    `min_kernel_size`. By default that is 5 for layers that would get the closed form, whichever kind of source says so,
    because the paper found it no help to 3×3 filters, and nothing for covariances and statistics, which help them too.
    Layers left alone count for depth all the same. Where none would be initialised, `NothingChosenError` is raised.

    `scale="match"` keeps the variance that each layer's weights had, for networks without normalisation after the
    convolution; a number multiplies the filters. `negative` says what becomes of negative eigenvalues, see
    `symmetric_root`. `generator` is one on the CPU, by default torch's global one; a seed gives the same filters
    whatever torch's default type and device. `example_input` traces the order in which layers run, see
    `depthwise_layers`.

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
    check_drawing("init_")
    scale = _check_scale(scale)
    layers = depthwise_layers(model, example_input)
    skipped, prescribed = _choose(layers, source, filter_fn, min_kernel_size)
    for layer in prescribed:
        check_weight(layer.weight, layer.name)
    for layer, other in first_shared(list(prescribed)).items():
        skipped[layer] = f"shares its weight with {other.name}"
        del prescribed[layer]
    if not prescribed:
        raise NothingChosenError(*_nothing(layers, skipped))

    rows, staged = {}, []
    with drawing():
        for layer, prescription, root in _with_roots(prescribed, negative):
            staged.append(_sample(layer, root, prescription, scale, generator))
            rows[layer] = _row(layer, prescription, root)
        assign_filters_(list(prescribed), staged)
    return InitReport(tuple(rows.get(layer) or _skipped_row(layer, skipped[layer]) for layer in layers))


def _choose(
    layers: list[DepthwiseLayer], source: Source, filter_fn: LayerFilter | None, min_kernel_size: int | None
) -> tuple[dict[DepthwiseLayer, str], dict[DepthwiseLayer, Prescription]]:
    """Return the layers to leave alone, each with the reason, and the others, each with what to draw it from."""
    least = 1 if min_kernel_size is None else _check_kernel_size(min_kernel_size)
    prescribe = prescriber(source, len(layers))
    skipped, prescribed = {}, {}
    for layer in layers:
        if filter_fn is not None and not filter_fn(layer):
            skipped[layer] = NOT_CHOSEN
        elif max(layer.kernel_size) < least:
            skipped[layer] = _too_small(layer, least)
        else:
            prescription = prescribe(layer)
            closed_form = isinstance(prescription, float) and min_kernel_size is None
            if closed_form and max(layer.kernel_size) < LEAST_KERNEL_OF_CLOSED_FORM:
                skipped[layer] = _too_small(layer, LEAST_KERNEL_OF_CLOSED_FORM)
            else:
                prescribed[layer] = prescription
    return skipped, prescribed


def _too_small(layer: DepthwiseLayer, least: int) -> str:
    return f"{show_size(layer.kernel_size)} is under min_kernel_size={least}"


def _nothing(layers: list[DepthwiseLayer], skipped: dict[DepthwiseLayer, str]) -> tuple[str, str]:
    """Say why no layer is left to initialise, and what would leave some."""
    reasons = ", ".join(f"{count} × {reason}" for reason, count in Counter(skipped.values()).items())
    small = [max(layer.kernel_size) for layer in layers if skipped[layer] != NOT_CHOSEN]
    if small:
        advice = (
            f"pass min_kernel_size={max(small)} to initialise them all the same, or transfer the FilterStatistics of a "
            "trained model, which the paper finds right for filters as small as these"
        )
    else:
        advice = (
            f"filter_fn is given layers, with names such as {layers[0].name!r}, and returns true for those it chooses"
        )
    return f"init_: needed a layer to initialise, got none of {len(layers)} depthwise ones ({reasons})", advice


def _with_roots(
    prescribed: dict[DepthwiseLayer, Prescription], negative: Negative
) -> Iterator[tuple[DepthwiseLayer, Prescription, Root]]:
    """Yield each layer with its prescription and its root; layers of one kernel size and σ share a root."""
    wanted = Counter((layer.kernel_size, p) for layer, p in prescribed.items() if isinstance(p, float))
    sizes = {size for size, _ in wanted}
    closed = {size: gaussian_roots(size, [s for k, s in wanted if k == size], negative=negative) for size in sizes}
    held: dict[tuple[tuple[int, ...], float], Root] = {}
    for layer, prescription in prescribed.items():
        if isinstance(prescription, float):
            key = (layer.kernel_size, prescription)
            root = held[key] if key in held else held.setdefault(key, next(closed[layer.kernel_size]))
            wanted[key] -= 1
            if not wanted[key]:
                del held[key]
        else:
            cov = prescription.covariance if isinstance(prescription, LayerStatistics) else prescription
            try:
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


def _row(layer: DepthwiseLayer, prescription: Prescription, root: Root) -> InitRow:
    sigma = prescription if isinstance(prescription, float) else None
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


def _check_scale(scale: Scale) -> Scale:
    if scale is None or (isinstance(scale, str) and scale == "match"):
        return scale
    number = as_float(scale)
    if number is None or not 0 < number < np.inf:
        raise SourceError(f"scale: needed None, 'match' or a positive number, got {scale!r}")
    return number


def _check_kernel_size(min_kernel_size: int) -> int:
    try:
        return operator.index(min_kernel_size)
    except TypeError:
        raise SourceError(f"min_kernel_size: needed a whole number or None, got {min_kernel_size!r}") from None
