"""What counts as a depthwise convolution, decided here alone: for a module, and for a named tensor of a state dict.

A convolution is depthwise if every input channel has filters of its own. Transposed convolutions are not: their filters
paint the output instead of reading the input, and have another covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeGuard

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


def is_depthwise(module: nn.Module) -> TypeGuard[Convolution]:
    """Tell whether a module filters each input channel by itself.

    With a single input channel that could as well be a dense convolution, of grey images or inside an attention
    module; then only a class that says `always_depthwise` counts, as filtercov's own does for networks of width 1.

    >>> is_depthwise(nn.Conv2d(8, 24, 5, groups=8)), is_depthwise(nn.Conv1d(1, 1, 3))
    (True, False)
    """
    return (
        isinstance(module, Convolution)
        and module.groups == module.in_channels
        and (module.in_channels > 1 or getattr(module, "always_depthwise", False))
    )


def kernel_size_of(module: Convolution) -> tuple[int, ...]:
    """Return the kernel size by axis, which a class of somebody's own may keep as one number.

    >>> kernel_size_of(nn.Conv2d(8, 8, 5))
    (5, 5)
    """
    size: int | tuple[int, ...] = module.kernel_size
    axes = 1 if isinstance(module, nn.Conv1d) else 2 if isinstance(module, nn.Conv2d) else 3
    return (size,) * axes if isinstance(size, int) else tuple(size)


def is_undecided(module: nn.Module) -> bool:
    """Tell whether a module may become depthwise: a lazy convolution learns its input channels from its first input.

    >>> is_undecided(nn.LazyConv2d(8, 5, groups=8)), is_undecided(nn.LazyConv2d(8, 5))
    (True, False)
    """
    return is_uninitialised(module) and isinstance(module, Convolution) and module.groups > 1


def is_uninitialised(module: nn.Module) -> bool:
    """Tell whether a module is lazy and has not seen its first input, so that its weights have no shape yet."""
    return isinstance(module, LazyModuleMixin) and module.has_uninitialized_params()


def resembles_depthwise(module: nn.Module) -> bool:
    """Tell whether a class that is no `nn.Conv1d`, `2d` or `3d` says of itself that it convolves depthwise.

    Quantised and conditional convolutions do; what their filters are, only they know. A block with a depthwise
    convolution inside speaks of that one.
    """
    groups, channels = _own(module, "groups"), _own(module, "in_channels")
    return (
        not isinstance(module, nn.modules.conv._ConvNd)
        and _own(module, "kernel_size") is not None
        and not _own(module, "transposed")
        and isinstance(groups, int)
        and isinstance(channels, int)
        and groups == channels
        and groups > 1
        and not any(map(is_depthwise, module.modules()))
    )


def _own(module: nn.Module, name: str) -> object:
    """Return an attribute of a module or its class, None if it has none or computing it fails.

    What `__getattr__` finds is not the module's own: wrappers answer with what the module inside them has. A scripted
    module has all it has from there.
    """
    find = getattr if isinstance(module, torch.jit.ScriptModule) else object.__getattribute__
    try:
        return find(module, name)
    except Exception:  # whatever a property may raise
        return None


class Shaped(Protocol):
    """A tensor, or what there is to know of one before its numbers are read."""

    @property
    def shape(self) -> Sequence[int]: ...  # noqa: D102


def has_depthwise_shape(name: str, tensor: Shaped) -> bool:
    """Tell whether a tensor of a state dict is named and shaped as a depthwise weight: (channels, 1, *kernel_size).

    The shape of a tensor does not say how many channels its layer reads, so that some dense and transposed
    convolutions have it too; `state_dict` sorts those out by what lies around them.
    """
    return name.split(".")[-1] == "weight" and is_depthwise_shape(tensor)


def is_depthwise_shape(tensor: Shaped) -> bool:
    """Tell whether a tensor is shaped (channels, 1, *kernel_size), in 1, 2 or 3 dimensions."""
    return 3 <= len(tensor.shape) <= 5 and tensor.shape[1] == 1 and 0 not in tensor.shape
