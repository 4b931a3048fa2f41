"""Tiles of the Triton kernels, and which passes are worth timing, from the shapes alone."""

from collections.abc import Sequence
from math import prod
from typing import Literal, NamedTuple

Pass = Literal["forward", "input_grad", "weight_grad"]
Pair = tuple[int, int]

SUMS = 27  # of the weight gradient that a lane holds in registers, or up to two columns of taps
MOST_COLUMNS = 3  # of taps at a time
LEAST_OF_A_LINE = 5  # taps: with fewer, a lane would load each pixel of a line once per tap
# What Triton is told for weight gradients, channels-last images, and Blackwell: or ptxas spills to run more programs.
ALL_REGISTERS = {"maxnreg": 255}

# The estimate of docs/gpu.md in its unit, an instruction of one lane: what PyTorch's own kernels take for a tap (two
# loads; in gradients, tests and divisions too), and an A100 to move a byte.
SLOTS_PER_TAP = {"forward": 8, "input_grad": 13, "weight_grad": 28}
SLOTS_PER_BYTE = 12


class Tile(NamedTuple):
    """The work of one program: `channels` × `lanes` columns of pixels (powers of two), and `rows` of each."""

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
        rows = 8  # beside several columns of sums, and for small images
    else:
        rows = 14 if -(-height // 14) == -(-height // 16) and not line else 16  # images of 224 / 2**n pixels fit 14
    return Tile(rows, lanes, channels, columns, warps)


def as_image(taps: int, length: int, columns: int | None = None) -> tuple[Pair, Pair]:
    """A filter and a line as a filter and an image of a few columns, so that pixels are reused along the line.

    >>> as_image(31, 100)  # 4 rows of 8 taps over 13 rows of 8 pixels
    ((4, 8), (13, 8))
    """
    columns = columns or (8 if taps > 15 else 4)
    return (-(-taps // columns), columns), (-(-length // columns), columns)


def can_win(
    which: Pass, size: Sequence[int], kernel: Sequence[int], above: int, itemsize: int, *, channels_last: bool
) -> bool:
    """Whether our kernel may be faster than PyTorch's by the estimate, and loads no pixel once per tap.

    Not where both wait for memory, nor forward over images so small that most taps, which PyTorch skips, see padding.

    >>> [can_win("forward", (56, 56), (k, k), k // 2, itemsize=4, channels_last=False) for k in (3, 5)]
    [False, True]
    """
    if kernel[0] == 1 and not channels_last and (kernel[1] < LEAST_OF_A_LINE or above):
        return False
    if SLOTS_PER_TAP[which] * prod(kernel) <= SLOTS_PER_BYTE * 2 * itemsize:
        return False
    return which != "forward" or 2 * max(size) > max(8, *kernel)
