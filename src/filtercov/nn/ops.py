"""The convolution's passes as torch operators, so that autograd, torch.compile and fake tensors know them.

Each pass is bilinear, and its gradients are the other two: gradients of any order stay within these operators.
`padding` is (top, bottom, left, right); images keep the layout they come in.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from filtercov.nn import kernels, reference
from filtercov.nn.library import Geometry
from filtercov.nn.routing import is_channels_last, native_sums, native_wins


def _format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format


def _dense(image: Tensor) -> Tensor:
    return image.contiguous(memory_format=torch.channels_last)


def _out_size(size: Sequence[int], kernel: Sequence[int], padding: Sequence[int]) -> tuple[int, int]:
    top, bottom, left, right = padding
    return size[0] + top + bottom - kernel[0] + 1, size[1] + left + right - kernel[1] + 1


def _geometry(
    batch: int, channels: int, size: Sequence[int], kernel: Sequence[int], padding: Sequence[int]
) -> Geometry:
    out_size = _out_size(size, kernel, padding)
    return Geometry(batch, channels, size[0], size[1], kernel[0], kernel[1], padding[0], padding[2], *out_size)


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Sequence[int]) -> Tensor:
    """Return the (N, C, OH, OW) convolution of (N, C, H, W) with (C, 1, KH, KW)."""
    channels_last, kernel = is_channels_last(x), weight.shape[2:]
    if native_wins("forward", x, kernel, channels_last=channels_last):
        geometry = _geometry(x.shape[0], x.shape[1], x.shape[2:], kernel, padding)
        y = kernels.forward(geometry, _dense(x), weight.contiguous(), None if bias is None else bias.contiguous())
    else:
        y = reference.forward(x, weight, bias, padding)
    return y.contiguous(memory_format=_format(channels_last))


depthwise_conv2d = custom_op("filtercov::depthwise_conv2d", forward, mutates_args=())


@custom_op("filtercov::depthwise_conv2d_input_grad", mutates_args=())
def input_grad(
    grad_y: Tensor, weight: Tensor, padding: Sequence[int], size: Sequence[int], channels_last: bool
) -> Tensor:
    """Return the (N, C, H, W) gradient of the input, where (H, W) is `size`, in the layout asked for."""
    kernel = weight.shape[2:]
    if native_wins("input_grad", grad_y, kernel, channels_last=channels_last):
        geometry = _geometry(grad_y.shape[0], grad_y.shape[1], size, kernel, padding)
        grad_x = kernels.input_grad(geometry, _dense(grad_y), weight.contiguous())
    else:
        grad_x = reference.input_grad(grad_y, weight, padding, size)
    return grad_x.contiguous(memory_format=_format(channels_last))


@custom_op("filtercov::depthwise_conv2d_weight_grad", mutates_args=())
def weight_grad(grad_y: Tensor, x: Tensor, padding: Sequence[int], kernel: Sequence[int]) -> Tensor:
    """Return the (C, 1, KH, KW) gradient of the filters, where (KH, KW) is `kernel`."""
    if native_wins("weight_grad", x, kernel, channels_last=is_channels_last(x)):
        geometry = _geometry(x.shape[0], x.shape[1], x.shape[2:], kernel, padding)
        return kernels.weight_grad(geometry, _dense(grad_y), _dense(x))
    return reference.weight_grad(grad_y, x, padding, kernel).contiguous()


@custom_op("filtercov::channel_sum", mutates_args=())
def channel_sum(x: Tensor) -> Tensor:
    """Return the (C,) sums of (N, C, H, W) over images and pixels: the gradient of the bias."""
    if native_sums(x):
        return kernels.channel_sum(_dense(x))
    return reference.channel_sum(x)


@depthwise_conv2d.register_fake
def _(x: Tensor, weight: Tensor, _bias: Tensor | None, padding: Sequence[int]) -> Tensor:
    out_size = _out_size(x.shape[2:], weight.shape[2:], padding)
    y = x.new_empty((x.shape[0], x.shape[1], *out_size))
    return y.contiguous(memory_format=_format(is_channels_last(x)))


@input_grad.register_fake
def _(grad_y: Tensor, _weight: Tensor, _padding: Sequence[int], size: Sequence[int], channels_last: bool) -> Tensor:
    grad_x = grad_y.new_empty((grad_y.shape[0], grad_y.shape[1], *size))
    return grad_x.contiguous(memory_format=_format(channels_last))


@weight_grad.register_fake
def _(_grad_y: Tensor, x: Tensor, _padding: Sequence[int], kernel: Sequence[int]) -> Tensor:
    return x.new_empty((x.shape[1], 1, *kernel))


@channel_sum.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1])


# Gradients. `ctx.needs_input_grad` decides what is kept: a frozen filter keeps no input alive.


def _save_forward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    x, weight, _, padding = inputs
    needs_x, needs_weight, *_ = ctx.needs_input_grad
    ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
    ctx.padding, ctx.size, ctx.kernel = padding, x.shape[2:], weight.shape[2:]
    ctx.channels_last = is_channels_last(x)
    ctx.weight_strides = weight.stride() if weight.is_contiguous() else None


def _forward_backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
    grad_weight = weight_grad(grad_y, x, ctx.padding, ctx.kernel) if needs_weight else None
    if grad_weight is not None and ctx.weight_strides is not None:
        # A dense (C, 1, KH, KW) tensor has several spellings of its strides; DDP's buckets want the parameter's.
        grad_weight = grad_weight.as_strided(grad_weight.shape, ctx.weight_strides)
    return (
        input_grad(grad_y, weight, ctx.padding, ctx.size, ctx.channels_last) if needs_x else None,
        grad_weight,
        channel_sum(grad_y) if needs_bias else None,
        None,
    )


def _save_input_grad(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    grad_y, weight, padding, _, _ = inputs
    ctx.save_for_backward(grad_y, weight)
    ctx.padding = padding


def _input_grad_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_y, weight = ctx.saved_tensors
    needs_grad_y, needs_weight, *_ = ctx.needs_input_grad
    return (
        depthwise_conv2d(grad, weight, None, ctx.padding) if needs_grad_y else None,
        weight_grad(grad_y, grad, ctx.padding, weight.shape[2:]) if needs_weight else None,
        None,
        None,
        None,
    )


def _save_weight_grad(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    grad_y, x, padding, _ = inputs
    ctx.save_for_backward(grad_y, x)
    ctx.padding = padding


def _weight_grad_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_y, x = ctx.saved_tensors
    needs_grad_y, needs_x, *_ = ctx.needs_input_grad
    return (
        depthwise_conv2d(x, grad, None, ctx.padding) if needs_grad_y else None,
        input_grad(grad_y, grad, ctx.padding, x.shape[2:], is_channels_last(x)) if needs_x else None,
        None,
        None,
    )


def _save_channel_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.shape = inputs[0].shape


def _channel_sum_backward(ctx: Any, grad: Tensor) -> Tensor:
    return grad[None, :, None, None].expand(ctx.shape)


depthwise_conv2d.register_autograd(_forward_backward, setup_context=_save_forward)
input_grad.register_autograd(_input_grad_backward, setup_context=_save_input_grad)
weight_grad.register_autograd(_weight_grad_backward, setup_context=_save_weight_grad)
channel_sum.register_autograd(_channel_sum_backward, setup_context=_save_channel_sum)
