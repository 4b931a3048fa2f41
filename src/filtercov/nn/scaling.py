"""Depthwise filters of one tap, without stride or padding: each channel times a number.

PyTorch convolves with them: channel by channel, where a batch has fewer than 16 images and one thread is in use.
Networks whose branches are merged after training have such filters: MobileOne, FastViT, RepViT.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from filtercov.nn.arguments import Convolution

# Products of gradients and inputs that are added up at a time: 4 MiB, not an image more to hold.
_CHUNK = 2**20


def is_scaling(kernel: Sequence[int], how: Convolution) -> bool:
    """Return whether a convolution multiplies each channel by a number.

    >>> is_scaling((1, 1), Convolution((0,) * 4, (1, 1), (1, 1))), is_scaling((1,), Convolution((0, 0), (2,), (1,)))
    (True, False)
    """
    return prod(kernel) == 1 and max(how.stride) == 1 and max(how.padding) == 0


def scaled(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return (N, C, *size) with each channel times its (C, 1, ...) weight, plus its bias.

    >>> scaled(torch.ones(1, 2, 3), torch.tensor([2.0, 3.0]).reshape(2, 1, 1), torch.tensor([0.0, 1.0]))
    tensor([[[2., 2., 2.],
             [4., 4., 4.]]])
    """
    factors = weight.reshape(-1, *[1] * (x.dim() - 2))
    return x * factors if bias is None else torch.addcmul(bias.reshape(factors.shape), x, factors)


def scale_grad(grad_y: Tensor, x: Tensor) -> Tensor:
    """Return the (C, 1, ...) gradient of the weights."""
    images = max(1, _CHUNK // max(1, prod(x.shape[1:])))
    pixels = (0, *range(2, x.dim()))
    sums = [
        (grad * part).sum(pixels)
        for grad, part in zip(torch.split(grad_y, images), torch.split(x, images), strict=True)
    ]
    return torch.stack(sums).sum(0).reshape(-1, *[1] * (x.dim() - 1))
