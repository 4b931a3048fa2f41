"""A Sequential that runs each GELU directly followed by a BatchNorm2d as one operator."""

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.jit import is_scripting  # type: ignore[attr-defined]

from filtercov.nn.gelu_batch_norm import gelu_batch_norm
from filtercov.nn.routing import PLAIN_TENSORS, is_watched, untraced


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
        if is_scripting():  # TorchScript compiles this branch alone
            for module in self:
                input = module(input)
            return input
        return run_fused(list(self), input)


def run_fused(layers: list[nn.Module], x: Tensor, residual: Tensor | None = None) -> Tensor:
    """Return what layers make of x one after the other, plus a residual, each GELU + BatchNorm2d as one if possible.

    >>> run_fused([nn.Identity()], torch.ones(1), residual=torch.ones(1))
    tensor([2.])
    """
    i = 0
    while i < len(layers):
        norm = norm_after_gelu(layers[i], layers[i + 1]) if i + 1 < len(layers) else None
        if norm is None or not _unnoticed(layers[i], norm, x):
            x = layers[i](x)
            i += 1
        elif residual is not None and i + 2 == len(layers) and _alike(x, residual):
            return _fused(norm, x, residual)
        else:
            x = _fused(norm, x)
            i += 2
    return x if residual is None else x + residual


def norm_after_gelu(layer: nn.Module, following: nn.Module) -> nn.BatchNorm2d | None:
    """Return the second of two neighbours if they are an exact GELU and an affine BatchNorm2d, not subclasses."""
    if type(layer) is not nn.GELU or layer.approximate != "none" or type(following) is not nn.BatchNorm2d:
        return None
    return None if following.weight is None or following.bias is None else following


@untraced
def _unnoticed(gelu: nn.Module, norm: nn.BatchNorm2d, x: Tensor) -> bool:
    """Return whether fusing this call changes nothing but its speed."""
    return (
        norm.training
        and norm.eps > 0  # another is nn.BatchNorm2d's to refuse
        and not is_watched(gelu, norm)
        and type(x) is Tensor
        and x.dtype == torch.float32
        and x.is_cpu
        and x.dim() == 4
        and x.shape[1] == norm.num_features
        and x.is_contiguous(memory_format=torch.channels_last)
        and x.numel() > norm.num_features  # one value per channel has no variance: nn.BatchNorm2d says so
        and _belongs(norm.weight, norm)
        and _belongs(norm.bias, norm)
        and _can_update(norm)
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )


@untraced
def _alike(x: Tensor, residual: Tensor) -> bool:
    return (
        type(residual) in PLAIN_TENSORS
        and residual.dtype == x.dtype
        and residual.device == x.device
        and residual.shape == x.shape
    )


def _belongs(per_channel: Tensor, norm: nn.BatchNorm2d) -> bool:
    return (
        type(per_channel) in PLAIN_TENSORS
        and per_channel.dtype == torch.float32
        and per_channel.is_cpu
        and per_channel.shape == (norm.num_features,)
    )


def _can_update(norm: nn.BatchNorm2d) -> bool:
    """Return whether the running statistics, if there are any to keep, are of the usual kind."""
    mean, variance = norm.running_mean, norm.running_var
    if not norm.track_running_stats or mean is None or variance is None:
        return not norm.track_running_stats or mean is variance
    return _belongs(mean, norm) and _belongs(variance, norm)


def _fused(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None = None) -> Tensor:
    y, mean, variance = gelu_batch_norm(x, norm.weight, norm.bias, norm.eps, residual)
    if norm.track_running_stats:
        share, running_mean, running_var = _share_of_batch(norm), norm.running_mean, norm.running_var
        if running_mean is not None and running_var is not None:
            count = x.numel() // x.shape[1]
            with torch.no_grad():
                running_mean.lerp_(mean, share)
                running_var.lerp_(variance * (count / (count - 1)), share)
    return y


def _share_of_batch(norm: nn.BatchNorm2d) -> Tensor | float:
    """Count a batch, and return how much of it the running statistics take in, by nn.BatchNorm2d's rules."""
    counter = norm.num_batches_tracked
    if counter is not None:
        counter.add_(1)
    if norm.momentum is not None:
        return norm.momentum
    # A tensor, since the value would be a constant to a tracer and unknown to a compiler.
    return 0.0 if counter is None else counter.to(norm.weight.dtype).reciprocal()
