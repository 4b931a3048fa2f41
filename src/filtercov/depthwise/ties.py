"""Weights that several names of a state dict, or several layers of a model, share."""

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


def first_overlapping(tensors: Sequence[Tensor]) -> list[int]:
    """Return, for each tensor, the position of the first that has a byte of memory in common with it, or its own.

    Tensors without memory to compare, as on the meta device or sharded, have only themselves in common.

    >>> numbers = torch.zeros(6)
    >>> first_overlapping([numbers[:2], numbers[2:4], numbers[3:], numbers[:2]])
    [0, 1, 1, 0]
    """
    places: dict[tuple[object, ...], int] = {}
    first = [places.setdefault(_place(tensor), i) for i, tensor in enumerate(tensors)]
    different = [i for i in places.values() if _comparable(tensors[i]) and tensors[i].numel()]
    overlapping = dict(zip(places.values(), places.values(), strict=True))
    near: list[int] = []
    for i in sorted(different, key=lambda i: tensors[i].data_ptr()):
        near = [j for j in near if _end(tensors[j]) > tensors[i].data_ptr()]
        for j in near:
            if _overlap(tensors[i], tensors[j]):
                overlapping[max(i, j)] = min(i, j, overlapping[max(i, j)])
        near.append(i)
    return [overlapping[i] for i in first]


def overlaps_itself(tensor: Tensor) -> bool:
    """Tell whether a tensor shows more numbers than it has memory for, as `expand` makes them.

    >>> overlaps_itself(torch.zeros(1, 3).expand(2, 3)), overlaps_itself(torch.zeros(2, 3).T)
    (True, False)
    """
    return _comparable(tensor) and tensor.numel() * tensor.itemsize > _extent(tensor)


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Tell whether tensors whose ranges of memory overlap have a byte in common: interleaved ones have none."""
    if one.device != other.device:
        return False
    start = min(one.data_ptr(), other.data_ptr())
    covered = [torch.zeros(max(_end(one), _end(other)) - start, dtype=torch.bool, device="cpu") for _ in range(2)]
    for tensor, mask in zip((one, other), covered, strict=True):
        shape = [side if step else 1 for side, step in zip(tensor.shape, tensor.stride(), strict=True)]
        steps = [step * tensor.itemsize for step in tensor.stride()]
        mask.as_strided([*shape, tensor.itemsize], [*steps, 1], tensor.data_ptr() - start).fill_(True)
    return bool((covered[0] & covered[1]).any())


def _extent(tensor: Tensor) -> int:
    """Return how many bytes there are from a tensor's first number to the end of its last."""
    if not tensor.numel():
        return 0
    last = sum((side - 1) * step for side, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize


def _end(tensor: Tensor) -> int:
    return tensor.data_ptr() + _extent(tensor)


def _place(tensor: Tensor) -> tuple[object, ...]:
    if not _comparable(tensor):
        return (id(tensor),)
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.is_neg()


def _comparable(tensor: Tensor) -> bool:
    """Tell whether a tensor is plain numbers in memory, not a subclass's, sparse, quantised or on the meta device."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
    )
