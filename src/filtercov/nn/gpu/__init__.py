"""Depthwise convolution on a GPU, in Triton, which GPU builds of PyTorch bring along.

Importing this makes Triton's kernels the implementation of the operators in `conv_operators.py` on a GPU, for the
passes that `passes` asks for; the others are PyTorch's, as all are without Triton. Triton is imported by the first pass
that runs in it. With `TRITON_INTERPRET=1` in the environment, the same code runs on the CPU, slowly, to be tested. No
speed has been measured: docs/gpu.md says what to expect and how to measure.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from math import prod
from typing import Any

import torch
from torch import Tensor

from filtercov.errors import KernelError
from filtercov.nn.conv_operators import depthwise_conv, depthwise_conv_input_grad, depthwise_conv_weight_grad
from filtercov.nn.geometry import Geometry, Size, parse_geometry
from filtercov.nn.gpu.tiles import can_win
from filtercov.nn.layout import is_channels_last
from filtercov.nn.operator import implement
from filtercov.nn.routing import BITS, BY_THRESHOLDS, GPU_DTYPES, INTERPRETED, ON_GPU, Pass, autocast

__all__ = ["cuda_clock", "depthwise_conv2d", "supports"]

LARGEST_KERNEL = 31
LARGEST_OFFSET = 2**30  # within an image, for the kernels' 32-bit integers and what tiles overhang

Numbers = Sequence[int]


def depthwise_conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, padding: Size | str = 0) -> Tensor:
    """Convolve each channel of (N, C, H, W) with its own filter of (C, 1, KH, KW), on the GPU.

    The same as `F.conv2d(input, weight, bias, padding=padding, groups=C)` in float32, float16 or bfloat16, with sums in
    float32, gradients of any order, and for each shape the same bits in every run. Filters are at most 31 pixels high
    and wide. A convolution over lines is one over images of one row: (N, C, 1, L) with (C, 1, 1, K).
    """
    name, kernel = "gpu.depthwise_conv2d", weight.shape[2:]
    if not _has_triton():
        raise KernelError(f"{name} needs triton, which is not installed; `pip install triton`, or a GPU build of torch")
    if input.dim() != 4 or weight.dim() != 4:
        shapes = f"{tuple(input.shape)} and {tuple(weight.shape)}"
        raise KernelError(f"{name} needs images of (N, C, H, W) and filters of (C, 1, KH, KW), got {shapes}")
    x, filters, offset = autocast(input, weight, bias)
    geometry = parse_geometry(kernel, stride=1, padding=padding, dilation=1)
    if not has_kernel(x, kernel, geometry):
        raise KernelError(
            f"{name} needs images of less than {LARGEST_OFFSET} numbers in one of {GPU_DTYPES} on a GPU (or on a CPU "
            f"with TRITON_INTERPRET=1), and filters of at most {LARGEST_KERNEL} pixels a side, got images of "
            f"{tuple(x.shape[1:])} in {x.dtype} on {x.device}, and filters of {tuple(kernel)}"
        )
    result: Tensor = depthwise_conv(x, filters, offset, *geometry, sum(BITS.values()) + ON_GPU)
    return result


def has_kernel(image: Tensor, kernel: Numbers, geometry: Geometry) -> bool:
    """Whether there is a kernel for (N, C, H, W) images or (N, C, L) lines, on a GPU or in Triton's interpreter."""
    return (
        _has_triton()
        and (image.device.type == "cuda" or (INTERPRETED and image.is_cpu))
        and image.dtype in GPU_DTYPES
        and len(kernel) <= 2
        and max(kernel) <= LARGEST_KERNEL
        and max(*geometry.stride, *geometry.dilation) == 1
        and _reach(image, kernel, geometry.padding) < LARGEST_OFFSET
    )


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _reach(image: Tensor, kernel: Numbers, padding: Numbers) -> int:
    """The most memory cells that one image spans: this, or what is computed from it."""
    channels, *size = image.shape[1:]
    spanned = 1 + sum((n - 1) * stride for n, stride in zip(image.shape[1:], image.stride()[1:], strict=True))
    largest = [size[i] + max(padding[2 * i] + padding[2 * i + 1] - taps + 1, taps - 1) for i, taps in enumerate(kernel)]
    return max(spanned, channels * prod(largest))


def supports(which: Pass, image: Tensor, kernel: Numbers, geometry: Geometry) -> bool:
    """Whether a pass over images, or lines, has a kernel that is worth timing: one that can win by the estimate.

    3×3 filters in float32 cannot, which wait for memory either way, nor can filters much larger than the image, of
    which PyTorch skips most taps.
    """
    if image.numel() == 0 or max(kernel) < 3 or not has_kernel(image, kernel, geometry):
        return False
    size, taps, above = (1, *image.shape[2:])[-2:], (1, *kernel)[-2:], _as_edges(geometry.padding)[0]
    return can_win(which, size, taps, above, image.element_size(), channels_last=is_channels_last(image))


def spills(which: Pass, image: Tensor, kernel: Numbers, geometry: Geometry) -> bool:
    """Whether a pass, compiled for this GPU and run once, lacked registers: it would move numbers through memory."""
    if INTERPRETED:  # which has no registers
        return False
    from filtercov.nn.gpu import launch

    x, taps, edges = _as_image(image), (1, *kernel)[-2:], _as_edges(geometry.padding)
    filters = x.new_zeros(x.shape[1], 1, *taps)
    launch.spilled.clear()
    y = launch.forward(x, filters, None, edges)
    if which != "forward":
        launch.spilled.clear()
        if which == "input_grad":
            launch.input_gradient(y, filters, edges, x.shape[2:], channels_last=is_channels_last(x))
        else:
            launch.weight_gradient(y, x, edges, taps)
    return bool(launch.spilled)


# The operators' passes on a GPU; None leaves a pass to PyTorch. Lines are images of one row.


def _runs(which: Pass, passes: int, image: Tensor, kernel: Numbers, *geometry: Numbers) -> bool:
    asked_for = passes != BY_THRESHOLDS and passes & ON_GPU and passes & BITS[which]
    return bool(asked_for) and has_kernel(image, kernel, Geometry(*map(tuple, geometry)))


def _as_image(tensor: Tensor) -> Tensor:
    return tensor[:, :, None] if tensor.dim() == 3 else tensor


def _as_edges(padding: Numbers) -> tuple[int, ...]:
    return (0, 0, *padding)[-4:]


def _as_line(image: Tensor, kernel: Numbers) -> Tensor:
    return image[:, :, 0] if len(kernel) == 1 else image


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: Numbers, stride: Numbers, dilation: Numbers, passes: int
) -> Tensor | None:
    kernel = weight.shape[2:]
    if not _runs("forward", passes, x, kernel, padding, stride, dilation):
        return None
    from filtercov.nn.gpu import launch

    return _as_line(launch.forward(_as_image(x), _as_image(weight), bias, _as_edges(padding)), kernel)


def _input_grad(
    grad_y: Tensor,
    weight: Tensor,
    padding: Numbers,
    stride: Numbers,
    dilation: Numbers,
    size: Numbers,
    channels_last: bool,
    passes: int,
) -> Tensor | None:
    kernel = weight.shape[2:]
    if not _runs("input_grad", passes, grad_y, kernel, padding, stride, dilation):
        return None
    from filtercov.nn.gpu import launch

    grad, filters, extent = _as_image(grad_y), _as_image(weight), (1, *size)[-2:]
    image = launch.input_gradient(grad, filters, _as_edges(padding), extent, channels_last=channels_last)
    return _as_line(image, kernel)


def _weight_grad(
    grad_y: Tensor, x: Tensor, padding: Numbers, stride: Numbers, dilation: Numbers, kernel: Numbers, passes: int
) -> Tensor | None:
    if not _runs("weight_grad", passes, x, kernel, padding, stride, dilation):
        return None
    from filtercov.nn.gpu import launch

    taps = (1, *kernel)[-2:]
    return _as_line(launch.weight_gradient(_as_image(grad_y), _as_image(x), _as_edges(padding), taps), kernel)


for _device in ("cuda", "cpu") if INTERPRETED else ("cuda",):
    implement(depthwise_conv, _device)(_forward)
    implement(depthwise_conv_input_grad, _device)(_input_grad)
    implement(depthwise_conv_weight_grad, _device)(_weight_grad)


def cuda_clock() -> Callable[[], float]:
    """A clock of the current stream's work, in seconds.

    Each reading records an event, waits for it, and adds the time since the one before: float32 milliseconds are too
    coarse over a long run.
    """
    new_event: Any = torch.cuda.Event  # which has no types
    latest, total = new_event(enable_timing=True), 0.0
    latest.record()

    def now() -> float:
        nonlocal latest, total
        event = new_event(enable_timing=True)
        event.record()
        event.synchronize()
        total += latest.elapsed_time(event) / 1000
        latest = event
        return float(total)

    return now
