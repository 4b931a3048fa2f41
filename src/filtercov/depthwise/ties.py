"""Weights that several names of a state dict share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn


def same_modules(tensors: Mapping[str, Tensor], weights: Sequence[str]) -> dict[str, str]:
    """Return the weights of modules that appear under an earlier name too, each with the weight under that name.

    The same module has all its tensors in the same memory. Two modules that share a weight but not the bias beside it
    are two layers, as they are in a model.
    """
    first: dict[tuple[object, ...], str] = {}
    again = {}
    for name in weights:
        bias = tensors.get(name.removesuffix("weight") + "bias")
        place = (_place(tensors[name]), None if bias is None else _place(bias))
        earlier = first.setdefault(place, name)
        if earlier != name:
            again[name] = earlier
    return again


def equal_weights(tensors: Mapping[str, Tensor], weights: Sequence[str]) -> dict[str, str]:
    """Return the weights that equal an earlier one in every number though they lie elsewhere in memory.

    Formats that store no ties write tied weights twice; but blocks that were copied are equal as well. Constant weights
    say nothing.
    """
    seen: dict[tuple[object, ...], list[str]] = {}
    equal = {}
    for name in weights:
        tensor = tensors[name]
        if not _comparable(tensor):
            continue
        start = tensor.reshape(-1)[:64].tolist()
        alike = seen.setdefault((tensor.shape, tensor.dtype, tuple(start)), [])
        twin = next((other for other in alike if torch.equal(tensors[other], tensor)), None)
        if twin is None:
            alike.append(name)
        elif _place(tensors[twin]) != _place(tensor) and len(set(start)) > 1:
            equal[name] = twin
    return equal


def _place(tensor: Tensor) -> tuple[object, ...]:
    if not _comparable(tensor):
        return (id(tensor),)
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _comparable(tensor: Tensor) -> bool:
    """Tell whether a tensor is plain numbers in memory, not a subclass's, sparse, quantised or on the meta device."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
    )
