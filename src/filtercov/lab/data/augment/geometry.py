"""Affine warps with nearest-neighbour sampling, in the 16.16 fixed point that Pillow uses, so results equal Pillow's.

A warp is a row (a, b, c, d, e, f) of float64: the output pixel centred at (x, y) shows the input at
(a·x + b·y + c, d·x + e·y + f), and black outside the image.
"""

import torch
from torch import Tensor

from filtercov.lab.data.augment.planes import pick_pixels

_ONE = 65536  # 1.0 in 16.16 fixed point


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Warp each uint8 (N, C, H, W) image by its row of the (N, 6) `matrices`; integer arithmetic, the same everywhere.

    >>> shift_right = torch.tensor([[1.0, 0.0, -1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    >>> warp(torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8), shift_right).tolist()
    [[[[0, 1, 2]]]]
    """
    height, width = images.shape[-2:]
    a, b, c, d, e, f = matrices.double().unbind(1)
    x = torch.arange(width, device=images.device, dtype=torch.int32).view(1, 1, width)
    y = torch.arange(height, device=images.device, dtype=torch.int32).view(1, height, 1)
    # Pixel centres lie at half integers, which the offsets take in.
    source_x = (_fixed(c + 0.5 * a + 0.5 * b) + x * _fixed(a) + y * _fixed(b)) >> 16  # (N, H, W)
    source_y = (_fixed(f + 0.5 * d + 0.5 * e) + x * _fixed(d) + y * _fixed(e)) >> 16
    inside = (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
    positions = (source_y * width + source_x).mul_(inside)
    return pick_pixels(images, positions).mul_(inside.unsqueeze(1))


def rotations(degrees: Tensor, height: int, width: int) -> Tensor:
    """Return the (N, 6) warps that rotate counter-clockwise about the image's centre.

    >>> rotations(torch.tensor([90.0]), 4, 4).tolist()
    [[0.0, -1.0, 4.0, 1.0, 0.0, 0.0]]
    """
    radians = -torch.deg2rad(degrees.double())
    # Rounded as Pillow rounds, so that an exact right angle stays exact.
    cos, sin = torch.round(torch.cos(radians), decimals=15), torch.round(torch.sin(radians), decimals=15)
    cx, cy = width / 2, height / 2
    return torch.stack([cos, sin, cx - cos * cx - sin * cy, -sin, cos, cy + sin * cx - cos * cy], dim=1)


def shears(x: Tensor, y: Tensor) -> Tensor:
    """Return the (N, 6) warps that shear by x along rows and by y along columns, about the top left corner."""
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    return torch.stack([one, x, zero, y, one, zero], dim=1).double()


def translations(x: Tensor, y: Tensor) -> Tensor:
    """Return the (N, 6) warps that move the picture right by x and down by y pixels."""
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    return torch.stack([one, zero, -x, zero, one, -y], dim=1).double()


def _fixed(values: Tensor) -> Tensor:
    return torch.floor(values * _ONE + 0.5).to(torch.int32).view(-1, 1, 1)
