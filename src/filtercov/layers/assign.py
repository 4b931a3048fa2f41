"""Give depthwise layers new filters: all of them, or on any failure none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from filtercov.errors import ModelError
from filtercov.layers.find import DepthwiseLayer, parametrisation, plain_values

# Parametrisations compute a weight from others in a few steps, each of which rounds once.
ROUNDINGS = 32

# A tensor before it was written to: the table and name a module keeps it under, and a copy of its values.
Saved = tuple[dict[str, Any], str, Tensor, Tensor]


def assign_filters_(layers: Sequence[DepthwiseLayer], filters: list[Tensor]) -> None:
    """Write `filters` (channels, *kernel_size) into the weights of `layers`, keeping dtype, device and memory layout.

    A layer whose weight then differs from what was written, as spectral_norm's does, is refused. `filters` is emptied
    on the way, so that new and old values never lie in memory three times over.
    """
    saved: list[Saved] = []
    filters.reverse()
    with torch.no_grad():
        try:
            for layer in layers:
                saved += _save(layer)
                _assign(layer, filters.pop())
        except BaseException as error:
            for table, name, tensor, values in reversed(saved):  # of a tensor saved twice the first copy last
                table[name] = tensor  # a parametrisation may have put another in its place
                tensor.copy_(values)
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
    plain = type(parameter) is nn.Parameter  # other kinds of tensor may have no address
    return (parameter.data_ptr(), parameter.shape, parameter.stride()) if plain else id(parameter)


def _save(layer: DepthwiseLayer) -> list[Saved]:
    """Copy everything that writing the filters may change: the weight, or all that its parametrisation keeps."""
    steps = parametrisation(layer.module)
    if steps is None:
        tables: list[dict[str, Any]] = [{"weight": layer.weight}]
    else:
        tables = [table for step in steps.modules() for table in (step._parameters, step._buffers)]
    return [
        (table, name, tensor, tensor.detach().clone())
        for table in tables
        for name, tensor in table.items()
        if tensor is not None
    ]


def _assign(layer: DepthwiseLayer, filters: Tensor) -> None:
    weight = layer.weight
    new = filters.view(weight.shape).to(device=weight.device, dtype=weight.dtype)
    if parametrisation(layer.module) is None:
        weight.copy_(new)
        return
    layer.module.weight = new
    wanted, got = plain_values(new, layer.name), plain_values(layer.weight, layer.name)
    if not (got - wanted).norm() <= ROUNDINGS * torch.finfo(new.dtype).eps * wanted.norm():
        raise ModelError(
            f"its weight became another than was written, {float(got.norm() / wanted.norm()):.3g} times as large, as "
            "parametrisations like spectral_norm make it; remove the parametrisation first, or leave this layer out "
            "with filter_fn"
        )
