"""Depthwise convolution in Triton: the forward pass, which is also the input gradient, and the weight gradient.

A program computes a tile of `CHANNELS` channels × `LANES` columns, one pair to a lane, and `ROWS` rows of pixels. The
lanes of a warp read neighbouring memory: neighbouring columns of channels-first images, neighbouring channels of
channels-last ones. The rows of a lane are registers, a tuple that is unrolled, so that each number loaded serves up to
`ROWS` sums: for one column of taps a lane loads `ROWS + KH - 1` pixels and `KH` taps, and multiplies `ROWS * KH` times.
Sums are float32 whatever the type of the images.

A filter of one row has no rows to reuse pixels over. A line is therefore read as an image of `STEP` columns: pixel
`STEP * row + column`, tap `STEP * i + j`. A column that overhangs its row is the next row's, as in memory.

Row strides are compile-time constants, so that the rows of a column lie at fixed offsets from one address.
"""
# mypy: ignore-errors
# ruff: noqa: RUF005, SIM108
# Triton compiles these functions: arguments have no types in Python, tuples grow by "+", and choices are statements.
# fmt: off

import triton
import triton.language as tl


@triton.jit
def bounds(row, column, exists, height, width, STEP: tl.constexpr):
    """Return where a tile's first row is and where pixels end: row r exists if `start + r * STEP < limit`, unsigned."""
    if STEP == 1:
        start = row
        limit = tl.where(exists & (column >= 0) & (column < width), height, 0)
    else:
        start = row * STEP + column
        limit = tl.where(exists, width, 0)
    return start, limit.to(tl.uint32, bitcast=True)


@triton.jit
def convolve(
    image_ptr, filter_ptr, bias_ptr, out_ptr,
    channels, height, width, out_height, out_width, top, left, tiles_down, tiles_across,  # top and left are padding
    image_n, image_c, image_w, image_line, out_n, out_c, out_w, out_line, out_h, filter_c, filter_w,  # strides
    image_h: tl.constexpr, filter_h: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, TAPS: tl.constexpr, STEP: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, CHANNELS: tl.constexpr, BIAS: tl.constexpr,
):
    """Write one tile of the (N, C, OH, OW) convolution of (N, C, H, W) images with (C, KH, KW) filters."""
    tile = tl.program_id(0)
    across = tile % tiles_across  # or which line of the image, of those that are read as images
    row = tile // tiles_across % tiles_down * ROWS
    n = (tile // tiles_across // tiles_down).to(tl.int64)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)[:, None]
    column = tl.arange(0, LANES)[None, :]
    exists = c < channels
    image = image_ptr + n * image_n + c * image_c + (row - top) * image_h
    out = out_ptr + n * out_n + c * out_c
    first, last = 0, KW
    if STEP == 1:
        # Columns of taps that see only padding are left out.
        first = tl.maximum(left - across * LANES - LANES + 1, 0)
        last = tl.minimum(left - across * LANES + width, KW)
        column += across * LANES
    else:
        image += across * image_line
        out += across * out_line
    empty = tl.zeros([CHANNELS, LANES], tl.float32)
    if BIAS:
        empty += tl.load(bias_ptr + c, mask=exists, other=0.0).to(tl.float32)
    sums = (empty,) * ROWS
    for j in range(first, last):
        source = column + j - left
        start, limit = bounds(row - top, source, exists, height, width, STEP)
        taps = ()
        for i in tl.static_range(KH):
            at = filter_ptr + c * filter_c + j * filter_w + i * filter_h
            mask = exists if STEP == 1 else exists & (i * STEP + j < TAPS)
            taps = taps + (tl.load(at, mask=mask, other=0.0).to(tl.float32),)
        for r in tl.static_range(ROWS + KH - 1):
            visible = (start + r * STEP).to(tl.uint32, bitcast=True) < limit
            pixel = tl.load(image + source * image_w + r * image_h, mask=visible, other=0.0).to(tl.float32)
            updated = ()
            for i in tl.static_range(ROWS):
                if r >= i and r < i + KH:
                    updated = updated + (sums[i] + pixel * taps[r - i],)
                else:
                    updated = updated + (sums[i],)
            sums = updated
    start, limit = bounds(row, column, exists, out_height, out_width, STEP)
    for i in tl.static_range(ROWS):
        visible = (start + i * STEP).to(tl.uint32, bitcast=True) < limit
        tl.store(out + column * out_w + (row + i) * out_h, sums[i].to(out_ptr.dtype.element_ty), mask=visible)


@triton.jit
def correlate(
    grad_ptr, image_ptr, partial_ptr,
    channels, height, width, out_height, out_width, top, left, tiles_down, tiles_across,  # top and left are padding
    tiles, tiles_per_program,
    grad_n, grad_c, grad_w, grad_line, image_n, image_c, image_w, image_line,  # strides
    grad_h: tl.constexpr, image_h: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, TAPS: tl.constexpr, STEP: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, CHANNELS: tl.constexpr, COLUMNS: tl.constexpr,
):
    """Write `COLUMNS` columns of taps of one program's share of the weight gradient, into (programs, TAPS, C)."""
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
        column = tl.arange(0, LANES)[None, :]
        row = down * ROWS
        grad = grad_ptr + n * grad_n + c * grad_c + row * grad_h
        image = image_ptr + n * image_n + c * image_c + (row - top) * image_h
        if STEP == 1:
            column += across * LANES
        else:
            grad += across * grad_line
            image += across * image_line
        start, limit = bounds(row, column, exists, out_height, out_width, STEP)
        grads = ()
        for i in tl.static_range(ROWS):
            visible = (start + i * STEP).to(tl.uint32, bitcast=True) < limit
            at = grad + column * grad_w + i * grad_h
            grads = grads + (tl.load(at, mask=visible, other=0.0).to(tl.float32),)
        updated = ()
        for j in tl.static_range(COLUMNS):
            source = column + left_tap + j - left
            start, limit = bounds(row - top, source, exists, height, width, STEP)
            column_sums = sums[j * KH : j * KH + KH]
            for r in tl.static_range(ROWS + KH - 1):
                visible = (start + r * STEP).to(tl.uint32, bitcast=True) < limit
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
            at = partial_ptr + (part * TAPS + tap).to(tl.int64) * channels + c
            tl.store(at, tl.sum(sums[j * KH + i], axis=1), mask=(c < channels) & (left_tap + j < KW) & (tap < TAPS))


@triton.jit
def add_parts(
    partial_ptr, out_ptr, channels, parts, wide, numbers,  # numbers of one part
    out_c, out_h, out_w,  # strides
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
