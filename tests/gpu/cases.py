"""Convolutions of every filter over every small image, with layouts, types and tiles drawn for each, and results."""

import itertools
import random
from typing import NamedTuple

import torch
from torch import Tensor

from filtercov.nn.geometry import Geometry
from filtercov.nn.gpu.tiles import Tile
from tests.nn.support import Case, exact_passes, last

LARGE = 40  # taps
PASSES = ("forward", "input_grad", "weight_grad")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
KERNELS = (
    *((3, 3), (5, 5), (7, 7), (9, 9), (15, 15), (31, 31), (2, 2), (4, 4), (6, 3), (3, 8), (1, 5), (7, 1), (1, 1)),
    *((31, 3), (2, 31), (5, 11), (10, 10), (1, 31)),
)
# Rows and columns of the output without padding; one row, one column and one pixel are among them.
PIXELS = ((1, 1), (1, 9), (7, 1), (2, 2), (3, 4), (4, 3), (5, 5), (2, 11), (6, 2), (3, 7), (4, 8), (8, 3))
TILES = (None, Tile(2, 4, 4, 2), Tile(3, 8, 4, 1), Tile(1, 16, 8, 3), Tile(4, 4, 2, 4))


class Launch(NamedTuple):
    """A pass of a convolution, how its images are stored, and its tile."""

    case: Case
    which: str
    dtype: torch.dtype
    layouts: tuple[str, str]
    tile: Tile | None

    def tensors(self, *, real: bool):
        """Image, weight, bias and the gradient of the output, of small integers or of real numbers."""
        tensors = self.case.tensors(torch.Generator().manual_seed(0), largest=16)
        drawn = map(torch.randn_like, tensors) if real else tensors
        image, weight, bias, grad = (tensor.to(self.dtype) for tensor in drawn)
        return stored(image, self.layouts[0]), weight, bias, stored(grad, self.layouts[1])


def _launches(seed=0):
    """Each filter with each size, and every other value at random: about nine in ten of all pairs, or more."""
    draw = random.Random(seed)
    for (high, wide), (rows, columns) in itertools.product(KERNELS, PIXELS):
        none, half, full = ((y, y, x, x) for y, x in ((0, 0), (high // 2, wide // 2), (high - 1, wide - 1)))
        more, one_side, uneven = (high + 1, 0, 0, wide + 1), (high - 1, 0, 0, wide - 1), (0, 1, 2, 1)
        top, bottom, left, right = edges = draw.choice((none, half, full, more, one_side, uneven))
        size = max(1, rows + high - 1 - top - bottom), max(1, columns + wide - 1 - left - right)
        tile, batch = draw.choice(TILES), 2
        if high * wide >= LARGE:  # of whose tiles the interpreter runs few
            tile, batch = tile and tile._replace(rows=tile.rows + 4, lanes=32, channels=8), 1
        case = Case(batch, draw.choice((1, 2, 3, 5, 8)), size, (high, wide), Geometry(edges, (1, 1), (1, 1)), False)
        layouts = draw.choice((("first", "first"), ("last", "last"), ("sliced", "sliced"), ("last", "first")))
        yield Launch(case, draw.choice(PASSES), draw.choice(DTYPES), layouts, tile)


LAUNCHES = list(_launches())


def stored(image: Tensor, layout: str) -> Tensor:
    """The image with other strides: channels last, or as every second row of a larger one, turned over."""
    if layout != "sliced":
        return last(image) if layout == "last" else image.contiguous()
    n, c, h, w = image.shape
    large = image.new_full((n, c + 1, w + 3, 2 * h), 9).mT
    part = large[:, 1:, ::2, 2:-1]
    return part.copy_(image)


def rounded(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Float64 numbers as the interpreter rounds them: of bfloat16 it cuts off the end, where GPUs round."""
    if dtype != torch.bfloat16:
        return exact.to(dtype)
    return (exact.float().view(torch.int32) & -(2**16)).view(torch.float32).to(dtype)


def expected(which, image, weight, bias, grad, edges):
    """A pass in float64, and the sum of the absolute values of its terms."""
    tensors, steps = (image, weight, bias, grad), ((1, 1), (1, 1))
    exact, sizes = (exact_passes(*given, edges, *steps) for given in (tensors, [tensor.abs() for tensor in tensors]))
    return exact[PASSES.index(which)], sizes[PASSES.index(which)]
