"""Depthwise convolution: a function, and the module that replaces `nn.Conv2d`."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]
from torch.nn import functional

from filtercov.errors import ModelError
from filtercov.nn import ops, routing
from filtercov.nn.arguments import Size, check_fit, check_tensors, edges, pair
from filtercov.nn.routing import untraced


def depthwise_conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
) -> Tensor:
    """Convolve each channel of (N, C, H, W), or (C, H, W), with its own filter of (C, 1, KH, KW).

    The same results and kinds of error as `F.conv2d(..., groups=C)`, computed by filtercov's kernels where those are
    faster. A frozen filter costs no weight gradient and keeps no input alive, whatever the bias does. Filters of shape
    (M * C, 1, KH, KW) give M outputs per channel, as in `F.conv2d`.

    >>> x = torch.arange(9.0).reshape(1, 1, 3, 3)
    >>> depthwise_conv2d(x, torch.ones(1, 1, 2, 2))
    tensor([[[[ 8., 12.],
              [20., 24.]]]])
    """
    if torch.overrides.has_torch_function_variadic(x, weight, bias):
        # As in torch.nn.functional: torch.fx's proxies, tensor subclasses and function modes see one call.
        tensors, others = (x, weight, bias), (stride, padding, dilation)
        return torch.overrides.handle_torch_function(depthwise_conv2d, tensors, *tensors, *others)
    strides, dilations = pair("stride", stride, least=1), pair("dilation", dilation, least=1)
    margins = _operator_margins(x, weight, bias, strides, padding, dilations)
    if margins is None:
        exact_padding = padding if isinstance(padding, str) else pair("padding", padding)
        return _in_torch(x, weight, bias, strides, exact_padding, dilations)
    y: Tensor = ops.depthwise_conv2d(x if x.dim() == 4 else x[None], weight, bias, margins)
    return y if x.dim() == 4 else y[0]


@untraced
def _operator_margins(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: Size | str,
    dilation: tuple[int, int],
) -> tuple[int, int, int, int] | None:
    """Return the padding to call filtercov's operator with, or None if the convolution is PyTorch's."""
    if routing.fits(x, weight, bias, stride, dilation):  # the operator itself checks the rest
        return edges(padding, weight.shape[2:], stride, dilation)
    check_tensors(x, weight, bias)
    check_fit(x.shape, weight.shape[2:], edges(padding, weight.shape[2:], stride, dilation), dilation)
    return None


def _in_torch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int] | str,
    dilation: tuple[int, int],
) -> Tensor:
    channels = _channels(x)
    if bias is None or weight.requires_grad or not bias.requires_grad:
        return functional.conv2d(x, weight, bias, stride, padding, dilation, channels)
    # To get the bias gradient PyTorch's CPU backward computes the weight gradient too; a separate sum spares us that.
    y = functional.conv2d(x, weight, None, stride, padding, dilation, channels)
    return y + bias.to(y.dtype)[:, None, None]


@untraced
def _channels(x: Tensor) -> int:
    return x.shape[-3]


class DepthwiseConv2d(nn.Conv2d):
    """A depthwise `nn.Conv2d`: same arguments, same parameters, same results, computed by `depthwise_conv2d`.

    >>> layer = DepthwiseConv2d(8, 8, kernel_size=9, padding="same", groups=8)
    >>> layer(torch.zeros(2, 8, 16, 16)).shape
    torch.Size([2, 8, 16, 16])
    """

    always_depthwise = True  # also with one channel, where any convolution would be

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, *args: Any, **kwargs: Any) -> None:
        super().__init__(in_channels, out_channels, kernel_size, *args, **kwargs)  # type: ignore[arg-type]
        if self.groups != in_channels:
            raise ModelError(
                f"DepthwiseConv2d: {in_channels} input channels need groups={in_channels}, got groups={self.groups}; "
                "use nn.Conv2d for other groupings"
            )

    def forward(self, input: Tensor) -> Tensor:
        """Return the (N, C, OH, OW) convolution of the (N, C, H, W) input."""
        if is_scripting():  # TorchScript compiles this branch alone
            plain: Tensor = self._conv_forward(input, self.weight, self.bias)
            return plain
        padding: Size | str = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return depthwise_conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation)
