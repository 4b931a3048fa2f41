"""Convolutions as functions, and as modules that replace `nn.Conv1d`, `nn.Conv2d` and `nn.Conv3d`.

Depthwise ones first; then 1×1 ones as products of matrices, or, with a stride, kept out of a memory fault in oneDNN.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from filtercov.errors import ModelError
from filtercov.nn import routing
from filtercov.nn.conv_operators import CONVOLVE, depthwise_conv
from filtercov.nn.geometry import Geometry, Size, parse_geometry
from filtercov.nn.routing import BY_THRESHOLDS, PLAIN_TENSORS, nothing_intervenes

WIDEST_VECTOR = 16  # lanes

Tensors = tuple[Tensor, Tensor, Tensor | None]  # x, weight, bias
Steps = tuple[Size, Size | str, Size]  # stride, padding, dilation


def depthwise_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    *,
    passes: int = BY_THRESHOLDS,
) -> Tensor:
    """Convolve each channel of (N, C, L), or (C, L), with its own filter of (C, 1, K); else as `depthwise_conv2d`.

    A causal convolution has padding of (K - 1) * dilation, and keeps the first L of the result.

    >>> depthwise_conv1d(torch.arange(4.0).reshape(1, 1, 4), torch.ones(1, 1, 3), padding=2)[..., :4]
    tensor([[[0., 1., 3., 6.]]])
    """
    return _convolve(depthwise_conv1d, 1, (x, weight, bias), (stride, padding, dilation), passes)


def depthwise_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    *,
    passes: int = BY_THRESHOLDS,
) -> Tensor:
    """Convolve each channel of (N, C, H, W), or (C, H, W), with its own filter of (C, 1, KH, KW).

    The same results and kinds of error as `F.conv2d(..., groups=C)`, computed by filtercov's kernels where those are
    faster: where `passes`, a sum of 1 (forward), 2 (input gradient) and 4 (weight gradient), says so (with 8 on a GPU,
    without it on the CPU), or else where thresholds do. A frozen filter costs no weight gradient and keeps no input
    alive, whatever the bias does. Filters of shape (M * C, 1, KH, KW) give M outputs per channel, as in `F.conv2d`.

    >>> x = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> depthwise_conv2d(x, torch.ones(1, 1, 2, 2))
    tensor([[[[ 8., 12.],
              [20., 24.]]]])
    """
    return _convolve(depthwise_conv2d, 2, (x, weight, bias), (stride, padding, dilation), passes)


def depthwise_conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    *,
    passes: int = BY_THRESHOLDS,
) -> Tensor:
    """Convolve each channel of (N, C, D, H, W), or (C, D, H, W), with its own filter; else as `depthwise_conv2d`.

    >>> depthwise_conv3d(torch.ones(1, 8, 4, 4, 4), torch.ones(8, 1, 3, 3, 3), padding=1)[0, 0, 1, 1]
    tensor([18., 27., 27., 18.])
    """
    return _convolve(depthwise_conv3d, 3, (x, weight, bias), (stride, padding, dilation), passes)


def _convolve(public: Callable[..., Tensor], axes: int, tensors: Tensors, steps: Steps, passes: int) -> Tensor:
    if torch.overrides.has_torch_function(tensors):
        # As in torch.nn.functional: torch.fx's proxies, tensor subclasses and function modes see one call.
        result: Tensor = torch.overrides.handle_torch_function(public, tensors, *tensors, *steps, passes=passes)
        return result
    x, weight, bias = tensors
    if isinstance(x, Tensor) and routing.on_gpu(x) and routing.is_measured(x, passes):
        x, weight, bias = tensors = routing.autocast(*tensors)
    geometry = _geometry_for_operator(axes, tensors, steps, passes)
    if geometry is not None:
        batched = x.dim() == axes + 2
        y: Tensor = depthwise_conv(x if batched else x[None], weight, bias, *geometry, passes)
        return y if batched else y[0]
    convolve, channels = CONVOLVE[axes], _channels(x, axes)
    if bias is None or not bias.requires_grad or weight.requires_grad or not bias.is_cpu:
        return convolve(x, weight, bias, *steps, channels)
    # To get the bias gradient PyTorch's CPU backward computes the weight gradient too; adding the bias separately
    # avoids that.
    y = convolve(x, weight, None, *steps, channels)
    return y + bias.to(y.dtype).reshape(weight.shape[0], *[1] * axes)


def _geometry_for_operator(axes: int, tensors: Tensors, steps: Steps, passes: int) -> Geometry | None:
    """The geometry to call our operator with, or None if the call is PyTorch's, which checks its arguments."""
    if not routing.fits(axes, *tensors):
        return None
    x, weight, _ = tensors
    kernel = weight.shape[2:]
    geometry = parse_geometry(kernel, *steps)
    if routing.is_measured(x, passes) or routing.worth_a_call(x, kernel, geometry, trained=weight.requires_grad):
        return geometry
    return None


def _channels(x: Tensor, axes: int) -> int:
    return x.shape[-1 - axes] if isinstance(x, Tensor) and x.dim() > axes else 1  # else PyTorch refuses it


class _DepthwiseConv(_ConvNd):
    """The common part of the depthwise modules of every dimension."""

    always_depthwise = True  # also with one channel, where any convolution would be
    passes = BY_THRESHOLDS  # those that run natively; `accelerate_` sets it where it has an example to measure with

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, *args: Any, **kwargs: Any) -> None:
        super().__init__(in_channels, out_channels, kernel_size, *args, **kwargs)  # type: ignore[arg-type]
        if self.groups != in_channels:
            name = type(self).__name__
            raise ModelError(
                f"{name}: {in_channels} input channels need groups={in_channels}, got groups={self.groups}; "
                f"use nn.{name.removeprefix('Depthwise')} for other groupings"
            )

    def forward(self, input: Tensor) -> Tensor:
        """The (N, C, *out) convolution of the (N, C, *size) input."""
        if routing.is_traced():  # the number of groups is then a constant
            return super().forward(input)  # type: ignore[no-any-return]
        padding: Size | str = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        convolve = _FUNCTIONS[len(self.kernel_size)]
        return convolve(input, self.weight, self.bias, self.stride, padding, self.dilation, passes=self.passes)


class DepthwiseConv1d(_DepthwiseConv, nn.Conv1d):
    """A depthwise `nn.Conv1d`: same arguments, same parameters, same results, computed by `depthwise_conv1d`."""


class DepthwiseConv2d(_DepthwiseConv, nn.Conv2d):
    """A depthwise `nn.Conv2d`: same arguments, same parameters, same results, computed by `depthwise_conv2d`.

    >>> layer = DepthwiseConv2d(8, 8, kernel_size=9, padding="same", groups=8)
    >>> layer(torch.zeros(2, 8, 16, 16)).shape
    torch.Size([2, 8, 16, 16])
    """


class DepthwiseConv3d(_DepthwiseConv, nn.Conv3d):
    """A depthwise `nn.Conv3d`: same arguments, same parameters, same results, computed by `depthwise_conv3d`."""


_FUNCTIONS = {1: depthwise_conv1d, 2: depthwise_conv2d, 3: depthwise_conv3d}


# 1×1 convolutions.


class PointwiseConv2d(nn.Conv2d):
    """A 1×1 `nn.Conv2d` that multiplies matrices where the image is channels_last on the CPU.

    The channels of a pixel are then a row, and the convolution is `F.linear`. PyTorch hands it to oneDNN instead, which
    is slower for some shapes on some machines: only measuring tells, so `accelerate_` needs an example to use this.

    >>> layer = PointwiseConv2d(8, 16, kernel_size=1)
    >>> layer(torch.zeros(2, 8, 5, 5).to(memory_format=torch.channels_last)).shape
    torch.Size([2, 16, 5, 5])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The (N, M, H, W) convolution of the (N, C, H, W) input."""
        if not _has_rows(input):
            return super().forward(input)
        rows = functional.linear(input.permute(0, 2, 3, 1), self.weight.flatten(1), self.bias)
        return rows.permute(0, 3, 1, 2)


def _has_rows(x: Tensor) -> bool:
    return (
        type(x) in PLAIN_TENSORS
        and nothing_intervenes()
        and x.is_cpu
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
    )


def is_pointwise(layer: nn.Conv2d) -> bool:
    """Whether a convolution multiplies each pixel by one matrix."""
    return (
        layer.kernel_size == (1, 1)
        and layer.stride == (1, 1)
        and layer.padding in ((0, 0), "valid", "same")
        and layer.groups == 1
    )


class StridedPointwiseConv2d(nn.Conv2d):
    """A 1×1 `nn.Conv2d` that drops the pixels its stride skips, and convolves the others without a stride.

    >>> layer = StridedPointwiseConv2d(3, 8, kernel_size=1, stride=2)
    >>> layer(torch.zeros(2, 3, 9, 9)).shape
    torch.Size([2, 8, 5, 5])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The (N, M, OH, OW) convolution of the (N, C, H, W) input."""
        down, across = self.stride
        return functional.conv2d(input[..., ::down, ::across], self.weight, self.bias, groups=self.groups)


def is_endangered(layer: nn.Conv2d) -> bool:
    """Whether oneDNN's weight gradient of a convolution, in channels_last memory, writes past its workspace.

    It does for strided 1×1 convolutions with fewer input channels a group than a vector has lanes, 8 with AVX2 and 16
    with AVX-512 (https://github.com/uxlfoundation/oneDNN/issues/6035), but for one. The process then aborts, or gets
    wrong gradients. docs/depthwise.md has the smallest program that shows it.

    >>> is_endangered(nn.Conv2d(3, 48, 1, stride=2)), is_endangered(nn.Conv2d(3, 48, 3, stride=2, padding=1))
    (True, False)
    """
    return (
        layer.kernel_size == (1, 1)
        and layer.stride != (1, 1)
        and layer.padding in ((0, 0), "valid")
        and 1 < layer.in_channels // layer.groups < WIDEST_VECTOR
    )
