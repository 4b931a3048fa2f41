"""1×1 convolutions as products of matrices.

In channels_last memory the channels of a pixel are a row, so a 1×1 convolution is `F.linear`. PyTorch hands it to
oneDNN instead, which is as fast for some shapes and slower for others, on some machines: only measuring tells, so
`accelerate_` makes layers of this kind where it has an example to measure with.
"""

import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]
from torch.nn import functional

from filtercov.nn.routing import PLAIN_TENSORS, nothing_intervenes, untraced


class PointwiseConv2d(nn.Conv2d):
    """A 1×1 `nn.Conv2d` that multiplies matrices where the image lies channels last on the CPU.

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


def is_pointwise(layer: nn.Conv2d) -> bool:
    """Return whether a convolution is a product of each pixel with one matrix.

    >>> is_pointwise(nn.Conv2d(8, 16, 1)), is_pointwise(nn.Conv2d(8, 16, 1, groups=2))
    (True, False)
    """
    return (
        layer.kernel_size == (1, 1)
        and layer.stride == (1, 1)
        and layer.padding in ((0, 0), "valid", "same")
        and layer.groups == 1
    )


@untraced
def _has_rows(x: Tensor) -> bool:
    """Return whether the pixels of an image are rows of a matrix, and those of one pixel are not all there is."""
    return (
        type(x) in PLAIN_TENSORS
        and nothing_intervenes()
        and x.dim() == 4
        and x.device.type == "cpu"
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_contiguous()
    )
