"""Depthwise convolution: functions, and modules that replace `nn.Conv1d`, `nn.Conv2d` and `nn.Conv3d`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from filtercov.errors import ModelError
from filtercov.nn import routing
from filtercov.nn.conv_operators import CONVOLVE, depthwise_conv
from filtercov.nn.geometry import Geometry, Size, parse_geometry
from filtercov.nn.routing import BY_THRESHOLDS, untraced


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
    return _convolve(1, depthwise_conv1d, x, weight, bias, stride, padding, dilation, passes)


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
    faster: where `passes`, a sum of 1 (forward), 2 (input gradient) and 4 (weight gradient), says so, or else where
    thresholds do. A frozen filter costs no weight gradient and keeps no input alive, whatever the bias does. Filters of
    shape (M * C, 1, KH, KW) give M outputs per channel, as in `F.conv2d`.

    >>> x = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> depthwise_conv2d(x, torch.ones(1, 1, 2, 2))
    tensor([[[[ 8., 12.],
              [20., 24.]]]])
    """
    return _convolve(2, depthwise_conv2d, x, weight, bias, stride, padding, dilation, passes)


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
    return _convolve(3, depthwise_conv3d, x, weight, bias, stride, padding, dilation, passes)


def _convolve(
    axes: int,
    public: Callable[..., Tensor],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size | str,
    dilation: Size,
    passes: int,
) -> Tensor:
    if torch.overrides.has_torch_function_variadic(x, weight, bias):
        # As in torch.nn.functional: torch.fx's proxies, tensor subclasses and function modes see one call.
        tensors, others = (x, weight, bias), (stride, padding, dilation)
        result: Tensor = torch.overrides.handle_torch_function(public, tensors, *tensors, *others, passes=passes)
        return result
    geometry = _geometry_for_operator(axes, x, weight, bias, stride, padding, dilation, passes)
    if geometry is not None:
        batched = x.dim() == axes + 2
        y: Tensor = depthwise_conv(x if batched else x[None], weight, bias, *geometry, passes)
        return y if batched else y[0]
    convolve, channels = CONVOLVE[axes], _channels(x, axes)
    if bias is None or not bias.requires_grad or weight.requires_grad:
        return convolve(x, weight, bias, stride, padding, dilation, channels)
    # To get the bias gradient PyTorch's CPU backward computes the weight gradient too; adding the bias separately
    # avoids that.
    y = convolve(x, weight, None, stride, padding, dilation, channels)
    return y + bias.to(y.dtype).reshape(weight.shape[0], *[1] * axes)


@untraced
def _geometry_for_operator(
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size | str,
    dilation: Size,
    passes: int,
) -> Geometry | None:
    """Return the geometry to call our operator with, or None if the call is PyTorch's, which checks its arguments."""
    if not routing.fits(axes, x, weight, bias):
        return None
    kernel, trained = weight.shape[2:], weight.requires_grad
    geometry = parse_geometry(axes, kernel, stride=stride, padding=padding, dilation=dilation)
    if passes != BY_THRESHOLDS or routing.worth_a_call(x, kernel, geometry, trained=trained):
        return geometry
    return None


@untraced
def _channels(x: Tensor, axes: int) -> int:
    return x.shape[-1 - axes] if isinstance(x, Tensor) and x.dim() > axes else 1  # else PyTorch refuses it


class _DepthwiseConv(_ConvNd):
    """What the depthwise modules of every dimension share."""

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
        """Return the (N, C, *out) convolution of the (N, C, *size) input."""
        if is_scripting():  # TorchScript compiles this branch alone
            plain: Tensor = self._conv_forward(input, self.weight, self.bias)
            return plain
        if "_conv_forward" in vars(self) or self.groups != self.in_channels:  # changed since it was made
            return self._conv_forward(input, self.weight, self.bias)
        padding: Size | str = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        convolve = _FUNCTIONS[len(self.kernel_size)]
        return convolve(input, self.weight, self.bias, self.stride, padding, self.dilation, passes=self.passes)


class DepthwiseConv1d(_DepthwiseConv, nn.Conv1d):
    """A depthwise `nn.Conv1d`: same arguments, same parameters, same results, computed by `depthwise_conv1d`.

    >>> layer = DepthwiseConv1d(8, 8, kernel_size=31, padding="same", groups=8)
    >>> layer(torch.zeros(2, 8, 100)).shape
    torch.Size([2, 8, 100])
    """


class DepthwiseConv2d(_DepthwiseConv, nn.Conv2d):
    """A depthwise `nn.Conv2d`: same arguments, same parameters, same results, computed by `depthwise_conv2d`.

    >>> layer = DepthwiseConv2d(8, 8, kernel_size=9, padding="same", groups=8)
    >>> layer(torch.zeros(2, 8, 16, 16)).shape
    torch.Size([2, 8, 16, 16])
    """


class DepthwiseConv3d(_DepthwiseConv, nn.Conv3d):
    """A depthwise `nn.Conv3d`: same arguments, same parameters, same results, computed by `depthwise_conv3d`.

    >>> layer = DepthwiseConv3d(8, 8, kernel_size=5, padding="same", groups=8)
    >>> layer(torch.zeros(2, 8, 6, 6, 6)).shape
    torch.Size([2, 8, 6, 6, 6])
    """


_FUNCTIONS = {1: depthwise_conv1d, 2: depthwise_conv2d, 3: depthwise_conv3d}
