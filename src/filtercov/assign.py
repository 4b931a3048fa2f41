"""Give depthwise layers new filters: all of them, or on any failure none."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from filtercov.errors import ModelError
from filtercov.layers import DepthwiseLayer


def assign_filters_(layers: list[DepthwiseLayer], filters: list[Tensor]) -> None:
    """Write `filters` (channels, *kernel_size) into the weights of `layers`, keeping dtype, device and memory layout.

    `filters` is emptied on the way, so that new and old values of all layers never lie in memory three times over.
    """
    before: list[tuple[nn.Parameter, Tensor]] = []
    filters.reverse()
    with torch.no_grad():
        for layer in layers:
            try:
                before += [(parameter, parameter.detach().clone()) for parameter in layer.trainable()]
                _assign(layer, filters.pop())
            except Exception as error:
                for parameter, old in before:
                    parameter.copy_(old)
                raise ModelError(f"{layer.name}: its filters cannot be set ({error}); nothing was changed") from error


def first_shared(layers: list[DepthwiseLayer]) -> dict[DepthwiseLayer, DepthwiseLayer]:
    """Return, for every layer whose parameters an earlier one has too, that earlier layer."""
    owners: dict[int, DepthwiseLayer] = {}
    shared = {}
    for layer in layers:
        for parameter in layer.trainable():
            if owners.setdefault(id(parameter), layer) is not layer:
                shared[layer] = owners[id(parameter)]
    return shared


def _assign(layer: DepthwiseLayer, filters: Tensor) -> None:
    weight = layer.weight
    new = filters.view(weight.shape)
    if parametrize.is_parametrized(layer.module, "weight"):
        layer.module.weight = new.to(device=weight.device, dtype=weight.dtype)
    else:
        weight.copy_(new)
