"""Launch the Triton kernels: which tile, which axis is which, and the memory of what they write.

Images are (N, C, H, W) with any strides and are never copied. `padding` is (top, bottom, left, right). Filters, which
are small, are copied for channels-last images, so that neighbouring lanes read neighbouring taps.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from filtercov.nn.geometry import Geometry
from filtercov.nn.gpu import kernels
from filtercov.nn.gpu.estimate import Tile, choose_tile
from filtercov.nn.layout import is_channels_last

Padding = tuple[int, ...]

PROGRAMS = 1024  # into which the weight gradient is divided, if there are as many tiles
BLOCK = 256  # sums of those, at a time


def forward(
    image: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding, *, tile: Tile | None = None
) -> Tensor:
    """Return the (N, C, OH, OW) convolution of (N, C, H, W) with (C, 1, KH, KW), in the layout of the image."""
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
    """Return the (N, C, *size) gradient of the image: the gradient convolved with the filters turned by 180°."""
    kernel = weight.shape[2:]
    top, _, left, _ = padding
    opposite = (kernel[0] - 1 - top, 0, kernel[1] - 1 - left, 0)  # where it ends follows from the size
    out = _empty(grad, size, channels_last=channels_last)
    return _convolve(grad, weight[:, 0], None, out, opposite, tile, turned=True)


def _empty(like: Tensor, size: Sequence[int], *, channels_last: bool) -> Tensor:
    n, c = like.shape[:2]
    return like.new_empty(n, *size, c).movedim(-1, 1) if channels_last else like.new_empty(n, c, *size)


def _lanes_are_channels(image: Tensor) -> bool:
    return image.stride(1) < image.stride(3) and image.shape[1] > 1


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
    out, channels_last = result, _lanes_are_channels(image)
    image, out, padding, flipped = _oriented(image, out, padding, filters.shape[1:], channels_last=channels_last)
    if flipped:
        filters = filters.mT
    if channels_last:
        filters = filters.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    filter_strides = filters.stride()
    if turned:  # begin with the last tap, and step back
        filter_strides = (filter_strides[0], -filter_strides[1], -filter_strides[2])
        filters_begin = filters[:, -1, -1]
    else:
        filters_begin = filters[:, 0, 0]
    (n, channels, *size), (high, wide) = out.shape, filters.shape[1:]
    if tile is None:
        tile = choose_tile("forward", (high, wide), size, channels_last=channels_last)
    down, across = -(-size[0] // tile.rows), -(-size[1] // tile.lanes)
    if result.numel() == 0:
        return result
    with torch.cuda.device_of(image):  # type: ignore[no-untyped-call]
        kernels.convolve[n * down * across, -(-channels // tile.channels)](
            image,
            filters_begin,
            filters if bias is None else bias.contiguous(),
            out,
            channels,
            *image.shape[2:],
            *size,
            padding[0],
            padding[2],
            down,
            across,
            *_without_rows(image),
            filter_strides[0],
            filter_strides[2],
            *out.stride(),
            image_h=image.stride(2),
            filter_h=filter_strides[1],
            KH=high,
            KW=wide,
            ROWS=tile.rows,
            LANES=tile.lanes,
            CHANNELS=tile.channels,
            BIAS=bias is not None,
            num_warps=tile.warps,
        )
    return result


def weight_gradient(
    grad: Tensor, image: Tensor, padding: Padding, kernel: Sequence[int], *, tile: Tile | None = None
) -> Tensor:
    """Return the (C, 1, KH, KW) gradient of the filters: sums in an order that the shapes alone decide."""
    weight = image.new_empty(image.shape[1], 1, *kernel)
    channels_last = _lanes_are_channels(image)
    image, grad, padding, flipped = _oriented(image, grad, padding, kernel, channels_last=channels_last)
    taps = weight[:, 0].mT if flipped else weight[:, 0]
    (n, channels, *size), (high, wide) = grad.shape, taps.shape[1:]
    if tile is None:
        tile = choose_tile("weight_grad", (high, wide), size, channels_last=channels_last)
    down, across = -(-size[0] // tile.rows), -(-size[1] // tile.lanes)
    tiles, blocks, columns = n * down * across, -(-channels // tile.channels), -(-wide // tile.columns)
    if tiles == 0:
        return weight.zero_()
    each = -(-tiles // max(1, PROGRAMS // (blocks * columns)))
    parts = -(-tiles // each)
    partial = image.new_empty(parts, high, wide, channels, dtype=torch.float32)
    with torch.cuda.device_of(image):  # type: ignore[no-untyped-call]
        kernels.correlate[columns, parts, blocks](
            grad,
            image,
            partial,
            channels,
            *image.shape[2:],
            *size,
            padding[0],
            padding[2],
            down,
            across,
            tiles,
            each,
            *_without_rows(grad),
            *_without_rows(image),
            grad_h=grad.stride(2),
            image_h=image.stride(2),
            KH=high,
            KW=wide,
            COLUMNS=tile.columns,
            ROWS=tile.rows,
            LANES=tile.lanes,
            CHANNELS=tile.channels,
            num_warps=tile.warps,
        )
        kernels.add_parts[(-(-weight.numel() // BLOCK),)](
            partial, weight, channels, parts, wide, weight.numel(), *taps.stride(), BLOCK=BLOCK
        )
    return weight


def _oriented(
    image: Tensor, out: Tensor, padding: Padding, kernel: Sequence[int], *, channels_last: bool
) -> tuple[Tensor, Tensor, Padding, bool]:
    """Return views of image and output whose rows are the axis to unroll, their padding, and whether axes changed.

    Channels-last images may be turned over: the axis along which the filter is longer is unrolled. The columns of
    channels-first images are the lanes; if the filter has one row, different images share its taps as rows would.
    """
    top, bottom, left, right = padding
    if channels_last and kernel[1] > kernel[0]:
        return image.mT, out.mT, (left, right, top, bottom), True
    if not channels_last and kernel[0] == 1 and image.shape[2] == out.shape[2] == 1:
        return image.transpose(0, 2), out.transpose(0, 2), padding, False
    return image, out, padding, False


def _without_rows(image: Tensor) -> tuple[int, int, int]:
    n, c, _, w = image.stride()
    return n, c, w
