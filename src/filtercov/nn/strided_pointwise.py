"""1×1 convolutions with a stride, kept out of a fault of PyTorch's.

In channels_last memory PyTorch hands them to oneDNN, whose weight gradient then writes past its workspace when a group
has fewer input channels than a vector has lanes (https://github.com/uxlfoundation/oneDNN/issues/6035): 8 with AVX2, 16
with AVX-512. What follows is an abort, a segmentation fault or wrong gradients. docs/depthwise.md has the smallest
program that shows it.
"""

from torch import Tensor, nn
from torch.nn import functional

WIDEST_VECTOR = 16


def is_endangered(convolution: nn.Conv2d) -> bool:
    """Return whether PyTorch's weight gradient of a convolution, in channels_last memory, writes where it must not.

    One input channel per group, as in a depthwise convolution, is computed by other means.

    >>> is_endangered(nn.Conv2d(3, 48, 1, stride=2)), is_endangered(nn.Conv2d(3, 48, 3, stride=2, padding=1))
    (True, False)
    """
    return (
        convolution.kernel_size == (1, 1)
        and convolution.stride != (1, 1)
        and convolution.padding in ((0, 0), "valid")
        and 1 < convolution.in_channels // convolution.groups < WIDEST_VECTOR
    )


class StridedPointwiseConv2d(nn.Conv2d):
    """A 1×1 `nn.Conv2d` that takes the pixels its stride leaves first and convolves them without a stride.

    >>> import torch
    >>> layer = StridedPointwiseConv2d(3, 8, kernel_size=1, stride=2)
    >>> layer(torch.zeros(2, 3, 9, 9)).shape
    torch.Size([2, 8, 5, 5])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the (N, M, OH, OW) convolution of the (N, C, H, W) input."""
        if "_conv_forward" in vars(self):  # somebody's own
            return self._conv_forward(input, self.weight, self.bias)  # type: ignore[no-any-return]
        down, across = self.stride
        return functional.conv2d(input[..., ::down, ::across], self.weight, self.bias, groups=self.groups)
