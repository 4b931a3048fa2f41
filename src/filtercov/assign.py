"""Give depthwise layers new filters: all of them, or on any failure none."""

from __future__ import annotations

import torch
from torch import Tensor

from filtercov.depthwise.model import DepthwiseLayer
from filtercov.depthwise.weight import is_sharded, parametrisation, plain_values, write_values_
from filtercov.errors import ModelError

# Parametrisations compute a weight from others in a few steps, each of which rounds once.
ROUNDINGS = 32


def assign_filters_(layers: list[DepthwiseLayer], filters: list[Tensor]) -> None:
    """Write `filters` (channels, *kernel_size) into the weights of `layers`, keeping dtype, device and memory layout.

    A layer whose weight then is not what was written, as spectral_norm's is, is refused. `filters` is emptied on the
    way, so that new and old values of all layers never lie in memory three times over.
    """
    before: list[tuple[Tensor, Tensor]] = []
    filters.reverse()
    with torch.no_grad():
        for layer in layers:
            try:
                before += [(tensor, tensor.detach().clone()) for tensor in _behind(layer)]
                _assign(layer, filters.pop())
            except Exception as error:
                for tensor, old in before:
                    tensor.copy_(old)
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


def _behind(layer: DepthwiseLayer) -> list[Tensor]:
    """Return all that writing the filters may change: parameters, and what a parametrisation keeps beside them."""
    steps = parametrisation(layer.module)
    return [*layer.trainable(), *(steps.buffers() if steps is not None else ())]


def _assign(layer: DepthwiseLayer, filters: Tensor) -> None:
    weight = layer.weight
    if is_sharded(filters):  # taken from another model
        filters = plain_values(filters, layer.name)
    new = filters.view(weight.shape).to(device=weight.device, dtype=weight.dtype)
    if parametrisation(layer.module) is not None:
        layer.module.weight = new
    else:
        write_values_(weight, new)
    wanted, got = plain_values(new, layer.name), plain_values(layer.weight, layer.name)
    if not (got - wanted).norm() <= ROUNDINGS * torch.finfo(new.dtype).eps * wanted.norm():
        raise ModelError(
            f"its weight became another than was written, {float(got.norm() / wanted.norm()):.3g} times as large, as "
            "parametrisations like spectral_norm make it; remove the parametrisation first, or leave this layer out "
            "with filter_fn"
        )
