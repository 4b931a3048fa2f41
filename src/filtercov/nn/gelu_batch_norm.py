"""GELU followed by training-mode BatchNorm, and perhaps by the addition of a residual, as one operator.

For this pair PyTorch passes over the activations many times, forward and backward, and keeps two copies of them; fused
there are four passes, and only x is kept. The arithmetic is that of `F.gelu` (exact, with erf) and `F.batch_norm`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.nn import checks, flops, kernels, library
from filtercov.nn.images import as_channels_last, spread
from filtercov.nn.operator import define_gradients, define_operator


def gelu_batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return BatchNorm(GELU(x)) of (N, C, H, W) in training mode, and the (C,) mean and biased variance it used.

    A residual of the same shape is added to the first.

    >>> y, mean, variance = gelu_batch_norm(torch.randn(8, 4, 5, 5), torch.ones(4), torch.zeros(4), 1e-5)
    >>> torch.allclose(y.mean((0, 2, 3)), torch.zeros(4), atol=1e-5)
    True
    """
    y, mean, variance, _ = _operator(x, weight, bias, eps, residual)
    return y, mean, variance


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = as_channels_last(x)
    if library.takes(x):
        plus = None if residual is None else as_channels_last(residual)
        y, moments = kernels.gelu_batch_norm(x, weight.contiguous(), bias.contiguous(), eps, plus)
        return y, *moments
    activated = functional.gelu(x)
    variance, mean = torch.var_mean(activated, (0, 2, 3), correction=0)
    inverse_std = (variance + eps).rsqrt()
    y = (activated - spread(mean)) * spread(inverse_std * weight) + spread(bias)
    if residual is not None:
        y = y + residual
    return as_channels_last(y), mean, variance, inverse_std


def _backward(
    grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse_std: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    x, grad_y = as_channels_last(x), as_channels_last(grad_y)
    if library.takes(x):
        return kernels.gelu_batch_norm_backward(
            grad_y, x, *(per_channel.contiguous() for per_channel in (weight, mean, inverse_std))
        )
    grad_x, grad_weight, grad_bias = _backward_reference(grad_y, x, weight, mean, inverse_std)
    return as_channels_last(grad_x), grad_weight, grad_bias


def _backward_reference(
    grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse_std: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    normalised = (functional.gelu(x) - spread(mean)) * spread(inverse_std)
    grad_bias = grad_y.sum((0, 2, 3))
    grad_weight = (grad_y * normalised).sum((0, 2, 3))
    count = x.numel() // x.shape[1]
    centred = grad_y - spread(grad_bias / count) - normalised * spread(grad_weight / count)
    grad_activated = centred * spread(weight * inverse_std)
    return torch.ops.aten.gelu_backward(grad_activated, x), grad_weight, grad_bias


def _fake_forward(
    x: Tensor, _weight: Tensor, _bias: Tensor, _eps: float, _residual: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mean, variance, inverse_std = (x.new_empty(x.shape[1]) for _ in range(3))
    return torch.empty_like(x, memory_format=torch.channels_last), mean, variance, inverse_std


def _fake_backward(
    _grad_y: Tensor, x: Tensor, _weight: Tensor, _mean: Tensor, _inverse_std: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    grad_weight, grad_bias = (x.new_empty(x.shape[1]) for _ in range(2))
    return torch.empty_like(x, memory_format=torch.channels_last), grad_weight, grad_bias


_operator = define_operator(
    "gelu_batch_norm",
    check=checks.check_gelu_batch_norm,
    compute=_forward,
    fake=_fake_forward,
    flops=flops.nothing,
)
_backward_operator = define_operator(
    "gelu_batch_norm_backward",
    check=checks.check_gelu_batch_norm_backward,
    compute=_backward,
    fake=_fake_backward,
    flops=flops.nothing,
)


def _save(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, ...]) -> None:
    x, weight, _, ctx.eps, _ = inputs
    _, mean, variance, inverse_std = output
    ctx.mark_non_differentiable(mean, variance, inverse_std)
    ctx.save_for_backward(x, weight, mean, inverse_std)


def _gradients(ctx: Any, grad_y: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, mean, inverse_std = ctx.saved_tensors
    to_residual = grad_y if ctx.needs_input_grad[4] else None
    if not torch.is_grad_enabled():
        return *_backward_operator(grad_y, x, weight, mean, inverse_std), None, to_residual
    # Someone will differentiate the gradient: spell it out, with the statistics as functions of x.
    variance, mean = torch.var_mean(functional.gelu(x), (0, 2, 3), correction=0)
    return *_backward_reference(grad_y, x, weight, mean, (variance + ctx.eps).rsqrt()), None, to_residual


define_gradients(_operator, _gradients, save=_save)
