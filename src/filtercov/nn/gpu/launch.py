"""Launch the Triton kernels: which axis is which, which tile, and the memory of the results.

Images are (N, C, H, W) with any strides and are never copied. `padding` is (top, bottom, left, right). Filters, which
are small, are copied for channels-last images, so that neighbouring lanes read neighbouring taps.
"""

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from filtercov.nn.geometry import Geometry
from filtercov.nn.gpu import kernels
from filtercov.nn.gpu.tiles import ALL_REGISTERS, Pass, Tile, as_image, choose_tile
from filtercov.nn.layout import is_channels_last

Padding = tuple[int, ...]

PROGRAMS = 1024  # into which the weight gradient is divided, if there are as many tiles
BLOCK = 256  # sums of those, at a time

spilled: set[str] = set()  # kernels that lack registers as compiled for the GPU they ran on: see `gpu.spills`


def forward(
    image: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding, *, tile: Tile | None = None
) -> Tensor:
    """The (N, C, OH, OW) convolution of (N, C, H, W) with (C, 1, KH, KW), in the layout of the image."""
    size = Geometry(padding, (1, 1), (1, 1)).out_size(image.shape[2:], weight.shape[2:])
    out = _empty(image, size, channels_last=is_channels_last(image))
    return _convolve(image, weight[:, 0], bias, out, padding, tile)


def input_gradient(
    grad: Tensor,
    weight: Tensor,
    padding: Padding,
    size: Sequence[int],
    *,
    channels_last: bool,
    tile: Tile | None = None,
) -> Tensor:
    """The (N, C, *size) gradient of the image: the gradient convolved with the filters turned by 180°."""
    kernel = weight.shape[2:]
    top, _, left, _ = padding
    opposite = (kernel[0] - 1 - top, 0, kernel[1] - 1 - left, 0)  # where it ends follows from the size
    out = _empty(grad, size, channels_last=channels_last)
    return _convolve(grad, weight[:, 0], None, out, opposite, tile, turned=True)


def _empty(like: Tensor, size: Sequence[int], *, channels_last: bool) -> Tensor:
    n, c = like.shape[:2]
    return like.new_empty(n, *size, c).movedim(-1, 1) if channels_last else like.new_empty(n, c, *size)


@cache
def _options(device: torch.device, *, large: bool) -> dict[str, int]:
    if device.type != "cuda" or torch.version.hip:
        return {}
    return ALL_REGISTERS if large or torch.cuda.get_device_capability(device)[0] >= 10 else {}


class _Plan(NamedTuple):
    """A convolution as the kernels see it: rows are the axis to unroll."""

    image: Tensor
    out: Tensor
    padding: tuple[int, int]  # above and left of the image
    channels_last: bool
    turned_over: bool  # rows are columns
    kernel: tuple[int, int]
    step: int  # pixels of a line from one row to the next, if lines are read as images; else 1
    tile: Tile
    tiles: tuple[int, int]  # down and across

    def sizes(self) -> tuple[int, ...]:
        """Channels, pixels, outputs, padding and tiles."""
        return self.out.shape[1], *self.image.shape[2:], *self.out.shape[2:], *self.padding, *self.tiles

    def strides(self) -> list[tuple[int, int, int, int]]:
        """Of image and output, from one image, channel, column and line to the next."""
        return [(n, c, w, line) for n, c, line, w in (self.image.stride(), self.out.stride())]

    def row(self, tensor: Tensor) -> int:
        return tensor.stride(-2) if self.step == 1 else self.step * tensor.stride(-1)

    def constants(self, taps: int, *, large: bool) -> dict[str, Any]:
        tile, (high, wide) = self.tile, self.kernel
        shared = {"KH": high, "KW": wide, "TAPS": taps, "STEP": self.step, "image_h": self.row(self.image)}
        shared |= {"ROWS": tile.rows, "LANES": tile.lanes, "CHANNELS": tile.channels, "num_warps": tile.warps}
        return shared | _options(self.image.device, large=large)


def _plan(which: Pass, image: Tensor, out: Tensor, padding: Padding, kernel: Sequence[int], tile: Tile | None) -> _Plan:
    """Channels-last images may be turned over: the longer axis of the filter is unrolled.

    The columns of channels-first images are the lanes. If the filter has one row, each line is read as an image.
    """
    (high, wide), top, left = kernel, padding[0], padding[2]
    last = image.stride(1) < image.stride(3) and image.shape[1] > 1
    turned_over = last and wide > high
    if turned_over:
        image, out, high, wide, top, left = image.mT, out.mT, wide, high, left, top
    rows, columns = out.shape[2:]
    step = 1
    if not last and high == 1 and top == 0 and image.shape[2] == rows:
        lines = rows
        (high, wide), (rows, columns) = as_image(wide, columns, None if tile is None else tile.lanes)
        step = wide
    if tile is None:
        line = columns == 1 if last else step > 1
        tile = choose_tile(which, (high, wide), (rows, columns), channels_last=last, line=line)
    tiles = -(-rows // tile.rows), lines if step > 1 else -(-columns // tile.lanes)
    return _Plan(image, out, (top, left), last, turned_over, (high, wide), step, tile, tiles)


def _convolve(
    image: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    result: Tensor,
    padding: Padding,
    tile: Tile | None,
    *,
    turned: bool = False,
) -> Tensor:
    """Fill the (N, C, OH, OW) result from (N, C, H, W) and (C, KH, KW); padding may be negative."""
    if result.numel() == 0:
        return result
    plan = _plan("forward", image, result, padding, filters.shape[1:], tile)
    if plan.turned_over:
        filters = filters.mT
    if plan.channels_last:
        filters = filters.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    sign, corner = (-1, filters[:, -1, -1]) if turned else (1, filters[:, 0, 0])  # turned: from the last tap backwards
    programs = len(image) * prod(plan.tiles), -(-image.shape[1] // plan.tile.channels)
    of_image, of_out = plan.strides()
    with torch.cuda.device_of(image):  # type: ignore[no-untyped-call]
        compiled = kernels.convolve[programs](
            *(plan.image, corner, filters if bias is None else bias.contiguous(), plan.out),
            *plan.sizes(),
            *(*of_image, *of_out, plan.row(plan.out), filters.stride(0), sign * filters.stride(2)),
            filter_h=sign * plan.row(filters),
            BIAS=bias is not None,
            **plan.constants(filters[0].numel(), large=plan.channels_last),
        )
    _note_spills(compiled, "convolve")
    return result


def _note_spills(compiled: Any, name: str) -> None:
    if getattr(compiled, "n_spills", 0):  # None in the interpreter
        spilled.add(name)


def weight_gradient(
    grad: Tensor, image: Tensor, padding: Padding, kernel: Sequence[int], *, tile: Tile | None = None
) -> Tensor:
    """The (C, 1, KH, KW) gradient of the filters: sums in an order that the shapes alone decide."""
    weight = image.new_empty(image.shape[1], 1, *kernel)
    if grad.numel() == 0:
        return weight.zero_()
    plan = _plan("weight_grad", image, grad, padding, kernel, tile)
    taps = weight[:, 0].mT if plan.turned_over else weight[:, 0]
    channels, tiles = image.shape[1], len(image) * prod(plan.tiles)
    blocks = -(-channels // plan.tile.channels)
    columns = -(-plan.kernel[1] // plan.tile.columns)  # programs for the columns of taps
    each = -(-tiles // max(1, PROGRAMS // (blocks * columns)))
    parts = -(-tiles // each)
    partial = image.new_empty(parts, taps[0].numel(), channels, dtype=torch.float32)
    of_image, of_grad = plan.strides()
    with torch.cuda.device_of(image):  # type: ignore[no-untyped-call]
        compiled = kernels.correlate[columns, parts, blocks](
            *(plan.out, plan.image, partial),
            *(*plan.sizes(), tiles, each),
            *(*of_grad, *of_image),
            grad_h=plan.row(plan.out),
            COLUMNS=plan.tile.columns,
            **plan.constants(taps[0].numel(), large=True),
        )
        kernels.add_parts[(-(-weight.numel() // BLOCK),)](
            partial, weight, channels, parts, taps.shape[2], weight.numel(), *taps.stride(), BLOCK=BLOCK
        )
    _note_spills(compiled, "correlate")
    return weight
