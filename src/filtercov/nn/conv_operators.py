"""The three passes of a depthwise convolution, and sums over channels, as operators of PyTorch's dispatcher.

Each pass is bilinear, and its gradients are the other two: gradients of any order stay within these operators.
`padding` is (before, after) along each axis, `stride` and `dilation` one number an axis; images, of one to three axes,
keep their layout. `passes` says which run natively: a sum of `routing.BITS` and perhaps `routing.ON_GPU`, or
`routing.BY_THRESHOLDS`. A pass that does not run natively is PyTorch's. `gpu` has the passes on a GPU.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn import grad as conv_grad
from torch.utils.flop_counter import conv_flop_count

from filtercov.errors import KernelError
from filtercov.nn import native
from filtercov.nn.geometry import Geometry, Numbers
from filtercov.nn.layout import dense, empty_image, is_channels_last, readable
from filtercov.nn.operator import Plan, Shape, check_alike, check_shape, operator
from filtercov.nn.routing import BY_THRESHOLDS, LEAST_CHANNELS, runs_natively

_ByAxes = dict[int, Callable[..., Tensor]]
CONVOLVE: _ByAxes = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
INPUT_GRAD: _ByAxes = {1: conv_grad.conv1d_input, 2: conv_grad.conv2d_input, 3: conv_grad.conv3d_input}
WEIGHT_GRAD: _ByAxes = {1: conv_grad.conv1d_weight, 2: conv_grad.conv2d_weight, 3: conv_grad.conv3d_weight}
# Numbers that `_scale_grad` multiplies at a time: 4 MiB, so that it holds no further image.
_CHUNK = 2**20


def _checked(name: str, image: Shape, kernel: Shape, *steps: Shape) -> tuple[Geometry, Numbers]:
    """The geometry, and the shape of the output for an (N, C, *size) image; raise if there is none."""
    geometry = Geometry(*map(tuple, steps))
    arguments = name, tuple(image), tuple(kernel), geometry
    try:
        return geometry, _checked_output(*arguments)
    except TypeError:  # sizes that are symbols while a graph is drawn cannot be looked up
        return geometry, _checked_output.__wrapped__(*arguments)


@lru_cache(maxsize=4096)
def _checked_output(name: str, image: Numbers, kernel: Numbers, geometry: Geometry) -> Numbers:
    padding, stride, dilation = geometry
    axes, size = len(kernel), image[2:]
    if axes not in (1, 2, 3) or len(size) != axes or min(*image[1:], *kernel) < 1:
        raise KernelError(
            f"{name}: images must be (N, C, 1 to 3 sizes) and filters as many sizes, all at least 1, got {image} and "
            f"{kernel}"
        )
    if len(padding) != 2 * axes or min(padding) < 0:
        raise KernelError(f"{name}: padding must be {2 * axes} numbers >= 0 for {axes} axes, got {padding}")
    if any(len(steps) != axes or min(steps) < 1 for steps in (stride, dilation)):
        raise KernelError(f"{name}: stride and dilation must be {axes} numbers >= 1, got {stride} and {dilation}")
    spans = geometry.spans(kernel)
    if any(size[i] + padding[2 * i] + padding[2 * i + 1] < spans[i] for i in range(axes)):
        raise KernelError(
            f"{name}: a filter spanning {spans} does not fit an image of {tuple(size)} with padding {padding}; use a "
            "smaller filter or more padding"
        )
    return *image[:2], *geometry.out_size(size, kernel)


# The forward pass.


def _save_conv(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    x, weight, _, *ctx.geometry, ctx.passes = inputs
    needs_x, needs_weight, *_ = ctx.needs_input_grad
    # A frozen filter keeps no input alive.
    ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
    ctx.size, ctx.kernel = x.shape[2:], weight.shape[2:]
    ctx.channels_last = is_channels_last(x)
    ctx.weight_strides = weight.stride() if weight.is_contiguous() else None


def _conv_gradients(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
    grad_x = grad_weight = None
    if needs_weight:
        grad_weight = depthwise_conv_weight_grad(grad_y, x, *ctx.geometry, ctx.kernel, ctx.passes)
        if ctx.weight_strides is not None:
            # A dense (C, 1, *kernel) tensor has several spellings of its strides; DDP's buckets want the parameter's.
            grad_weight = grad_weight.as_strided(grad_weight.shape, ctx.weight_strides)
    if needs_x:
        grad_x = depthwise_conv_input_grad(grad_y, weight, *ctx.geometry, ctx.size, ctx.channels_last, ctx.passes)
    return grad_x, grad_weight, channel_sum(grad_y) if needs_bias else None, *[None] * 4


def _conv_flops(x: Shape, weight: Shape, *_: Any, out_shape: Shape) -> int:
    return conv_flop_count(list(x), list(weight), list(out_shape))


@operator(flops=_conv_flops, save=_save_conv, gradients=_conv_gradients)
def depthwise_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    passes: int = BY_THRESHOLDS,
) -> Plan:
    """The (N, C, *out) convolution of (N, C, *size) with (C, 1, *kernel)."""
    name, kernel = "depthwise_conv", weight.shape[2:]
    check_alike(name, x=x, weight=weight, bias=bias)
    geometry, out = _checked(name, x.shape, kernel, padding, stride, dilation)
    check_shape(name, (x.shape[1], 1, *kernel), weight=weight)
    check_shape(name, x.shape[1:2], bias=bias)
    last = is_channels_last(x)

    def compute() -> Tensor:
        if not runs_natively("forward", x, kernel, geometry, channels_last=last, passes=passes):
            return dense(reference_forward(x, weight, bias, geometry), channels_last=last)
        image, y = readable(x), empty_image(out, channels_last=last)
        offset = None if bias is None else bias.contiguous()
        struct = native.geometry_of(image, kernel, geometry, y)
        native.call("depthwise_forward", struct, image, weight.contiguous(), offset, y)
        return y

    return Plan(lambda: dense(x.new_empty(out), channels_last=last), compute)


# The input gradient.


def _save_both(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:2])
    ctx.geometry, ctx.passes = inputs[2:5], inputs[-1]


def _input_grad_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_y, weight = ctx.saved_tensors
    needs_grad_y, needs_weight, *_ = ctx.needs_input_grad
    kernel = weight.shape[2:]
    return (
        depthwise_conv(grad, weight, None, *ctx.geometry, ctx.passes) if needs_grad_y else None,
        depthwise_conv_weight_grad(grad_y, grad, *ctx.geometry, kernel, ctx.passes) if needs_weight else None,
        *[None] * 6,
    )


def _input_grad_flops(grad_y: Shape, weight: Shape, *_: Any, out_shape: Shape) -> int:
    return conv_flop_count(list(grad_y), list(weight), list(out_shape), transposed=True)


@operator(flops=_input_grad_flops, save=_save_both, gradients=_input_grad_gradients)
def depthwise_conv_input_grad(
    grad_y: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
    channels_last: bool,
    passes: int = BY_THRESHOLDS,
) -> Plan:
    """The (N, C, *size) gradient of the input, in the layout asked for."""
    name, kernel, image = "depthwise_conv_input_grad", weight.shape[2:], (*grad_y.shape[:2], *size)
    check_alike(name, grad_y=grad_y, weight=weight)
    geometry, out = _checked(name, image, kernel, padding, stride, dilation)
    check_shape(name, (grad_y.shape[1], 1, *kernel), weight=weight)
    check_shape(name, out, grad_y=grad_y)

    def compute() -> Tensor:
        if not runs_natively("input_grad", grad_y, kernel, geometry, channels_last=channels_last, passes=passes):
            return dense(reference_input_grad(grad_y, weight, geometry, size), channels_last=channels_last)
        grad, grad_x = readable(grad_y), empty_image(image, channels_last=channels_last)
        struct = native.geometry_of(grad_x, kernel, geometry, grad)
        native.call("depthwise_input_grad", struct, grad, weight.contiguous(), grad_x)
        return grad_x

    return Plan(lambda: dense(grad_y.new_empty(image), channels_last=channels_last), compute)


# The weight gradient.


def _weight_grad_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_y, x = ctx.saved_tensors
    needs_grad_y, needs_x, *_ = ctx.needs_input_grad
    image = x.shape[2:], is_channels_last(x)
    return (
        depthwise_conv(x, grad, None, *ctx.geometry, ctx.passes) if needs_grad_y else None,
        depthwise_conv_input_grad(grad_y, grad, *ctx.geometry, *image, ctx.passes) if needs_x else None,
        *[None] * 5,
    )


def _weight_grad_flops(grad_y: Shape, x: Shape, *_: Any, out_shape: Shape) -> int:
    """Count as PyTorch does, every channel with every other: C times what a depthwise gradient costs."""
    x, grad_y, out_shape = ([shape[1], shape[0], *shape[2:]] for shape in (x, grad_y, out_shape))
    return conv_flop_count(x, grad_y, out_shape)


@operator(flops=_weight_grad_flops, save=_save_both, gradients=_weight_grad_gradients)
def depthwise_conv_weight_grad(
    grad_y: Tensor,
    x: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    kernel: Sequence[int],
    passes: int = BY_THRESHOLDS,
) -> Plan:
    """The (C, 1, *kernel) gradient of the filters."""
    name = "depthwise_conv_weight_grad"
    check_alike(name, grad_y=grad_y, x=x)
    geometry, out = _checked(name, x.shape, kernel, padding, stride, dilation)
    check_shape(name, out, grad_y=grad_y)

    def fake() -> Tensor:
        return x.new_empty((x.shape[1], 1, *kernel))

    def compute() -> Tensor:
        if not runs_natively("weight_grad", x, kernel, geometry, channels_last=is_channels_last(x), passes=passes):
            return reference_weight_grad(grad_y, x, geometry, kernel).contiguous()
        grad, image, grad_weight = readable(grad_y), readable(x), fake()
        struct = native.geometry_of(image, kernel, geometry, grad)
        native.call("depthwise_weight_grad", struct, grad, image, grad_weight)
        return grad_weight

    return Plan(fake, compute)


# The bias gradient.


def _save_channel_sum(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    ctx.shape = inputs[0].shape


def _channel_sum_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor]:
    return (grad.reshape(-1, *[1] * (len(ctx.shape) - 2)).expand(ctx.shape),)


@operator(save=_save_channel_sum, gradients=_channel_sum_gradients)
def channel_sum(x: Tensor) -> Plan:
    """The (C,) sums of (N, C, *size) over images and pixels: the gradient of the bias."""
    if x.dim() not in (3, 4, 5) or x.shape[1] == 0:
        raise KernelError(f"channel_sum: x must be (N, C, 1 to 3 sizes), got {tuple(x.shape)}")

    def compute() -> Tensor:
        if x.shape[1] >= LEAST_CHANNELS and is_channels_last(x) and native.takes(x):
            return native.channel_sum(dense(x, channels_last=True))
        return x.sum((0, *range(2, x.dim())))

    return Plan(lambda: x.new_empty(x.shape[1]), compute)


# The passes in PyTorch's operators, for any dtype, device, layout and number of axes. Filters of one tap multiply:
# PyTorch would convolve with them, channel by channel where a batch has fewer than 16 images and one thread is in use.


def reference_forward(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """The forward pass."""
    if geometry.is_scaling(weight.shape[2:]):
        return _scaled(x, weight, bias)
    x, shared = _pad_rest(x, geometry.padding)
    convolve = CONVOLVE[weight.dim() - 2]
    return convolve(x, weight, bias, geometry.stride, shared, geometry.dilation, weight.shape[0])


def reference_input_grad(grad_y: Tensor, weight: Tensor, geometry: Geometry, size: Sequence[int]) -> Tensor:
    """The input gradient."""
    if geometry.is_scaling(weight.shape[2:]):
        return _scaled(grad_y, weight)
    shared, rest = _split(geometry.padding)
    padded = (*grad_y.shape[:2], *(extent + sum(edges) for extent, edges in zip(size, rest, strict=True)))
    steps = geometry.stride, shared, geometry.dilation
    grad = INPUT_GRAD[len(size)](padded, weight, grad_y, *steps, weight.shape[0])
    for axis, extent in enumerate(size):  # crop what was padded on one side alone
        grad = grad.narrow(2 + axis, rest[axis][0], extent)
    return grad


def reference_weight_grad(grad_y: Tensor, x: Tensor, geometry: Geometry, kernel: Sequence[int]) -> Tensor:
    """The weight gradient."""
    if geometry.is_scaling(kernel):
        return _scale_grad(grad_y, x)
    x, shared = _pad_rest(x, geometry.padding)
    steps, channels = (geometry.stride, shared, geometry.dilation), x.shape[1]
    return WEIGHT_GRAD[len(kernel)](x, (channels, 1, *kernel), grad_y, *steps, channels)


def _scaled(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    factors = weight.reshape(-1, *[1] * (x.dim() - 2))
    return x * factors if bias is None else torch.addcmul(bias.reshape(factors.shape), x, factors)


def _scale_grad(grad_y: Tensor, x: Tensor) -> Tensor:
    images = max(1, _CHUNK // max(1, prod(x.shape[1:])))
    pixels = (0, *range(2, x.dim()))
    pairs = zip(torch.split(grad_y, images), torch.split(x, images), strict=True)
    sums = [(grad * part).sum(pixels) for grad, part in pairs]
    return torch.stack(sums).sum(0).reshape(-1, *[1] * (x.dim() - 1))


def _split(padding: Numbers) -> tuple[list[int], list[tuple[int, int]]]:
    """The padding that both sides of each axis share, and what is left before and after it."""
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    shared = [min(pair) for pair in pairs]
    return shared, [(before - both, after - both) for (before, after), both in zip(pairs, shared, strict=True)]


def _pad_rest(x: Tensor, padding: Numbers) -> tuple[Tensor, list[int]]:
    """The image with what is padded on one side alone added as zeros, and the padding that both sides share."""
    shared, rest = _split(padding)
    from_last = list(chain.from_iterable(reversed(rest)))  # as F.pad wants it
    return (functional.pad(x, from_last) if any(from_last) else x), shared
