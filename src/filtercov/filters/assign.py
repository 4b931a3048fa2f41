"""Give depthwise layers new filters: all of them, or on any failure none."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from filtercov.errors import ModelError
from filtercov.layers.find import (
    DepthwiseLayer,
    first_overlapping,
    is_sharded,
    overlaps_itself,
    parametrisation,
    plain_values,
    write_values_,
)

# Parametrisations compute a weight from others in a few steps, each of which rounds once.
ROUNDINGS = 32


class _Remembered(NamedTuple):
    """The table and name that a tensor is held under, its memory, and a copy of its values."""

    table: dict[str, Any]
    name: str
    tensor: Tensor
    memory: Tensor
    values: Tensor

    def back_to_memory(self) -> None:
        """Lay the tensor where it lay, with the values it has now: parametrisations give it memory of their own."""
        kept = self.table.get(self.name) is self.tensor and self.tensor.shape == self.memory.shape
        if kept and type(self.tensor) in (Tensor, nn.Parameter) and not self.tensor.is_set_to(self.memory):
            self.memory.copy_(self.tensor)
            self.tensor.data = self.memory

    def bring_back(self) -> None:
        """Give the tensor its place, memory and values again; one that cannot be written to was not changed."""
        self.table[self.name] = self.tensor  # a parametrisation may have put another in its place
        with suppress(Exception):
            if not self.tensor.is_set_to(self.memory):
                self.tensor.data = self.memory
        with suppress(Exception):
            self.tensor.copy_(self.values)


def assign_filters_(layers: list[DepthwiseLayer], filters: list[Tensor]) -> None:
    """Write `filters` (channels, *kernel_size) into the weights of `layers`, keeping dtype, device and memory layout.

    A layer whose weight then is not what was written, as spectral_norm's is, is refused. `filters` is emptied on the
    way, so that new and old values of all layers never lie in memory three times over.
    """
    before: list[_Remembered] = []
    filters.reverse()
    with torch.no_grad():
        try:
            for layer in layers:
                held = _remembered(layer)
                before += held
                _assign(layer, filters.pop())
                if parametrisation(layer.module) is not None:
                    for one in held:
                        one.back_to_memory()
        except BaseException as error:
            for one in reversed(before):  # of a shared one the first copy last
                one.bring_back()
            if not isinstance(error, Exception):
                raise
            raise ModelError(f"{layer.name}: its filters cannot be set ({error}); nothing was changed") from error


def first_shared(layers: list[DepthwiseLayer]) -> dict[DepthwiseLayer, DepthwiseLayer]:
    """Return, for every layer whose parameters lie in the memory of an earlier one's, that earlier layer."""
    owned = [(layer, parameter) for layer in layers for parameter in layer.trainable()]
    first = first_overlapping([parameter for _, parameter in owned])
    owners = [(layer, owned[index][0]) for (layer, _), index in zip(owned, first, strict=True)]
    return {layer: owner for layer, owner in owners if owner is not layer}


def changed_with(layers: list[DepthwiseLayer], others: list[DepthwiseLayer]) -> dict[DepthwiseLayer, DepthwiseLayer]:
    """Return those of the `others` whose parameters lie in the memory of one of `layers`, each with that layer."""
    with_parameters = [other for other in others if _has_parameters(other)]
    first = first_shared([*layers, *with_parameters])
    return {other: first[other] for other in with_parameters if first.get(other) in layers}


def _has_parameters(layer: DepthwiseLayer) -> bool:
    try:
        return bool(layer.trainable())
    except ModelError:
        return False


def _remembered(layer: DepthwiseLayer) -> list[_Remembered]:
    """Return all that writing the filters may change: parameters, and what a parametrisation keeps beside them."""
    layer.trainable()  # refuses weights that have no parameters to write to
    steps = parametrisation(layer.module)
    held = (
        [table for step in steps.modules() for table in (step._parameters, step._buffers)] if steps is not None else []
    )
    tables = held or [{"weight": layer.module._parameters["weight"]}]
    return [
        _Remembered(table, name, tensor, tensor.detach(), tensor.detach().clone())
        for table in tables
        for name, tensor in table.items()
        if tensor is not None
    ]


def _assign(layer: DepthwiseLayer, filters: Tensor) -> None:
    weight = layer.weight
    if is_sharded(filters):  # taken from another model
        filters = plain_values(filters, layer.name)
    new = filters.view(weight.shape).to(device=weight.device, dtype=weight.dtype)
    if parametrisation(layer.module) is not None:
        layer.module.weight = new
    elif overlaps_itself(weight):
        raise ModelError("its numbers share memory with each other, as expand leaves them; clone the weight first")
    else:
        write_values_(weight, new)
        # A plain parameter keeps what is copied into it; of a sharded one all processes have what the first one drew.
        if type(weight) is nn.Parameter or is_sharded(weight):
            return
    wanted, got = plain_values(new, layer.name), plain_values(layer.weight, layer.name)
    if not (got - wanted).norm() <= ROUNDINGS * torch.finfo(new.dtype).eps * wanted.norm():
        raise ModelError(
            f"its weight became another than was written, {float(got.norm() / wanted.norm()):.3g} times as large, as "
            "parametrisations like spectral_norm make it; remove the parametrisation first, or leave this layer out "
            "with filter_fn"
        )
