"""Training-mode BatchNorm followed by an activation, as one operator.

For this pair PyTorch passes over the images four times forward, three times backward and often once more to copy what
lies between the two; fused there are two passes each way, and only x is kept. The arithmetic is that of
`F.batch_norm` and of the activation's own function.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.nn import checks, flops, kernels, library
from filtercov.nn.images import as_channels_last, spread
from filtercov.nn.operator import define_gradients, define_operator

_aten = torch.ops.aten


class Activation(NamedTuple):
    """A function of z, and that of the gradient of its value, and of z, which is the gradient of z."""

    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor], Tensor]


def _silu_gradient(grad: Tensor, z: Tensor) -> Tensor:
    # Not aten's, which has no gradient of its own.
    logistic = z.sigmoid()
    return grad * (logistic + z * logistic * (1 - logistic))


ACTIVATIONS = {
    "identity": Activation(lambda z: z, lambda grad, _z: grad),
    "relu": Activation(functional.relu, lambda grad, z: _aten.threshold_backward(grad, z, 0)),
    "relu6": Activation(functional.relu6, lambda grad, z: _aten.hardtanh_backward(grad, z, 0.0, 6.0)),
    "hardswish": Activation(functional.hardswish, _aten.hardswish_backward),
    "silu": Activation(functional.silu, _silu_gradient),
    "gelu": Activation(functional.gelu, _aten.gelu_backward),
}


def batch_norm_act(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return activation(BatchNorm(x)) of (N, C, H, W) in training mode, and the (C,) mean and biased variance it used.

    Activations are identity, relu, relu6, hardswish, silu and gelu (the exact one).

    >>> y, mean, variance = batch_norm_act(torch.randn(8, 4, 5, 5), torch.ones(4), torch.zeros(4), 1e-5, "relu")
    >>> bool((y >= 0).all()), mean.shape
    (True, torch.Size([4]))
    """
    y, mean, variance, _ = _operator(x, weight, bias, eps, activation)
    return y, mean, variance


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, activation: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = as_channels_last(x)
    if library.takes(x):
        y, moments = kernels.batch_norm_act(x, weight.contiguous(), bias.contiguous(), eps, activation)
        return y, *moments
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    inverse_std = (variance + eps).rsqrt()
    z = (x - spread(mean)) * spread(inverse_std * weight) + spread(bias)
    return as_channels_last(ACTIVATIONS[activation].value(z)), mean, variance, inverse_std


def _backward(
    grad_y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse_std: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    x, grad_y = as_channels_last(x), as_channels_last(grad_y)
    if library.takes(x):
        weight, bias, mean, inverse_std = (vector.contiguous() for vector in (weight, bias, mean, inverse_std))
        return kernels.batch_norm_act_backward(grad_y, x, weight, bias, mean, inverse_std, activation)
    grad_x, grad_weight, grad_bias = _backward_reference(grad_y, x, weight, bias, mean, inverse_std, activation)
    return as_channels_last(grad_x), grad_weight, grad_bias


def _backward_reference(
    grad_y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse_std: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    normalised = (x - spread(mean)) * spread(inverse_std)
    grad = ACTIVATIONS[activation].gradient(grad_y, normalised * spread(weight) + spread(bias))
    grad_bias = grad.sum((0, 2, 3))
    grad_weight = (grad * normalised).sum((0, 2, 3))
    count = x.numel() // x.shape[1]
    centred = grad - spread(grad_bias / count) - normalised * spread(grad_weight / count)
    return centred * spread(weight * inverse_std), grad_weight, grad_bias


def _fake_forward(
    x: Tensor, _weight: Tensor, _bias: Tensor, _eps: float, _activation: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mean, variance, inverse_std = (x.new_empty(x.shape[1]) for _ in range(3))
    return torch.empty_like(x, memory_format=torch.channels_last), mean, variance, inverse_std


def _fake_backward(_grad_y: Tensor, x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    grad_weight, grad_bias = (x.new_empty(x.shape[1]) for _ in range(2))
    return torch.empty_like(x, memory_format=torch.channels_last), grad_weight, grad_bias


_operator = define_operator(
    "batch_norm_act",
    check=checks.check_batch_norm_act,
    compute=_forward,
    fake=_fake_forward,
    flops=flops.nothing,
)
_backward_operator = define_operator(
    "batch_norm_act_backward",
    check=checks.check_batch_norm_act_backward,
    compute=_backward,
    fake=_fake_backward,
    flops=flops.nothing,
)


def _save(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, ctx.eps, ctx.activation = inputs
    _, mean, variance, inverse_std = output
    ctx.mark_non_differentiable(mean, variance, inverse_std)
    ctx.save_for_backward(x, weight, bias, mean, inverse_std)


def _gradients(ctx: Any, grad_y: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, bias, mean, inverse_std = ctx.saved_tensors
    if not torch.is_grad_enabled():
        return *_backward_operator(grad_y, x, weight, bias, mean, inverse_std, ctx.activation), None, None
    # Someone will differentiate the gradient: spell it out, with the statistics as functions of x.
    variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    inverse_std = (variance + ctx.eps).rsqrt()
    return *_backward_reference(grad_y, x, weight, bias, mean, inverse_std, ctx.activation), None, None


define_gradients(_operator, _gradients, save=_save)
