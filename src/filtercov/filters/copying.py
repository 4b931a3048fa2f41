"""Direct transfer: give a model the very filters of another one, the paper's strongest baseline."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from filtercov.covariance.forms import show_size
from filtercov.depthwise.model import DepthwiseLayer, depthwise_layers
from filtercov.depthwise.weight import plain_values
from filtercov.errors import ModelError, NothingChosenError
from filtercov.filters.assign import assign_filters_, first_shared
from filtercov.filters.rounding import rounded
from filtercov.filters.sample import check_weight, drawing
from filtercov.schedule.init_report import InitReport, InitRow


def copy_filters_(target_model: nn.Module, source_model: nn.Module) -> InitReport:
    """Copy the depthwise filters of `source_model` into `target_model`, in place, and report which went where.

    Layers are matched by relative depth: one to one where both models have as many, otherwise each layer of the target
    takes the nearest of the source. Kernel sizes and channel counts must agree. All layers are changed or none.

    >>> source, target = (nn.Sequential(nn.Conv2d(8, 8, 5, groups=8)) for _ in range(2))
    >>> copy_filters_(target, source)[0].source_layer
    '0'
    """
    targets, sources = depthwise_layers(target_model), depthwise_layers(source_model)
    pairs = [(target, sources[math.floor(target.depth * (len(sources) - 1) + 0.5)]) for target in targets]
    for target, source in pairs:
        _check_pair(target, source)
    if all(target.module is source.module for target, source in pairs):
        raise NothingChosenError(
            "copy_filters_: needed two models, got one as target and as source", "pass the model that has the filters"
        )
    shared = first_shared(targets)
    chosen = [(target, source) for target, source in pairs if target not in shared]
    with drawing():
        assign_filters_([target for target, _ in chosen], [_filters(target, source) for target, source in chosen])
    return InitReport(
        tuple(
            InitRow(
                name=target.name,
                kernel_size=target.kernel_size,
                channels=len(target.weight),
                depth=target.depth,
                initialised=target not in shared,
                reason=f"shares its weight with {shared[target].name}" if target in shared else "",
                source_layer=source.name,
            )
            for target, source in pairs
        )
    )


def _filters(target: DepthwiseLayer, source: DepthwiseLayer) -> Tensor:
    """Return a copy of the source's filters, rounded once if the target's type is narrower."""
    weight = source.weight.detach()
    if weight.dtype == torch.float64 and target.weight.dtype != torch.float64:
        return rounded(plain_values(weight, source.name).numpy(), target.weight.dtype)
    return weight.clone()


def _check_pair(target: DepthwiseLayer, source: DepthwiseLayer) -> None:
    check_weight(target.weight, target.name)
    check_weight(source.weight, source.name)
    if target.weight.shape == source.weight.shape:
        return
    raise ModelError(
        f"copy_filters_: {target.name} has {len(target.weight)} filters of {show_size(target.kernel_size)}, but "
        f"{source.name} of the source has {len(source.weight)} of {show_size(source.kernel_size)}; to transfer between "
        "widths or kernel sizes use init_(model, FilterStatistics.from_model(source_model).resize(kernel_size=...))"
    )
