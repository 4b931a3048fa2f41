"""A Sequential that runs each GELU directly followed by a BatchNorm2d as one operator."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module

from filtercov.nn.gelu_batch_norm import gelu_batch_norm

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_any_global_hook = cast(Callable[[], bool], torch_module._has_any_global_hook)


class FusedSequential(nn.Sequential):
    """`nn.Sequential` with GELU + BatchNorm2d fused while training on the CPU in channels_last.

    The modules in it stay what they are, so parameters, state_dict keys, slices and hooks are those of
    `nn.Sequential`. A pair is fused only in the calls where that cannot be noticed.

    >>> net = FusedSequential(nn.GELU(), nn.BatchNorm2d(4))
    >>> list(net.state_dict())[:2]
    ['1.weight', '1.bias']
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the output of the last module."""
        layers = list(self)
        i = 0
        while i < len(layers):
            norm = norm_after_gelu(layers[i], layers[i + 1]) if i + 1 < len(layers) else None
            if norm is not None and _unnoticed(layers[i], norm, input):
                input = _fused(norm, input)
                i += 2
            else:
                input = layers[i](input)
                i += 1
        return input


def norm_after_gelu(layer: nn.Module, following: nn.Module) -> nn.BatchNorm2d | None:
    """Return the second of two neighbours if they are an exact GELU and an affine BatchNorm2d, not subclasses."""
    exact = type(layer) is nn.GELU and layer.approximate == "none"
    return following if exact and type(following) is nn.BatchNorm2d and following.affine else None


def _unnoticed(gelu: nn.Module, norm: nn.BatchNorm2d, x: Tensor) -> bool:
    """Return whether fusing this call changes nothing but its speed."""
    watched = _any_global_hook() or any(getattr(module, hooks) for module in (gelu, norm) for hooks in _HOOKS)
    return (
        norm.training
        and not watched
        and type(x) is Tensor
        and x.dtype == torch.float32 == norm.weight.dtype
        and x.device.type == "cpu" == norm.weight.device.type
        and x.dim() == 4
        and x.shape[1] == norm.num_features
        and x.is_contiguous(memory_format=torch.channels_last)
        and x.numel() > x.shape[1]  # one value per channel has no variance: nn.BatchNorm2d says so
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


def _fused(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    y, mean, variance = gelu_batch_norm(x, norm.weight, norm.bias, norm.eps)
    if norm.running_mean is not None and norm.running_var is not None and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        momentum = 1.0 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        count = x.numel() // x.shape[1]
        with torch.no_grad():
            norm.running_mean.lerp_(mean, momentum)
            norm.running_var.lerp_(variance * (count / (count - 1)), momentum)
    return y
