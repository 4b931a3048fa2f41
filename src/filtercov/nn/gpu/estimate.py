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

ROWS = (16, 14)  # of pixels that a lane computes; 14 fits images of 224 / 2**n pixels
FEW_ROWS = 8  # for small images, and beside several columns of sums
SUMS = 27  # of the weight gradient that a lane holds in registers, or up to two columns of taps
MOST_COLUMNS = 3  # of taps at a time
# All registers, said explicitly: or ptxas, for Blackwell, spills a few to run more programs at a time.
BLACKWELL = {"maxnreg": 255}
LEAST_OF_A_LINE = 5  # taps: with fewer, a lane would load each pixel of a line once per tap


class Tile(NamedTuple):
    """What one program computes: `channels` × `lanes` columns of pixels (powers of two), and `rows` of each."""

    rows: int
    lanes: int
    channels: int
    columns: int = 1  # of taps, in the weight gradient
    warps: int = 4


def choose_tile(which: Pass, kernel: Pair, size: Pair, *, channels_last: bool, line: bool = False) -> Tile:
    """The tile for an output of `size`: for a height of filters, one of at most five in each layout.

    The kernels unroll the height of a filter and loop over its width, on which only `lanes` of a line depend.

    >>> choose_tile("forward", (7, 7), (56, 56), channels_last=False)
    Tile(rows=14, lanes=32, channels=4, columns=1, warps=4)
    """
    (high, wide), (height, width) = kernel, size
    if channels_last:
        # A lane holds neighbouring channels, which one wide load fetches; large filters lack the registers for many.
        vector = 4 if which != "weight_grad" and high <= 8 else 2
        lanes, channels = (1, 32 * vector) if line else (8, 32)
        warps = channels * lanes // (32 * vector)
    else:
        vector, warps = 1, 4
        lanes = wide if line else 8 if width <= 8 else 16 if width <= 16 else 32
        channels = 128 // lanes
    columns = 1
    if which == "weight_grad":
        most = min(max(2, SUMS // high) // vector, MOST_COLUMNS)
        columns = min(wide, -(-high // -(-high // most)))
    if (which == "weight_grad" and high <= 12) or (width <= 8 and not line):
        rows = FEW_ROWS
    elif line:
        rows = ROWS[0]
    else:
        rows = min(ROWS, key=lambda rows: -(-height // rows) * _slots_of_column(rows, high))
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
    lines, line = 1, out[1] == 1 if channels_last else kernel[0] == 1
    if line and not channels_last:
        lines = out[0]
        kernel, out = as_image(kernel[1], out[1])
    tile = choose_tile(which, kernel, out, channels_last=channels_last, line=line)
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
