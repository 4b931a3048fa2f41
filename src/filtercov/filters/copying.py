"""Direct transfer: give a model the very filters of another one, the paper's strongest baseline, or what fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from filtercov.covariance.forms import show_size
from filtercov.errors import ModelError, NothingChosenError
from filtercov.filters.adapting import Shape, enlarged, first_of_each_stage, selected
from filtercov.filters.assign import assign_filters_, first_shared
from filtercov.filters.sample import check_weight, drawing, rounded
from filtercov.layers.find import DepthwiseLayer, check_model, depthwise_layers, plain_values
from filtercov.prescription.init_report import InitReport, InitRow

Source = TypeVar("Source")
_Pair = tuple[DepthwiseLayer, str, Tensor]  # a layer, and the name and weight of its source


def copy_filters_(target_model: nn.Module, source_model: nn.Module) -> InitReport:
    """Copy the depthwise filters of `source_model` into `target_model`, in place, and report which went where.

    Layers are matched by relative depth: one to one where both models have as many, otherwise each layer of the target
    takes the nearest of the source. Kernel sizes and channel counts must agree. All layers are changed or none.

    >>> source, target = (nn.Sequential(nn.Conv2d(8, 8, 5, groups=8)) for _ in range(2))
    >>> copy_filters_(target, source)[0].source_layer
    '0'
    """
    check_model(source_model, "source_model")
    targets, sources = depthwise_layers(target_model), depthwise_layers(source_model)
    if all(target.module is _nearest(target, sources).module for target in targets):
        raise NothingChosenError(
            "copy_filters_: needed two models, got one as target and as source", "pass the model that has the filters"
        )
    with drawing():
        return copy_weights_(target_model, {source.name: source.weight for source in sources})


def copy_weights_(model: nn.Module, weights: Mapping[str, Tensor]) -> InitReport:
    """Copy depthwise weights (channels, 1, *kernel_size), by name in forward order, into a model as `copy_filters_`."""
    pairs = _by_depth(model, weights)
    for pair in pairs:
        _check_pair(*pair)
    return _write(pairs)


def interpolate_weights_(model: nn.Module, weights: Mapping[str, Tensor]) -> InitReport:
    """Give a model depthwise weights as `copy_weights_` does, each `enlarged` to the model's kernel size."""
    return _write([_adapted(*pair, enlarged) for pair in _by_depth(model, weights)])


def select_weights_(model: nn.Module, weights: Mapping[str, Tensor]) -> InitReport:
    """Give a model filters `selected` from the first layers of each stage of a larger one."""
    targets, sources = depthwise_layers(model), list(weights.items())
    chosen = first_of_each_stage([len(target.weight) for target in targets], [len(weight) for _, weight in sources])
    return _write([_adapted(target, *sources[index], selected) for target, index in zip(targets, chosen, strict=True)])


def _by_depth(model: nn.Module, weights: Mapping[str, Tensor]) -> list[_Pair]:
    sources = list(weights.items())
    return [(target, *_nearest(target, sources)) for target in depthwise_layers(model)]


def _adapted(target: DepthwiseLayer, name: str, source: Tensor, adapt: Callable[[Tensor, Shape], Tensor]) -> _Pair:
    """Return a layer with the name of its source and the source's weight made to fit."""
    check_weight(target.weight, target.name)
    check_weight(source, name)
    try:
        with drawing():
            return target, name, adapt(plain_values(source, name), tuple(target.weight.shape))
    except ModelError as error:
        raise ModelError(f"{target.name}: {error}") from None


def _write(pairs: list[_Pair]) -> InitReport:
    """Write the weights that fit their layers, and report which went where."""
    shared = first_shared([target for target, _, _ in pairs])
    chosen = [pair for pair in pairs if pair[0] not in shared]
    with drawing():
        assign_filters_([target for target, _, _ in chosen], [_filters(*pair) for pair in chosen])
    return InitReport(
        tuple(
            InitRow(
                name=target.name,
                kernel_size=target.kernel_size,
                channels=len(target.weight),
                depth=target.depth,
                initialised=target not in shared,
                reason=f"shares its weight with {shared[target].name}" if target in shared else "",
                source_layer=name,
            )
            for target, name, _ in pairs
        )
    )


def _nearest(target: DepthwiseLayer, sources: Sequence[Source]) -> Source:
    """Return the source at the relative depth of a layer, or the deeper of the two around it where it is halfway."""
    return sources[math.floor(target.depth * (len(sources) - 1) + 0.5)]


def _filters(target: DepthwiseLayer, name: str, source: Tensor) -> Tensor:
    """Return a copy of the source's filters, rounded once if the target's type is narrower."""
    weight = source.detach()
    _check_held(target, name, weight)
    if weight.dtype == torch.float64 and target.weight.dtype != torch.float64:
        return rounded(plain_values(weight, name).numpy(), target.weight.dtype)
    return weight.clone()


def _check_held(target: DepthwiseLayer, name: str, source: Tensor) -> None:
    """Raise if a finite number of the source is too large for the target's type."""
    dtype = target.weight.dtype
    most = torch.finfo(dtype).max
    if most >= torch.finfo(source.dtype).max:
        return
    largest = plain_values(source, name).abs().max()
    if largest.isfinite() and not largest.to(dtype).double().isfinite():
        raise ModelError(
            f"{target.name}: needed filters that {dtype} can hold, up to {most:.3g}, got {float(largest):.3g} in "
            f"{name} of the source; convert the model to a wider type first"
        )


def _check_pair(target: DepthwiseLayer, name: str, source: Tensor) -> None:
    check_weight(target.weight, target.name)
    check_weight(source, name)
    if target.weight.shape == source.shape:
        return
    raise ModelError(
        f"copy_filters_: {target.name} has {len(target.weight)} filters of {show_size(target.kernel_size)}, but "
        f"{name} of the source has {len(source)} of {show_size(tuple(source.shape[2:]))}; to transfer between widths "
        "or kernel sizes use init_(model, FilterStatistics.from_model(source_model).resize(kernel_size=...))"
    )
