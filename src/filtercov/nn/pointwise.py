"""1×1 convolutions: as products of matrices, and, with a stride, kept out of a memory fault in oneDNN."""

import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]
from torch.nn import functional

from filtercov.nn.routing import PLAIN_TENSORS, nothing_intervenes, untraced

WIDEST_VECTOR = 16  # lanes


class PointwiseConv2d(nn.Conv2d):
    """A 1×1 `nn.Conv2d` that multiplies matrices where the image is channels_last on the CPU.

    The channels of a pixel are then a row, and the convolution is `F.linear`. PyTorch hands it to oneDNN instead, which
    is slower for some shapes on some machines: only measuring tells, so `accelerate_` needs an example to use this.

    >>> layer = PointwiseConv2d(8, 16, kernel_size=1)
    >>> layer(torch.zeros(2, 8, 5, 5).to(memory_format=torch.channels_last)).shape
    torch.Size([2, 16, 5, 5])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the (N, M, H, W) convolution of the (N, C, H, W) input."""
        if is_scripting():  # TorchScript compiles this branch alone
            return self._conv_forward(input, self.weight, self.bias)  # type: ignore[no-any-return]
        if not _has_rows(input) or "_conv_forward" in vars(self):
            return self._conv_forward(input, self.weight, self.bias)  # type: ignore[no-any-return]
        rows = functional.linear(input.permute(0, 2, 3, 1), self.weight.flatten(1), self.bias)
        return rows.permute(0, 3, 1, 2)


@untraced
def _has_rows(x: Tensor) -> bool:
    return (
        type(x) in PLAIN_TENSORS
        and nothing_intervenes()
        and x.dim() == 4
        and x.device.type == "cpu"
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
    )


def is_pointwise(layer: nn.Conv2d) -> bool:
    """Return whether a convolution multiplies each pixel by one matrix.

    >>> is_pointwise(nn.Conv2d(8, 16, 1)), is_pointwise(nn.Conv2d(8, 16, 1, groups=2))
    (True, False)
    """
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
        """Return the (N, M, OH, OW) convolution of the (N, C, H, W) input."""
        if "_conv_forward" in vars(self):  # replaced by its owner
            return self._conv_forward(input, self.weight, self.bias)  # type: ignore[no-any-return]
        down, across = self.stride
        return functional.conv2d(input[..., ::down, ::across], self.weight, self.bias, groups=self.groups)


def is_endangered(layer: nn.Conv2d) -> bool:
    """Return whether oneDNN's weight gradient of a convolution, in channels_last memory, writes past its workspace.

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
