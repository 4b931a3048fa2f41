"""The native kernels as functions of tensors.

Tensors are float32 and on the CPU. Images may lie in either order of channels, with gaps, as `readable` makes them;
other tensors are contiguous: the callers in this package see to it. `isa` picks an instruction set other than the one
in use.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from filtercov.nn.arguments import Convolution
from filtercov.nn.images import empty_image
from filtercov.nn.library import Geometry, call


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _triple(values: Sequence[int], missing: int) -> list[int]:
    return [missing] * (3 - len(values)) + list(values)


@lru_cache(maxsize=4096)
def _geometry(
    x_shape: tuple[int, ...],
    x_strides: tuple[int, ...],
    kernel: tuple[int, ...],
    how: Convolution,
    y_shape: tuple[int, ...],
    y_strides: tuple[int, ...],
) -> Any:
    """Return a pointer to what the C interface is told; kept, because making one takes longer than a small kernel."""
    return ctypes.pointer(
        Geometry(
            *x_shape[:2],
            *_triple(x_shape[2:], 1),
            *_triple(kernel, 1),
            *_triple(how.padding[::2], 0),
            *_triple(how.stride, 1),
            *_triple(how.dilation, 1),
            *_triple(y_shape[2:], 1),
            *x_strides[:2],
            *_triple(x_strides[2:], 0),
            *y_strides[:2],
            *_triple(y_strides[2:], 0),
        )
    )


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    how: Convolution,
    out: Sequence[int],
    *,
    channels_last: bool,
    isa: str | None = None,
) -> Tensor:
    """Return the (N, C, *out) convolution of (N, C, *size) with (C, 1, *kernel), in the layout asked for."""
    y = empty_image((*x.shape[:2], *out), channels_last=channels_last)
    geometry = _geometry(x.shape, x.stride(), weight.shape[2:], how, y.shape, y.stride())
    call("depthwise_forward", geometry, _pointer(x), _pointer(weight), _pointer(bias), _pointer(y), isa=isa)
    return y


def input_grad(
    grad_y: Tensor,
    weight: Tensor,
    how: Convolution,
    size: Sequence[int],
    *,
    channels_last: bool,
    isa: str | None = None,
) -> Tensor:
    """Return the (N, C, *size) gradient of the forward pass's input, in the layout asked for."""
    grad_x = empty_image((*grad_y.shape[:2], *size), channels_last=channels_last)
    geometry = _geometry(grad_x.shape, grad_x.stride(), weight.shape[2:], how, grad_y.shape, grad_y.stride())
    call("depthwise_input_grad", geometry, _pointer(grad_y), _pointer(weight), _pointer(grad_x), isa=isa)
    return grad_x


def weight_grad(
    grad_y: Tensor, x: Tensor, how: Convolution, kernel: Sequence[int], *, isa: str | None = None
) -> Tensor:
    """Return the (C, 1, *kernel) gradient of the forward pass's filters."""
    grad_weight = x.new_empty((x.shape[1], 1, *kernel))
    geometry = _geometry(x.shape, x.stride(), tuple(kernel), how, grad_y.shape, grad_y.stride())
    call("depthwise_weight_grad", geometry, _pointer(grad_y), _pointer(x), _pointer(grad_weight), isa=isa)
    return grad_weight


def channel_sum(x: Tensor, *, isa: str | None = None) -> Tensor:
    """Return the (C,) sums of a channels-last (N, C, *size) over images and pixels."""
    sums = x.new_empty(x.shape[1])
    call("channel_sum", x.numel() // x.shape[1], x.shape[1], _pointer(x), _pointer(sums), isa=isa)
    return sums


class BatchMoments(NamedTuple):
    """Per-channel (C,) mean, biased variance and 1 / sqrt(variance + eps) of what is normalised."""

    mean: Tensor
    variance: Tensor
    inverse_std: Tensor


def gelu_batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, residual: Tensor | None = None, *, isa: str | None = None
) -> tuple[Tensor, BatchMoments]:
    """Return the training-mode BatchNorm of GELU(x), (N, C, H, W), plus the residual, and the moments it used."""
    y = torch.empty_like(x)
    moments = BatchMoments(*(x.new_empty(x.shape[1]) for _ in range(3)))
    inputs, outputs = map(_pointer, (x, weight, bias, residual)), map(_pointer, (y, *moments))
    call("gelu_batch_norm_forward", *_matrix(x), *inputs, eps, *outputs, isa=isa)
    return y, moments


def gelu_batch_norm_backward(
    grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse_std: Tensor, *, isa: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias."""
    grads = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    pointers = map(_pointer, (grad_y, x, weight, mean, inverse_std, *grads))
    call("gelu_batch_norm_backward", *_matrix(x), *pointers, isa=isa)
    return grads


ACTIVATIONS = ("identity", "relu", "relu6", "hardswish", "silu", "gelu")  # in the order of the C interface


def batch_norm_act(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, activation: str, *, isa: str | None = None
) -> tuple[Tensor, BatchMoments]:
    """Return an activation of the training-mode BatchNorm of x, (N, C, H, W), and the moments it used."""
    y = torch.empty_like(x)
    moments = BatchMoments(*(x.new_empty(x.shape[1]) for _ in range(3)))
    inputs, outputs = map(_pointer, (x, weight, bias)), map(_pointer, (y, *moments))
    call("batch_norm_act_forward", *_matrix(x), ACTIVATIONS.index(activation), *inputs, eps, *outputs, isa=isa)
    return y, moments


def batch_norm_act_backward(
    grad_y: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    activation: str,
    *,
    isa: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias."""
    grads = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    pointers = map(_pointer, (grad_y, x, weight, bias, mean, inverse_std, *grads))
    call("batch_norm_act_backward", *_matrix(x), ACTIVATIONS.index(activation), *pointers, isa=isa)
    return grads


def settled_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    activation: str,
    *,
    activation_first: bool,
    residual: Tensor | None = None,
    isa: str | None = None,
) -> Tensor:
    """Return BatchNorm of x, (N, C, H, W), by the moments given, with an activation after it, or before and a sum."""
    y = torch.empty_like(x)
    pointers = map(_pointer, (x, weight, bias, mean, variance, residual))
    which = ACTIVATIONS.index(activation), int(activation_first)
    call("settled_norm", *_matrix(x), *which, *pointers, eps, _pointer(y), isa=isa)
    return y


def activation(x: Tensor, which: str, *, isa: str | None = None) -> Tensor:
    """Return an activation of a tensor without gaps, which lies in memory as that does."""
    y = torch.empty_like(x)
    call("activation_forward", x.numel(), ACTIVATIONS.index(which), _pointer(x), _pointer(y), isa=isa)
    return y


def activation_backward(grad_y: Tensor, x: Tensor, which: str, *, isa: str | None = None) -> Tensor:
    """Return the gradient of x, which lies in memory as the gradient of y does."""
    grad_x = torch.empty_like(x)
    pointers = map(_pointer, (grad_y, x, grad_x))
    call("activation_backward", x.numel(), ACTIVATIONS.index(which), *pointers, isa=isa)
    return grad_x


class RowMoments(NamedTuple):
    """Mean and 1 / sqrt(variance + eps) of each row, (R,)."""

    mean: Tensor
    inverse_std: Tensor


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, y: Tensor, *, isa: str | None = None) -> RowMoments:
    """Write the LayerNorm of the rows of an (R, C) matrix to y; return the moments it used."""
    moments = RowMoments(x.new_empty(len(x)), x.new_empty(len(x)))
    inputs, outputs = map(_pointer, (x, weight, bias)), map(_pointer, (y, *moments))
    call("layer_norm_forward", *x.shape, *inputs, eps, *outputs, isa=isa)
    return moments


def layer_norm_again(
    x: Tensor, moments: RowMoments, weight: Tensor, bias: Tensor, y: Tensor, *, isa: str | None = None
) -> None:
    """Write to y what `layer_norm` wrote."""
    call("layer_norm_again", *x.shape, *map(_pointer, (x, *moments, weight, bias, y)), isa=isa)


def layer_norm_backward_(
    grad: Tensor, x: Tensor, moments: RowMoments, weight: Tensor, *, isa: str | None = None
) -> tuple[Tensor, Tensor]:
    """Turn the gradient of y into that of x, in place; return those of weight and bias."""
    grad_weight, grad_bias = torch.empty_like(weight), torch.empty_like(weight)
    pointers = map(_pointer, (grad, x, *moments, weight, grad, grad_weight, grad_bias))
    call("layer_norm_backward", *x.shape, *pointers, isa=isa)
    return grad_weight, grad_bias


def bias_gelu(x: Tensor, bias: Tensor, y: Tensor, *, isa: str | None = None) -> None:
    """Write GELU(x + bias), exact, of an (R, C) matrix to y, which may be x."""
    call("bias_gelu_forward", *x.shape, *map(_pointer, (x, bias, y)), isa=isa)


def bias_gelu_backward_(grad: Tensor, x: Tensor, bias: Tensor, y: Tensor, *, isa: str | None = None) -> Tensor:
    """Turn the gradient of GELU(x + bias) into that of x, in place; write it anew to y; return the bias's gradient."""
    grad_bias = torch.empty_like(bias)
    call("bias_gelu_backward", *x.shape, *map(_pointer, (x, bias, grad, y, grad, grad_bias)), isa=isa)
    return grad_bias


def scaled_residual(
    x: Tensor, bias: Tensor, scale: Tensor | None, shortcut: Tensor | None, y: Tensor, *, isa: str | None = None
) -> None:
    """Write (x + bias) * scale + shortcut of (R, C) matrices to y, which may be x."""
    call("scaled_residual", *x.shape, *map(_pointer, (x, bias, scale, shortcut, y)), isa=isa)


def _matrix(x: Tensor) -> tuple[int, int]:
    batch, channels, height, width = x.shape
    return batch * height * width, channels
