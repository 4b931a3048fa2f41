"""Change the depthwise filters of a PyTorch model: initialise, copy, freeze. All layers are changed, or none.

`init_` is the paper's method in one call: find the layers, plan what each is drawn from, sample, assign.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from filtercov.covariance.forms import Array, as_array, as_float, as_mean, show_size
from filtercov.covariance.root import Negative, Root, check_negative, covariance_root
from filtercov.errors import FiltercovWarning, ModelError, SourceError, naming
from filtercov.layers.assign import assign_filters_, shared_with
from filtercov.layers.find import DepthwiseLayer, LayerFilter, check_model, depthwise_layers, plain_values
from filtercov.layers.sample import check_filters, check_generator, check_weight, drawing, rounded, sample_filters
from filtercov.plan import NEEDED, STATISTICS, InitPlan, InitReport, Source, row_of
from filtercov.statistics.filter_statistics import find_statistics

Scale = Literal["match"] | float
Model = TypeVar("Model", bound=nn.Module)


def init_(
    model: nn.Module,
    source: Source[DepthwiseLayer] = "imagenet-thawed",
    *,
    filter_fn: LayerFilter | None = None,
    min_kernel_size: int | None = None,
    scale: Scale | None = None,
    negative: Negative = "clip",
    generator: torch.Generator | None = None,
    seed: int | None = None,
    example_input: Any = None,
) -> InitReport:
    """Initialise the filters of every depthwise convolution in `model`, in place, and report what was done.

    `source` is one of

    * a preset's name, see `PRESETS`, or a schedule: the closed form, with σ by depth;
    * `FilterStatistics` of a trained model, or `"stats:NAME"` for shipped ones (see `REFERENCES`), or `"stats:FILE"`:
      filters are drawn from the means and covariances of its layers, interpolated over depth and resized where the
      networks differ;
    * a function of the layer that returns a σ for the closed form, a covariance (n, n), or `LayerStatistics`.

    Layers are left alone if `filter_fn(layer)` is false, or if their kernel's longest side is under
    `min_kernel_size`. The default is 5 for the closed form, which the paper found no help to 3×3 filters, and 1 for
    covariances and statistics, which help them too. Layers left alone count for depth all the same. Initialising no
    layer is an error.

    `scale="match"` keeps the variance of each layer's weights, for networks without normalisation after the
    convolution; a number multiplies the filters. `negative` says how to treat negative eigenvalues, see
    `symmetric_root`. Random numbers come from `generator`, from a new one with `seed`, or from torch's global one; a
    seed gives the same filters whatever torch's defaults, threads and devices. `example_input` traces the order in
    which layers run, see `depthwise_layers`.

    The report notes, and a `FiltercovWarning` warns, where little of resized statistics is left, where σ leaves most of
    a large kernel empty, and where a fitted schedule does not fit.

    >>> net = nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 16, 7, groups=16))
    >>> print(init_(net, "cifar-p2", seed=0))
    layer  kernel  channels  depth  source   negative  outcome
    0         3x3        16  0.000  -               -  skipped: 3x3 is under min_kernel_size=5
    1         7x7        16  1.000  σ = 1.9     2.75%  initialised
    1 of 2 depthwise layers initialised; negative: the share of a covariance's spectrum below zero
    """
    generator, scale = check_generator(generator, seed), _check_scale(scale)
    plan = InitPlan(
        depthwise_layers(model, example_input),
        _read_statistics(source),
        filter_fn=filter_fn,
        min_kernel_size=min_kernel_size,
        negative=negative,
    )
    for layer in plan.chosen:
        check_weight(layer.weight, layer.name)
    for layer, owner in shared_with(list(plan.chosen)).items():
        plan.skip(layer, f"shares its weight with {owner.name}")
    with drawing():
        drawn, report = plan.draw(partial(_sample, scale=scale, generator=generator))
        assign_filters_(list(plan.chosen), drawn)
    return report


def covariance_normal_(
    weight: Tensor,
    cov: ArrayLike | Tensor,
    mean: ArrayLike | Tensor | None = None,
    *,
    negative: Negative = "clip",
    generator: torch.Generator | None = None,
    seed: int | None = None,
) -> Tensor:
    """Fill `weight` (channels, 1, *kernel_size) with filters from N(mean, cov), in place, and return it.

    `cov` is (n, n) in flat form and `mean` (n,), n being the number of pixels of a filter; the mean is zero if not
    given. `negative`, `generator` and `seed` are as in `init_`.

    >>> from filtercov.covariance import gaussian_covariance
    >>> weight = torch.empty(256, 1, 9, 9)
    >>> _ = covariance_normal_(weight, gaussian_covariance(9, 1.5), seed=0)
    >>> bool(weight[:, 0, 4, 4].std() > 3 * weight[:, 0, 0, 0].std())  # most variance is at the centre
    True
    """
    generator = check_generator(generator, seed)
    kernel_size = check_weight(weight, "covariance_normal_")
    with drawing(), naming("covariance_normal_"):
        centre = None if mean is None else as_mean(mean, kernel_size)
        check_negative(negative)
        root = covariance_root(as_array(cov, "covariance"), kernel_size, negative=negative)
        count = weight.shape[0] * weight.shape[1]
        filters = sample_filters(root, count, mean=centre, generator=generator, dtype=weight.dtype)
        if root.matrix.any() or centre is not None:  # a zero covariance asks for zero filters
            check_filters(filters)
        return weight.copy_(filters.view(weight.shape))


def copy_filters_(target_model: nn.Module, source_model: nn.Module) -> InitReport:
    """Copy the depthwise filters of `source_model` into `target_model`, in place, and report which went where.

    Layers are matched by relative depth: one to one where both models have as many, otherwise each layer of the target
    takes the nearest of the source. Kernel sizes and channel counts must agree.

    >>> source, target = (nn.Sequential(nn.Conv2d(8, 8, 5, groups=8)) for _ in range(2))
    >>> copy_filters_(target, source)[0].source_layer
    '0'
    """
    check_model(source_model, "source_model")
    return copy_weights_(target_model, [(source.name, source.weight) for source in depthwise_layers(source_model)])


def copy_weights_(model: nn.Module, weights: Sequence[tuple[str, Tensor]]) -> InitReport:
    """Copy named depthwise weights (channels, 1, *kernel_size), in forward order, into a model as `copy_filters_`."""
    layers = depthwise_layers(model)
    # Halfway between two sources, the deeper one.
    matched = {layer: weights[math.floor(layer.depth * (len(weights) - 1) + 0.5)] for layer in layers}
    shared = shared_with(layers)
    chosen = [layer for layer in layers if layer not in shared]
    with drawing():
        assign_filters_(chosen, [_fitting_copy(layer, *matched[layer]) for layer in chosen])
    rows = []
    for layer in layers:
        reason = f"shares its weight with {shared[layer].name}" if layer in shared else ""
        rows.append(row_of(layer, initialised=not reason, reason=reason, source_layer=matched[layer][0]))
    return InitReport(tuple(rows))


def freeze_(model: Model, report: InitReport | None = None, *, filter_fn: LayerFilter | None = None) -> Model:
    """Stop training the filters of depthwise convolutions; biases and all other parameters keep training.

    `report`, what `init_` or `copy_filters_` returned, chooses the layers they changed; without one every depthwise
    layer is chosen. `filter_fn(layer)` chooses among these. Choosing none is an error. Freezing what the preset
    `imagenet-thawed` drew gives a `FiltercovWarning`: the paper froze filters of `imagenet-frozen`.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 7, groups=8))
    >>> report = init_(net, "imagenet-frozen")  # the closed form is not for 3×3 filters
    >>> [layer.weight.requires_grad for layer in freeze_(net, report)]
    [True, False]
    >>> freeze_(net)[0].weight.requires_grad, net[0].bias.requires_grad
    (False, True)
    """
    if isinstance(report, InitReport) and report.preset == "imagenet-thawed":
        note = "freeze_: 'imagenet-thawed' is for filters that train; the paper froze those of 'imagenet-frozen'"
        warnings.warn(note, FiltercovWarning, stacklevel=2)
    _set_training(model, report, filter_fn, trains=False, who="freeze_")
    return model


def thaw_(model: Model, report: InitReport | None = None, *, filter_fn: LayerFilter | None = None) -> Model:
    """Train the filters of depthwise convolutions again: the reverse of `freeze_`, with the same choice of layers.

    >>> thaw_(freeze_(nn.Conv2d(8, 8, 7, groups=8))).weight.requires_grad
    True
    """
    _set_training(model, report, filter_fn, trains=True, who="thaw_")
    return model


def _set_training(
    model: nn.Module, report: InitReport | None, filter_fn: LayerFilter | None, *, trains: bool, who: str
) -> None:
    layers = depthwise_layers(model)
    offered = layers if report is None else _reported(layers, report, who)
    chosen = [layer for layer in offered if filter_fn is None or filter_fn(layer)]
    if not chosen:
        raise ModelError(
            f"{who}: needed a layer to change, got none of {len(layers)} depthwise ones; choose some of them, with "
            f"names such as {layers[0].name!r}"
        )
    for parameter in [parameter for layer in chosen for parameter in layer.trainable()]:  # which may refuse, first
        parameter.requires_grad_(trains)


def _reported(layers: list[DepthwiseLayer], report: InitReport, who: str) -> list[DepthwiseLayer]:
    """The layers that a report says were changed."""
    if not isinstance(report, InitReport):
        raise ModelError(
            f"{who}: needed the report that init_ or copy_filters_ returned, got {type(report).__name__}; to choose "
            "layers by a function pass filter_fn="
        )
    if [(row.name, row.kernel_size) for row in report] != [(layer.name, layer.kernel_size) for layer in layers]:
        raise ModelError(f"{who}: the report has other layers than this model; pass the report of this very model")
    return [layer for layer, row in zip(layers, report, strict=True) if row.initialised]


def _read_statistics(source: Source[DepthwiseLayer]) -> Source[DepthwiseLayer]:
    """Load the statistics that `stats:NAME` or `stats:FILE` names; other sources are returned as they are."""
    if isinstance(source, nn.Module):  # callable, but not a function of a layer
        raise SourceError(
            f"init_: {NEEDED}, got a model, {type(source).__name__}; measure it first with "
            "FilterStatistics.from_model(source), or take its very filters with copy_filters_(model, source)"
        )
    if isinstance(source, str) and source.startswith(STATISTICS):
        return find_statistics(source.removeprefix(STATISTICS))
    return source


def _sample(
    layer: DepthwiseLayer, root: Root, mean: Array | None, *, scale: Scale, generator: torch.Generator | None
) -> Tensor:
    """Draw new filters for a layer, in its weight's type, without touching it."""
    weight = layer.weight
    if scale == "match":
        exact = sample_filters(root, len(weight), mean=mean, generator=generator)
        filters = rounded((exact * _matching_factor(weight, exact)).numpy(), weight.dtype)
    else:
        filters = sample_filters(root, len(weight), mean=mean, generator=generator, dtype=weight.dtype, scale=scale)
    check_filters(filters)
    return filters


def _matching_factor(weight: Tensor, filters: Tensor) -> float:
    before = float(weight.detach().cpu().double().contiguous().var(correction=0))
    after = float(filters.var(correction=0))
    if not (math.isfinite(before) and before > 0 and after > 0):
        raise ModelError(
            f"scale='match' needs finite, positive variances, got {before:.3g} before and {after:.3g} after"
        )
    return math.sqrt(before / after)


def _check_scale(scale: Scale | None) -> Scale:
    if isinstance(scale, str) and scale == "match":
        return scale
    number = 1.0 if scale is None else as_float(scale)
    if number is None or not 0 < number < math.inf:
        raise SourceError(f"scale: needed None, 'match' or a positive number, got {scale!r}")
    return number


def _fitting_copy(target: DepthwiseLayer, name: str, source: Tensor) -> Tensor:
    """Copy a source's filters for a layer, rounded once if the layer's type is narrower."""
    size, dtype = check_weight(target.weight, target.name), target.weight.dtype
    check_weight(source, name)
    if target.weight.shape != source.shape:
        raise ModelError(
            f"{target.name} has {target.channels} filters of {show_size(size)}, but {name} of the source has "
            f"{len(source)} of {show_size(tuple(source.shape[2:]))}; to transfer between widths or kernel sizes use "
            "init_(model, FilterStatistics.from_model(source_model))"
        )
    return rounded(plain_values(source, name).numpy(), dtype)
