"""Keep depthwise filters as they are initialised, or let them train; nothing else of the model is touched."""

from __future__ import annotations

import warnings
from typing import TypeVar

import torch
from torch import nn

from filtercov.errors import FiltercovWarning, ModelError, NothingChosenError
from filtercov.layers.find import DepthwiseLayer, LayerFilter, depthwise_layers
from filtercov.prescription.choice import check_filter_fn
from filtercov.prescription.init_report import InitReport

Model = TypeVar("Model", bound=nn.Module)


def freeze_(model: Model, report: InitReport | None = None, *, filter_fn: LayerFilter | None = None) -> Model:
    """Stop training the filters of depthwise convolutions; biases and all other parameters keep training.

    `report`, what `init_` or `copy_filters_` returned, chooses the layers they changed; without one every depthwise
    layer is chosen, also those that were left alone. `filter_fn(layer)` chooses among these. Where that leaves none,
    `NothingChosenError` is raised; of a layer that it leaves out, but that shares a weight with one it does not, a
    `FiltercovWarning` is given.

    >>> net = freeze_(nn.Conv2d(8, 8, 7, groups=8))
    >>> net.weight.requires_grad, net.bias.requires_grad
    (False, True)

    >>> from filtercov import init_
    >>> net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 7, groups=8))
    >>> [layer.weight.requires_grad for layer in freeze_(net, init_(net))]  # the closed form is not for 3×3 filters
    [True, False]
    """
    return _train_filters_(model, False, report, filter_fn)


def thaw_(model: Model, report: InitReport | None = None, *, filter_fn: LayerFilter | None = None) -> Model:
    """Train the filters of depthwise convolutions again: the reverse of `freeze_`, with the same choice of layers.

    >>> thaw_(freeze_(nn.Conv2d(8, 8, 7, groups=8))).weight.requires_grad
    True
    """
    return _train_filters_(model, True, report, filter_fn)


def _train_filters_(model: Model, train: bool, report: InitReport | None, filter_fn: LayerFilter | None) -> Model:
    who, done = ("thaw_", "thawed") if train else ("freeze_", "frozen")
    check_filter_fn(filter_fn, who)
    layers = depthwise_layers(model)
    offered = layers if report is None else _reported(layers, report, who)
    chosen = offered if filter_fn is None else [layer for layer in offered if filter_fn(layer)]
    if not chosen:
        by = " and ".join(["report"] * (report is not None) + ["filter_fn"] * (filter_fn is not None))
        raise NothingChosenError(
            f"{who}: needed a layer to be {done}, got none of {len(layers)} depthwise ones from {by}",
            f"choose some of them, with names such as {layers[0].name!r}",
        )
    parameters = [(layer, parameter) for layer in chosen for parameter in layer.trainable()]
    if train:
        for layer, parameter in parameters:
            _check_trains(layer, parameter, who)
    owners = {id(parameter): layer for layer, parameter in parameters}
    for layer in offered:
        owner = owners.get(id(layer.module._parameters.get("weight")), layer)
        if layer not in chosen and owner is not layer:
            message = f"{who}: {layer.name} is {done} too, for it shares its weight with {owner.name}"
            warnings.warn(message, FiltercovWarning, stacklevel=3)
    for _, parameter in parameters:
        parameter.requires_grad_(train)
    return model


def _check_trains(layer: DepthwiseLayer, parameter: nn.Parameter, who: str) -> None:
    """Raise for a parameter that cannot have gradients."""
    if not (parameter.is_floating_point() or parameter.is_complex()):
        came, advice = f"one of {parameter.dtype}", "dequantise or convert it first"
    elif parameter.is_inference() and not torch.is_inference_mode_enabled():
        came, advice = "one made in torch.inference_mode()", "make the model outside of it"
    else:
        return
    raise ModelError(
        f"{who}: {layer.name}: needed a weight that can have gradients, got {came}; {advice}, or leave this layer out "
        "with filter_fn"
    )


def _reported(layers: list[DepthwiseLayer], report: InitReport, who: str) -> list[DepthwiseLayer]:
    """Return the layers that a report says were changed."""
    if not isinstance(report, InitReport):
        raise ModelError(
            f"{who}: needed the report that init_ or copy_filters_ returned, got {type(report).__name__}; to choose "
            "layers by a function pass filter_fn="
        )
    by_name = {layer.name: layer for layer in layers}
    for row in report:
        if row.name not in by_name or by_name[row.name].kernel_size != row.kernel_size:
            raise ModelError(
                f"{who}: the report has a layer {row.name!r} with {row.kernel_size} filters, which this model has not; "
                "pass the report of this very model"
            )
    return [by_name[row.name] for row in report.initialised]
