"""The convolution's passes as torch operators, so that autograd, torch.compile and fake tensors know them.

Each pass is bilinear, and its gradients are the other two: gradients of any order stay within these operators.
`padding` is (top, bottom, left, right); images keep the layout they come in.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_autograd

from filtercov.nn import checks, flops, kernels, reference
from filtercov.nn.arguments import out_size
from filtercov.nn.library import Geometry
from filtercov.nn.operator import LIBRARY, define_operator
from filtercov.nn.routing import is_channels_last, native_sums, native_wins


def _format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format


def _dense(image: Tensor) -> Tensor:
    return image.contiguous(memory_format=torch.channels_last)


def _geometry(
    batch: int, channels: int, size: Sequence[int], kernel: Sequence[int], padding: Sequence[int]
) -> Geometry:
    out = out_size(size, kernel, padding)
    return Geometry(batch, channels, size[0], size[1], kernel[0], kernel[1], padding[0], padding[2], *out)


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Sequence[int]) -> Tensor:
    """Return the (N, C, OH, OW) convolution of (N, C, H, W) with (C, 1, KH, KW)."""
    channels_last, kernel = is_channels_last(x), weight.shape[2:]
    if native_wins("forward", x, kernel, channels_last=channels_last):
        geometry = _geometry(x.shape[0], x.shape[1], x.shape[2:], kernel, padding)
        y = kernels.forward(geometry, _dense(x), weight.contiguous(), None if bias is None else bias.contiguous())
    else:
        y = reference.forward(x, weight, bias, padding)
    return y.contiguous(memory_format=_format(channels_last))


def _fake_forward(x: Tensor, weight: Tensor, _bias: Tensor | None, padding: Sequence[int]) -> Tensor:
    y = x.new_empty((*x.shape[:2], *out_size(x.shape[2:], weight.shape[2:], padding)))
    return y.contiguous(memory_format=_format(is_channels_last(x)))


def _input_grad(
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


def _fake_input_grad(
    grad_y: Tensor, _weight: Tensor, _padding: Sequence[int], size: Sequence[int], channels_last: bool
) -> Tensor:
    grad_x = grad_y.new_empty((*grad_y.shape[:2], *size))
    return grad_x.contiguous(memory_format=_format(channels_last))


def _weight_grad(grad_y: Tensor, x: Tensor, padding: Sequence[int], kernel: Sequence[int]) -> Tensor:
    """Return the (C, 1, KH, KW) gradient of the filters, where (KH, KW) is `kernel`."""
    if native_wins("weight_grad", x, kernel, channels_last=is_channels_last(x)):
        geometry = _geometry(x.shape[0], x.shape[1], x.shape[2:], kernel, padding)
        return kernels.weight_grad(geometry, _dense(grad_y), _dense(x))
    return reference.weight_grad(grad_y, x, padding, kernel).contiguous()


def _fake_weight_grad(_grad_y: Tensor, x: Tensor, _padding: Sequence[int], kernel: Sequence[int]) -> Tensor:
    return x.new_empty((x.shape[1], 1, *kernel))


def _channel_sum(x: Tensor) -> Tensor:
    """Return the (C,) sums of (N, C, H, W) over images and pixels: the gradient of the bias."""
    if native_sums(x):
        return kernels.channel_sum(_dense(x))
    return reference.channel_sum(x)


def _fake_channel_sum(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1])


depthwise_conv2d = define_operator(
    "depthwise_conv2d",
    check=checks.check_convolution,
    compute=_forward,
    fake=_fake_forward,
    flops=flops.convolution,
)
input_grad = define_operator(
    "depthwise_conv2d_input_grad",
    check=checks.check_input_grad,
    compute=_input_grad,
    fake=_fake_input_grad,
    flops=flops.input_grad,
)
weight_grad = define_operator(
    "depthwise_conv2d_weight_grad",
    check=checks.check_weight_grad,
    compute=_weight_grad,
    fake=_fake_weight_grad,
    flops=flops.weight_grad,
)
channel_sum = define_operator(
    "channel_sum",
    check=checks.check_channel_sum,
    compute=_channel_sum,
    fake=_fake_channel_sum,
    flops=flops.nothing,
)


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


register_autograd(depthwise_conv2d, _forward_backward, setup_context=_save_forward, lib=LIBRARY)
register_autograd(input_grad, _input_grad_backward, setup_context=_save_input_grad, lib=LIBRARY)
register_autograd(weight_grad, _weight_grad_backward, setup_context=_save_weight_grad, lib=LIBRARY)
register_autograd(channel_sum, _channel_sum_backward, setup_context=_save_channel_sum, lib=LIBRARY)
