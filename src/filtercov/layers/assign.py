"""Give depthwise layers new filters: all of them, or on any failure none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from filtercov.errors import ModelError
from filtercov.layers.find import DepthwiseLayer, parametrisation


def assign_filters_(layers: Sequence[DepthwiseLayer], filters: list[Tensor]) -> None:
    """Write `filters` (channels, *kernel_size) into the weights of `layers`, keeping dtype, device and memory layout.

    Weights that a parametrisation computes are refused. `filters` is emptied on the way, so that new and old values
    never lie in memory three times over.
    """
    for layer in layers:
        if parametrisation(layer.module) is not None:
            raise ModelError(
                f"{layer.name}: needed a plain weight, got one that a parametrisation computes; remove it first with "
                "torch.nn.utils.parametrize.remove_parametrizations, or leave this layer out with filter_fn"
            )
    saved: list[tuple[Tensor, Tensor]] = []
    filters.reverse()
    with torch.no_grad():
        try:
            for layer in layers:
                weight = layer.weight
                saved.append((weight, weight.detach().clone()))
                weight.copy_(filters.pop().view(weight.shape))
        except BaseException as error:
            for weight, values in reversed(saved):  # of a tensor saved twice the first copy last
                weight.copy_(values)
            if not isinstance(error, Exception):
                raise
            raise ModelError(f"{layer.name}: its filters cannot be set ({error}); nothing was changed") from error


def shared_with(layers: Sequence[DepthwiseLayer]) -> dict[DepthwiseLayer, DepthwiseLayer]:
    """For every layer whose parameters are those of an earlier one, by identity or memory: that earlier layer."""
    owners: dict[object, DepthwiseLayer] = {}
    shared = {}
    for layer in layers:
        for parameter in layer.trainable():
            owner = owners.setdefault(_memory(parameter), layer)
            if owner is not layer:
                shared[layer] = owner
    return shared


def _memory(parameter: Tensor) -> object:
    plain = type(parameter) is nn.Parameter and not parameter.is_meta
    return (parameter.data_ptr(), parameter.shape, parameter.stride()) if plain else id(parameter)
