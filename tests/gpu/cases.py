"""Convolutions of every filter over every small image, with layouts, types and tiles drawn for each, and results."""

import itertools
import random
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from filtercov.nn.gpu.tiles import Tile
from tests.nn.support import exact_passes

LARGE = 40  # taps
PASSES = ("forward", "input_grad", "weight_grad")
FACTORS = {
    "which": PASSES,
    "dtype": (torch.float32, torch.float16, torch.bfloat16),
    "layout": ("first", "last", "sliced", "mixed"),
    "kernel": (
        *((3, 3), (5, 5), (7, 7), (9, 9), (15, 15), (31, 31), (2, 2), (4, 4), (6, 3), (3, 8), (1, 5), (7, 1), (1, 1)),
        *((31, 3), (2, 31), (5, 11), (10, 10), (1, 31)),
    ),
    "padding": ("none", "half", "full", "more", "one side", "uneven"),
    "channels": (1, 2, 3, 5, 8),
    # Rows and columns of the output without padding; one row, one column and one pixel are among them.
    "pixels": ((1, 1), (1, 9), (7, 1), (2, 2), (3, 4), (4, 3), (5, 5), (2, 11), (6, 2), (3, 7), (4, 8), (8, 3)),
    "tile": (None, Tile(2, 4, 4, 2), Tile(3, 8, 4, 1), Tile(1, 16, 8, 3), Tile(4, 4, 2, 4)),
}


class Case(NamedTuple):
    which: str
    dtype: torch.dtype
    layout: str
    kernel: tuple[int, int]
    padding: str
    channels: int
    pixels: tuple[int, int]
    tile: Tile | None

    def __str__(self):
        dtype = str(self.dtype).removeprefix("torch.")
        return "-".join(map(str, self._replace(dtype=dtype)))

    def edges(self):
        """(top, bottom, left, right)."""
        high, wide = self.kernel
        return {
            "none": (0, 0, 0, 0),
            "half": (high // 2, high // 2, wide // 2, wide // 2),
            "full": (high - 1, high - 1, wide - 1, wide - 1),
            "more": (high + 1, 0, 0, wide + 1),  # than the filter covers
            "one side": (high - 1, 0, 0, wide - 1),
            "uneven": (0, 1, 2, 1),
        }[self.padding]

    def numbers(self, generator, draw):
        """Image, weight, bias and the gradient of the output."""
        top, bottom, left, right = self.edges()
        padding = top + bottom, left + right
        least = zip(self.pixels, self.kernel, padding, strict=True)
        size = [max(1, pixels + taps - 1 - pads) for pixels, taps, pads in least]
        out = [pixels + pads - taps + 1 for pixels, taps, pads in zip(size, self.kernel, padding, strict=True)]
        n, c = (2 if prod(self.kernel) < LARGE else 1), self.channels
        image = draw((n, c, *size), self.dtype, generator)
        grad = draw((n, c, *out), self.dtype, generator)
        weight, bias = draw((c, 1, *self.kernel), self.dtype, generator), draw((c,), self.dtype, generator)
        layouts = ("last", "first") if self.layout == "mixed" else (self.layout, self.layout)
        return stored(image, layouts[0]), weight, bias, stored(grad, layouts[1])

    def small_tile(self):
        """The tile, larger for large filters, of which the interpreter runs few."""
        if self.tile is None or prod(self.kernel) < LARGE:
            return self.tile
        return self.tile._replace(rows=self.tile.rows + 4, lanes=32, channels=8)


def stored(image: Tensor, layout: str) -> Tensor:
    """The image with other strides: channels last, or as every second row of a larger one, turned over."""
    if layout == "first":
        return image.contiguous()
    if layout == "last":
        return image.movedim(1, -1).contiguous().movedim(-1, 1)
    n, c, h, w = image.shape
    large = image.new_full((n, c + 1, w + 3, 2 * h), 9).mT
    part = large[:, 1:, ::2, 2:-1]
    return part.copy_(image)


def rounded(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 numbers as the interpreter rounds them: of bfloat16 it cuts off the end, where GPUs round."""
    if dtype != torch.bfloat16:
        return exact.to(dtype)
    return (exact.float().view(torch.int32) & -(2**16)).view(torch.float32).to(dtype)


def integers(shape, dtype, generator):
    return torch.randint(-16, 17, shape, generator=generator).to(dtype)


def reals(shape, dtype, generator):
    return torch.randn(shape, generator=generator).to(dtype)


def expected(which, image, weight, bias, grad, edges):
    """A pass in float64, and the sum of the absolute values of its terms."""
    tensors, steps = (image, weight, bias, grad), ((1, 1), (1, 1))
    exact, sizes = (exact_passes(*given, edges, *steps) for given in (tensors, [tensor.abs() for tensor in tensors]))
    return exact[PASSES.index(which)], sizes[PASSES.index(which)]


def _cases(seed=0):
    """Each filter with each size, and every other value at random: about nine in ten of all pairs, or more."""
    draw = random.Random(seed)
    for kernel, pixels in itertools.product(FACTORS["kernel"], FACTORS["pixels"]):
        drawn = {name: draw.choice(values) for name, values in FACTORS.items()}
        yield Case(**drawn | {"kernel": kernel, "pixels": pixels})


CASES = list(_cases())
