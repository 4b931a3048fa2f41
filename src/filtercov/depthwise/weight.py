"""The weight a convolution uses, as plain numbers: computed, sharded, sparse and quantised ones too."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from filtercov.depthwise.definition import Convolution, kernel_size_of
from filtercov.depthwise.running import evaluating
from filtercov.errors import ModelError


def current_weight(module: Convolution, name: str) -> Tensor:
    """Return the weight (channels, 1, *kernel_size) that evaluation would use, changing nothing.

    Parametrised weights are computed as in evaluation, because in training some parametrisations move their own state
    whenever they are read; weights that a hook writes before each call are computed anew, because what the last call
    left behind may be older than the parameters.
    """
    weight = _computed(module)
    if weight is None:
        raise no_weight(name)
    needed = (module.out_channels, module.in_channels // module.groups, *kernel_size_of(module))
    if tuple(weight.shape) != needed:
        raise ModelError(
            f"{name}: needed its whole weight {needed}, got {tuple(weight.shape)}, as wrappers that flatten or shard "
            "parameters leave it; gather the whole parameters first"
        )
    return weight


def no_weight(name: str) -> ModelError:
    """Return the error for a layer whose weight was taken away."""
    return ModelError(
        f"{name}: needed a convolution with a weight, got one without; give it one, or leave this layer out with "
        "filter_fn"
    )


def plain_values(weight: Tensor, name: str) -> Tensor:
    """Return a weight's numbers as a dense float64 tensor on the CPU, or say why they cannot be had.

    A sharded weight is gathered, for which every process of its mesh must ask.
    """
    if weight.device.type == "meta":
        raise ModelError(f"{name}: needed a weight with storage, got one on the meta device; load it first")
    try:
        values = weight.detach()
        if is_sharded(values):
            values = values.full_tensor()  # type: ignore[attr-defined]
        if values.is_quantized:
            values = values.dequantize()
        if values.layout != torch.strided:
            values = values.to_dense()
        if values.is_floating_point():
            plain = values.cpu().double().resolve_neg()
            return torch.from_numpy(plain.numpy())  # a subclass that is no plain tensor cannot follow
    except Exception as error:  # whatever a tensor subclass or a backend may raise
        raise ModelError(
            f"{name}: needed a weight of plain numbers, but a {type(weight).__name__} cannot be turned into them "
            f"({error}); convert the model first"
        ) from error
    raise ModelError(f"{name}: needed a floating-point weight, got {weight.dtype}; dequantise or convert it first")


def write_values_(weight: Tensor, values: Tensor) -> Tensor:
    """Copy plain values of the same shape into a weight, sharding them as it is, and return it.

    What is written to a sharded weight is what the first process of its mesh has.
    """
    if is_sharded(weight):
        from torch.distributed.tensor import distribute_tensor  # slow to import, but there if a weight is sharded

        here = values.to(device=weight.device, dtype=weight.dtype)
        values = distribute_tensor(here, weight.device_mesh, weight.placements)  # type: ignore[attr-defined]
    return weight.copy_(values)


def is_sharded(weight: Tensor) -> bool:
    """Tell whether a weight is a DTensor, as FSDP2 makes them; importing that class would take longer than all else."""
    return hasattr(weight, "full_tensor")


def parametrisation(module: nn.Module) -> nn.Module | None:
    """Return what computes the weight of a module from other parameters, if torch.nn.utils.parametrize does."""
    if not parametrize.is_parametrized(module, "weight"):
        return None
    return cast(nn.Module, module.parametrizations["weight"])  # type: ignore[index]


def _computed(module: nn.Module) -> Tensor | None:
    steps = parametrisation(module)
    if steps is not None:
        with evaluating(steps):
            return module.weight  # type: ignore[return-value]
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == "weight":
            return hook.compute_weight(module)  # type: ignore[no-any-return]
        if isinstance(hook, SpectralNorm) and hook.name == "weight":
            return hook.compute_weight(module, do_power_iteration=False)
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == "weight":
            return hook.apply_mask(module)  # type: ignore[no-any-return, no-untyped-call]
    return getattr(module, "weight", None)
