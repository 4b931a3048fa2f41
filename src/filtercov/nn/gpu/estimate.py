"""Tiles of the Triton kernels, and an estimate of which passes they can win, from the shapes alone.

The unit is a slot: one instruction of one lane, of which a multiprocessor issues 128 a clock. PyTorch's own depthwise
kernels (DepthwiseConv2d.cu) load an input and a tap for each multiplication, and a multiprocessor loads for 32 lanes a
clock: 8 slots a tap. Ours are counted as their machine code is (docs/gpu.md). Neither is faster than memory: an A100
moves a byte in the time of 12 slots. cuDNN, which PyTorch calls for channels-last images, is not estimated: its source
is not public.
"""

from functools import lru_cache
from typing import Literal, NamedTuple

Pass = Literal["forward", "input_grad", "weight_grad"]
Pair = tuple[int, int]
Edges = tuple[int, int, int, int]

SLOTS_PER_BYTE = 12
SLOTS_PER_LOADED_TAP = 8
# PyTorch's gradients visit taps in the padding too, and its weight gradient divides to find the pixel of each.
SLOTS_PER_VISITED_TAP = {"forward": 0, "input_grad": 5, "weight_grad": 20}
# Instructions of ours beside the multiplications: for a pixel loaded (its mask, its zero), and for a tap loaded.
SLOTS_PER_PIXEL, SLOTS_PER_TAP = 3, 2

ROWS = (16, 14, 8, 7, 4)  # of pixels that a lane computes; 14 and 7 fit images of 224 / 2**n pixels
SUMS = 27  # of the weight gradient that a lane holds in registers, or up to two columns of taps
MOST_COLUMNS = 3  # with four, ptxas spills for sm_100
LEAST_OF_A_LINE = 5  # taps: with fewer, a lane would load each pixel of a line once per tap


class Tile(NamedTuple):
    """What one program computes: `channels` × `lanes` columns of pixels (powers of two), and `rows` of each."""

    rows: int
    lanes: int
    channels: int
    columns: int = 1  # of taps, in the weight gradient
    warps: int = 4


def choose_tile(which: Pass, kernel: Pair, size: Pair, *, channels_last: bool) -> Tile:
    """The tile for an output of `size`.

    >>> choose_tile("forward", (7, 7), (56, 56), channels_last=False)
    Tile(rows=14, lanes=32, channels=4, columns=1, warps=4)
    """
    high, wide = kernel
    power = 1 << (size[1] - 1).bit_length()  # the width, rounded up
    if channels_last:
        # A lane holds neighbouring channels, which one wide load fetches; large filters lack the registers for many.
        vector = 4 if which != "weight_grad" and high <= 8 else 2
        lanes = min(power, 4 * vector)
        channels = max(32, 32 * vector // lanes)
        warps = channels * lanes // (32 * vector)
    else:
        vector, lanes = 1, min(max(power, 4), 32)
        channels, warps = 128 // lanes, 4
    columns = 1
    if which == "weight_grad":
        programs = -(-wide // min(wide, max(2, SUMS // high) // vector, MOST_COLUMNS))
        columns = -(-wide // programs)
    most = 8 if which == "weight_grad" and high <= 12 else 16  # it holds several columns of sums in registers
    choices = [rows for rows in ROWS if rows <= most]
    rows = min(choices, key=lambda rows: -(-size[0] // rows) * _slots_of_column(rows, high))
    return Tile(rows, lanes, channels, columns, warps)


def as_image(taps: int, length: int, columns: int | None = None) -> tuple[Pair, Pair]:
    """A filter and a line as a filter and an image of a few columns, so that pixels are reused along the line.

    >>> as_image(31, 100)  # 4 rows of 8 taps over 13 rows of 8 pixels
    ((4, 8), (13, 8))
    """
    columns = columns or (8 if taps > 15 else 4)
    return (-(-taps // columns), columns), (-(-length // columns), columns)


def _slots_of_column(rows: int, high: int, vector: int = 1) -> float:
    """The slots of one column of taps, for each channel of a lane."""
    return rows * high + (SLOTS_PER_PIXEL * (rows + high - 1) + SLOTS_PER_TAP * high) / vector


@lru_cache(maxsize=4096)
def can_win(which: Pass, size: Pair, kernel: Pair, padding: Edges, itemsize: int, *, channels_last: bool) -> bool:
    """Whether our kernel is faster than PyTorch's by the estimate, and loads no pixel once per tap."""
    if kernel[0] == 1 and not channels_last and (kernel[1] < LEAST_OF_A_LINE or any(padding[:2])):
        return False
    ours = slots_of_ours(which, size, kernel, padding, itemsize, channels_last=channels_last)
    return ours < slots_of_pytorch(which, size, kernel, padding, itemsize)


def slots_of_ours(
    which: Pass, size: Pair, kernel: Pair, padding: Edges, itemsize: int, *, channels_last: bool
) -> float:
    """The slots of a channel of an (H, W) image, in our kernels."""
    out = _out_size(size, kernel, padding)
    if which == "input_grad":
        size, out = out, size
    memory = _slots_of_memory(size, out, itemsize)
    if channels_last and kernel[1] > kernel[0]:  # turned over, as the launcher does
        size, out, kernel = size[::-1], out[::-1], kernel[::-1]
    lines = 1
    if not channels_last and kernel[0] == 1:
        lines = out[0]
        kernel, out = as_image(kernel[1], out[1])
    tile = choose_tile(which, kernel, out, channels_last=channels_last)
    vector = tile.lanes * tile.channels // (32 * tile.warps)
    tiles = lines * -(-out[0] // tile.rows) * -(-out[1] // tile.lanes)
    seen = min(kernel[1], size[1] + tile.lanes - 1)  # columns of taps that do not see padding alone
    return max(tiles * tile.lanes * seen * _slots_of_column(tile.rows, kernel[0], vector), memory)


def slots_of_pytorch(which: Pass, size: Pair, kernel: Pair, padding: Edges, itemsize: int) -> float:
    """The slots of a channel of an (H, W) image, in PyTorch's own kernel.

    >>> slots_of_pytorch("forward", (56, 56), (3, 3), (1, 1, 1, 1), 4) / 56**2  # bound by memory
    96.0
    """
    out = _out_size(size, kernel, padding)
    loaded = 1
    for axis in range(2):
        before = padding[2 * axis]
        last = [min(kernel[axis], size[axis] + before - o) for o in range(out[axis])]
        loaded *= sum(max(0, end - max(0, before - o)) for o, end in enumerate(last))
    visited = out[0] * out[1] * kernel[0] * kernel[1]
    work = SLOTS_PER_LOADED_TAP * loaded + SLOTS_PER_VISITED_TAP[which] * visited
    return max(work, _slots_of_memory(size, out, itemsize))


def _out_size(size: Pair, kernel: Pair, padding: Edges) -> Pair:
    top, bottom, left, right = padding
    return size[0] + top + bottom - kernel[0] + 1, size[1] + left + right - kernel[1] + 1


def _slots_of_memory(size: Pair, out: Pair, itemsize: int) -> float:
    return SLOTS_PER_BYTE * itemsize * (size[0] * size[1] + out[0] * out[1])
