"""Depthwise convolution: a function, and the module that replaces `nn.Conv2d`."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from filtercov.errors import ModelError
from filtercov.nn import ops, routing
from filtercov.nn.arguments import Size, check_fit, check_tensors, edges, pair


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
    check_tensors(x, weight, bias)
    strides, dilations = pair("stride", stride, least=1), pair("dilation", dilation, least=1)
    margins = edges(padding, weight.shape[2:], strides, dilations)
    check_fit(x, weight, margins, dilations)
    if not routing.fits(x, weight, strides, dilations):
        exact_padding = padding if isinstance(padding, str) else pair("padding", padding)
        return _in_torch(x, weight, bias, strides, exact_padding, dilations)
    # Without a graph to record, the function behind the operator spares its dispatch.
    recorded = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    convolve = ops.depthwise_conv2d if recorded or torch.compiler.is_compiling() else ops.forward
    y: Tensor = convolve(x if x.dim() == 4 else x[None], weight, bias, margins)
    return y if x.dim() == 4 else y[0]


def _in_torch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int] | str,
    dilation: tuple[int, int],
) -> Tensor:
    if bias is None or weight.requires_grad or not bias.requires_grad:
        return functional.conv2d(x, weight, bias, stride, padding, dilation, x.shape[-3])
    # To get the bias gradient PyTorch's CPU backward computes the weight gradient too; a separate sum spares us that.
    y = functional.conv2d(x, weight, None, stride, padding, dilation, x.shape[-3])
    return y + bias.to(y.dtype)[:, None, None]


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
        padding: Size | str = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return depthwise_conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation)
