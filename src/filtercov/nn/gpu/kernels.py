"""Depthwise convolution in Triton: the forward pass, which is also the input gradient, and the weight gradient.

A program computes a tile of `CHANNELS` channels × `LANES` columns, one pair to a lane, and `ROWS` rows of pixels. The
lanes of a warp read neighbouring memory: neighbouring columns of channels-first images, neighbouring channels of
channels-last ones. The rows of a lane are registers, a tuple that is unrolled, so that each number loaded serves up to
`ROWS` sums: for one column of taps a lane loads `ROWS + KH - 1` pixels and `KH` taps, and multiplies `ROWS * KH` times.
Sums are float32 whatever the type of the images.

Row strides are compile-time constants, so that the rows of a column lie at fixed offsets from one address. Whether a
pixel exists is one unsigned comparison: `limit` is the height where the column exists, and else 0.
"""
# mypy: ignore-errors
# ruff: noqa: RUF005, SIM108
# Triton compiles these functions: arguments have no types in Python, tuples grow by "+", and choices are statements.

import triton
import triton.language as tl


@triton.jit
def convolve(
    image_ptr,
    filter_ptr,
    bias_ptr,
    out_ptr,
    channels,
    height,
    width,
    out_height,
    out_width,
    top,  # padding
    left,
    tiles_down,
    tiles_across,
    image_n,  # strides
    image_c,
    image_w,
    filter_c,
    filter_w,
    out_n,
    out_c,
    out_h,
    out_w,
    image_h: tl.constexpr,
    filter_h: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    CHANNELS: tl.constexpr,
    BIAS: tl.constexpr,
):
    """Write one tile of the (N, C, OH, OW) convolution of (N, C, H, W) images with (C, KH, KW) filters."""
    tile = tl.program_id(0)
    across = tile % tiles_across
    row = tile // tiles_across % tiles_down * ROWS
    n = (tile // tiles_across // tiles_down).to(tl.int64)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[:, None]
    column = across * LANES + tl.arange(0, LANES)[None, :]
    exists = c < channels
    image = image_ptr + n * image_n + c * image_c + (row - top) * image_h
    start = tl.zeros([CHANNELS, LANES], tl.float32)
    if BIAS:
        start += tl.load(bias_ptr + c, mask=exists, other=0.0).to(tl.float32)
    sums = (start,) * ROWS
    # Columns of taps that see only padding are left out.
    first = tl.maximum(left - across * LANES - LANES + 1, 0)
    last = tl.minimum(left - across * LANES + width, KW)
    for j in range(first, last):
        source = column + j - left
        limit = tl.where(exists & (source >= 0) & (source < width), height, 0).to(tl.uint32, bitcast=True)
        taps = ()
        for i in tl.static_range(KH):
            at = filter_ptr + c * filter_c + j * filter_w + i * filter_h
            taps = taps + (tl.load(at, mask=exists, other=0.0).to(tl.float32),)
        for r in tl.static_range(ROWS + KH - 1):
            visible = (row - top + r).to(tl.uint32, bitcast=True) < limit
            pixel = tl.load(image + source * image_w + r * image_h, mask=visible, other=0.0).to(tl.float32)
            updated = ()
            for i in tl.static_range(ROWS):
                if r >= i and r < i + KH:
                    updated = updated + (sums[i] + pixel * taps[r - i],)
                else:
                    updated = updated + (sums[i],)
            sums = updated
    out = out_ptr + n * out_n + c * out_c + column * out_w
    limit = tl.where(exists & (column < out_width), out_height, 0)
    for i in tl.static_range(ROWS):
        tl.store(out + (row + i) * out_h, sums[i].to(out_ptr.dtype.element_ty), mask=row + i < limit)


@triton.jit
def correlate(
    grad_ptr,
    image_ptr,
    partial_ptr,
    channels,
    height,
    width,
    out_height,
    out_width,
    top,  # padding
    left,
    tiles_down,
    tiles_across,
    tiles,
    tiles_per_program,
    grad_n,  # strides
    grad_c,
    grad_w,
    image_n,
    image_c,
    image_w,
    grad_h: tl.constexpr,
    image_h: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Write `COLUMNS` columns of taps of one program's share of the weight gradient, into (programs, KH, KW, C)."""
    left_tap = tl.program_id(0) * COLUMNS  # neighbours read the same pixels
    part = tl.program_id(1)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)[:, None]
    exists = c < channels
    sums = (tl.zeros([CHANNELS, LANES], tl.float32),) * (COLUMNS * KH)  # column by column
    tile = part * tiles_per_program
    across = tile % tiles_across
    down = tile // tiles_across % tiles_down
    n = (tile // tiles_across // tiles_down).to(tl.int64)
    for _ in range(tl.minimum(tiles_per_program, tiles - tile)):
        column = across * LANES + tl.arange(0, LANES)[None, :]
        row = down * ROWS
        grad = grad_ptr + n * grad_n + c * grad_c + row * grad_h + column * grad_w
        image = image_ptr + n * image_n + c * image_c + (row - top) * image_h
        limit = tl.where(exists & (column < out_width), out_height, 0)
        grads = ()
        for i in tl.static_range(ROWS):
            grads = grads + (tl.load(grad + i * grad_h, mask=row + i < limit, other=0.0).to(tl.float32),)
        updated = ()
        for j in tl.static_range(COLUMNS):
            source = column + left_tap + j - left
            limit = tl.where(exists & (source >= 0) & (source < width), height, 0).to(tl.uint32, bitcast=True)
            column_sums = sums[j * KH : j * KH + KH]
            for r in tl.static_range(ROWS + KH - 1):
                visible = (row - top + r).to(tl.uint32, bitcast=True) < limit
                at = image + source * image_w + r * image_h
                pixel = tl.load(at, mask=visible, other=0.0).to(tl.float32)
                changed = ()
                for i in tl.static_range(KH):
                    if r >= i and r < i + ROWS:
                        changed = changed + (column_sums[i] + pixel * grads[r - i],)
                    else:
                        changed = changed + (column_sums[i],)
                column_sums = changed
            updated = updated + column_sums
        sums = updated
        across += 1  # to the next tile, without dividing again
        down = tl.where(across == tiles_across, down + 1, down)
        across = tl.where(across == tiles_across, 0, across)
        n = tl.where(down == tiles_down, n + 1, n)
        down = tl.where(down == tiles_down, 0, down)
    c = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    for j in tl.static_range(COLUMNS):
        for i in tl.static_range(KH):
            tap = i * KW + left_tap + j
            at = partial_ptr + (part * KH * KW + tap).to(tl.int64) * channels + c
            tl.store(at, tl.sum(sums[j * KH + i], axis=1), mask=(c < channels) & (left_tap + j < KW))


@triton.jit
def add_parts(
    partial_ptr,
    out_ptr,
    channels,
    parts,
    wide,
    numbers,  # of one part
    out_c,  # strides
    out_h,
    out_w,
    BLOCK: tl.constexpr,
):
    """Write the (C, KH, KW) sums of (parts, KH, KW, C), in the order of the parts."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = at < numbers
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(parts):
        total += tl.load(partial_ptr + tl.cast(part, tl.int64) * numbers + at, mask=exists, other=0.0)
    tap = at // channels
    out = out_ptr + at % channels * out_c + tap // wide * out_h + tap % wide * out_w
    tl.store(out, total.to(out_ptr.dtype.element_ty), mask=exists)
