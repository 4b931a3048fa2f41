"""The convolution's passes as torch operators, so that autograd, torch.compile and fake tensors know them.

Each pass is bilinear, and its gradients are the other two: gradients of any order stay within these operators.
`padding` is (before, after) along each axis, `stride` and `dilation` one number an axis; images, of one to three axes,
keep the layout they come in. `passes` says which run natively: the sum of `routing.BITS`, or by thresholds.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from filtercov.nn import checks, flops, kernels, reference
from filtercov.nn.arguments import Convolution, out_size
from filtercov.nn.images import is_channels_last, laid_out, readable
from filtercov.nn.operator import define_gradients, define_operator
from filtercov.nn.routing import BY_THRESHOLDS, native_sums, runs_natively

Numbers = Sequence[int]


def _how(padding: Numbers, stride: Numbers, dilation: Numbers) -> Convolution:
    return Convolution(tuple(padding), tuple(stride), tuple(dilation))


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    passes: int = BY_THRESHOLDS,
) -> Tensor:
    """Return the (N, C, *out) convolution of (N, C, *size) with (C, 1, *kernel)."""
    how, kernel, last = _how(padding, stride, dilation), weight.shape[2:], is_channels_last(x)
    if not runs_natively("forward", x, kernel, how, channels_last=last, passes=passes):
        return laid_out(reference.forward(x, weight, bias, how), channels_last=last)
    bias = None if bias is None else bias.contiguous()
    out = out_size(x.shape[2:], kernel, how)
    return kernels.forward(readable(x), weight.contiguous(), bias, how, out, channels_last=last)


def _fake_forward(
    x: Tensor,
    weight: Tensor,
    _bias: Tensor | None,
    padding: Numbers,
    stride: Numbers,
    dilation: Numbers,
    _passes: int = BY_THRESHOLDS,
) -> Tensor:
    out = out_size(x.shape[2:], weight.shape[2:], _how(padding, stride, dilation))
    return laid_out(x.new_empty((*x.shape[:2], *out)), channels_last=is_channels_last(x))


def _input_grad(
    grad_y: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
    channels_last: bool,
    passes: int = BY_THRESHOLDS,
) -> Tensor:
    """Return the (N, C, *size) gradient of the input, in the layout asked for."""
    how, kernel = _how(padding, stride, dilation), weight.shape[2:]
    if not runs_natively("input_grad", grad_y, kernel, how, channels_last=channels_last, passes=passes):
        return laid_out(reference.input_grad(grad_y, weight, how, size), channels_last=channels_last)
    return kernels.input_grad(readable(grad_y), weight.contiguous(), how, size, channels_last=channels_last)


def _fake_input_grad(
    grad_y: Tensor,
    _weight: Tensor,
    _padding: Numbers,
    _stride: Numbers,
    _dilation: Numbers,
    size: Numbers,
    channels_last: bool,
    _passes: int = BY_THRESHOLDS,
) -> Tensor:
    return laid_out(grad_y.new_empty((*grad_y.shape[:2], *size)), channels_last=channels_last)


def _weight_grad(
    grad_y: Tensor,
    x: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    kernel: Sequence[int],
    passes: int = BY_THRESHOLDS,
) -> Tensor:
    """Return the (C, 1, *kernel) gradient of the filters."""
    how = _how(padding, stride, dilation)
    if runs_natively("weight_grad", x, kernel, how, channels_last=is_channels_last(x), passes=passes):
        return kernels.weight_grad(readable(grad_y), readable(x), how, kernel)
    return reference.weight_grad(grad_y, x, how, kernel).contiguous()


def _fake_weight_grad(
    _grad_y: Tensor,
    x: Tensor,
    _padding: Numbers,
    _stride: Numbers,
    _dilation: Numbers,
    kernel: Numbers,
    _passes: int = BY_THRESHOLDS,
) -> Tensor:
    return x.new_empty((x.shape[1], 1, *kernel))


def _channel_sum(x: Tensor) -> Tensor:
    """Return the (C,) sums of (N, C, *size) over images and pixels: the gradient of the bias."""
    if native_sums(x):
        return kernels.channel_sum(laid_out(x, channels_last=True))
    return reference.channel_sum(x)


def _fake_channel_sum(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1])


convolve = define_operator(
    "depthwise_conv",
    check=checks.check_convolution,
    compute=_forward,
    fake=_fake_forward,
    flops=flops.convolution,
)
input_grad = define_operator(
    "depthwise_conv_input_grad",
    check=checks.check_input_grad,
    compute=_input_grad,
    fake=_fake_input_grad,
    flops=flops.input_grad,
)
weight_grad = define_operator(
    "depthwise_conv_weight_grad",
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


def _save_forward(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    x, weight, _, *ctx.how, ctx.passes = inputs
    needs_x, needs_weight, *_ = ctx.needs_input_grad
    ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
    ctx.size, ctx.kernel = x.shape[2:], weight.shape[2:]
    ctx.channels_last = is_channels_last(x)
    ctx.weight_strides = weight.stride() if weight.is_contiguous() else None


def _forward_backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
    grad_weight = weight_grad(grad_y, x, *ctx.how, ctx.kernel, ctx.passes) if needs_weight else None
    if grad_weight is not None and ctx.weight_strides is not None:
        # A dense (C, 1, *kernel) tensor has several spellings of its strides; DDP's buckets want the parameter's.
        grad_weight = grad_weight.as_strided(grad_weight.shape, ctx.weight_strides)
    return (
        input_grad(grad_y, weight, *ctx.how, ctx.size, ctx.channels_last, ctx.passes) if needs_x else None,
        grad_weight,
        channel_sum(grad_y) if needs_bias else None,
        *[None] * 4,
    )


def _save_input_grad(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    grad_y, weight, *ctx.how, _, _, ctx.passes = inputs
    ctx.save_for_backward(grad_y, weight)


def _input_grad_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_y, weight = ctx.saved_tensors
    needs_grad_y, needs_weight, *_ = ctx.needs_input_grad
    return (
        convolve(grad, weight, None, *ctx.how, ctx.passes) if needs_grad_y else None,
        weight_grad(grad_y, grad, *ctx.how, weight.shape[2:], ctx.passes) if needs_weight else None,
        *[None] * 6,
    )


def _save_weight_grad(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    grad_y, x, *ctx.how, _, ctx.passes = inputs
    ctx.save_for_backward(grad_y, x)


def _weight_grad_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_y, x = ctx.saved_tensors
    needs_grad_y, needs_x, *_ = ctx.needs_input_grad
    return (
        convolve(x, grad, None, *ctx.how, ctx.passes) if needs_grad_y else None,
        input_grad(grad_y, grad, *ctx.how, x.shape[2:], is_channels_last(x), ctx.passes) if needs_x else None,
        *[None] * 5,
    )


def _save_channel_sum(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    ctx.shape = inputs[0].shape


def _channel_sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor]:
    return (grad.reshape(-1, *[1] * (len(ctx.shape) - 2)).expand(ctx.shape),)


define_gradients(convolve, _forward_backward, save=_save_forward)
define_gradients(input_grad, _input_grad_backward, save=_save_input_grad)
define_gradients(weight_grad, _weight_grad_backward, save=_save_weight_grad)
define_gradients(channel_sum, _channel_sum_backward, save=_save_channel_sum)
