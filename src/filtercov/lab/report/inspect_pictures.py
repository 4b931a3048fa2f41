"""Covariances and filters as small palette PNGs, and which filters of a layer are shown.

A page with forty layers holds hundreds of pictures; at a byte per pixel, with a colour table, they stay small enough to
open at once. Gaps between blocks and between filters are transparent, so that they have the page's own colour.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from filtercov.covariance.forms import Array, KernelSize, kernel_shape
from filtercov.covariance.root import symmetric_root
from filtercov.lab.report import page, style
from filtercov.lab.report.inspect_numbers import Inspection, LayerNumbers

CLEAR = style.LEVELS  # the palette's index after the last colour
SHOWN = 24  # filters of each kind
FINEST = 16  # pixels along an axis of a filter at most; larger kernels are thinned out

Levels = NDArray[np.uint8]


@dataclass(frozen=True)
class Picture:
    """A picture: colour indices (height, width), `CLEAR` where there is nothing."""

    levels: Levels

    def png(self) -> bytes:
        """Return the picture as a palette PNG."""
        height, width = self.levels.shape
        drawn = Image.frombytes("P", (width, height), self.levels.tobytes())
        drawn.putpalette([*style.palette().ravel().tolist(), 0, 0, 0])
        stream = io.BytesIO()
        drawn.save(stream, "PNG", transparency=CLEAR)
        return stream.getvalue()

    def rgba(self) -> Levels:
        """Return the picture as red, green, blue and opacity: (height, width, 4)."""
        colours = np.vstack([np.insert(style.palette(), 3, 255, axis=1), np.zeros((1, 4), dtype=np.uint8)])
        pixels: Levels = colours[self.levels]
        return pixels

    def html(self, alt: str) -> str:
        """Return the picture as an inline image."""
        height, width = self.levels.shape
        return page.image(self.png(), alt, width=width, height=height, pixelated=True)


def covariance_picture(cov: Array, kernel_size: KernelSize, *, limit: float, size: int) -> Picture:
    """Return the block form of a flat covariance (n, n), about `size` pixels wide, with a gap between blocks.

    The blocks of 1-D filters are rows, one below the other; those of 3-D filters are slices side by side.

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> covariance_picture(gaussian_covariance(3, 0.5), 3, limit=0.5, size=94).levels.shape  # 9 x 10 and 2 gaps of 2
    (94, 94)
    """
    shape = kernel_shape(kernel_size)
    kept = [np.arange(k)[thinned(k)] for k in shape]
    pixels = np.ravel_multi_index(np.meshgrid(*kept, indexing="ij"), shape).ravel()
    pictures = cov[np.ix_(pixels, pixels)].reshape(-1, *map(len, kept))
    tiles = [style.levels(_on_paper(picture), limit) for picture in pictures]
    columns = 1 if len(shape) == 1 else len(kept[-1])
    return _grid(tiles, columns=columns, size=size, gap=max(2, size // 120))


def filters_picture(filters: Array, *, columns: int | None = None, size: int) -> Picture:
    """Return filters (count, *kernel_size) side by side, each on its own symmetric scale.

    >>> filters_picture(np.ones((6, 5, 5)), columns=3, size=94).levels.shape  # 3 x 5 x 6 and 2 gaps of 2
    (62, 94)
    """
    tiles = [style.levels(_on_paper(f), style.symmetric_limit(f)) for f in filters]
    across = columns or {1: 3, 2: 6, 3: 3}[filters.ndim - 1]
    return _grid(tiles, columns=across, size=size, gap=max(2, size // 60))


def variance_picture(variance: Array, *, size: int) -> Picture:
    """Return the variance by pixel, as a picture of the filter."""
    return _grid([style.levels(_on_paper(variance), style.symmetric_limit(variance))], columns=1, size=size, gap=0)


def shown_filters(inspection: Inspection, layer: LayerNumbers, rng: np.random.Generator) -> list[tuple[str, Array]]:
    """Return the filters to draw, with captions: the layer's own where there are any, and some of the closed form."""
    shown = []
    filters = inspection.target.filters.get(layer.name)
    if filters is None:
        drawn = sampled(layer.statistics.covariance, layer.kernel_size, rng, mean=layer.statistics.mean)
        shown.append(("drawn from the statistics, which hold no filters", drawn))
    else:
        power = np.square(filters).sum(axis=tuple(range(1, filters.ndim)))
        shown.append(("strongest filters", filters[np.argsort(-power, kind="stable")[:SHOWN]]))
        if len(filters) > SHOWN:
            shown.append(("random filters", filters[np.sort(rng.permutation(len(filters))[:SHOWN])]))
    if not math.isnan(layer.sigma):
        shown.append(("drawn from the closed form", sampled(layer.closed_form(), layer.kernel_size, rng)))
    return shown


def sampled(
    cov: Array,
    kernel_size: tuple[int, ...],
    rng: np.random.Generator,
    *,
    mean: Array | None = None,
    count: int = SHOWN,
) -> Array:
    """Return `count` filters (count, *kernel_size) from N(mean, cov)."""
    filters: Array = rng.normal(size=(count, len(cov))) @ symmetric_root(cov)
    return (filters if mean is None else filters + mean).reshape(-1, *kernel_size)


def thinned(k: int) -> slice:
    """Return which pixels along an axis of length k are drawn: all, or around the centre every second, third, ….

    >>> list(range(31))[thinned(31)]
    [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29]
    """
    step = math.ceil(k / FINEST)
    return slice((k - 1) // 2 % step, None, step)


def _on_paper(filter_: Array) -> Array:
    """Return a filter of one, two or three axes as a flat picture; the slices of a 3-D one lie side by side."""
    if filter_.ndim == 1:
        return filter_[None]
    if filter_.ndim == 2:
        return filter_
    return np.concatenate(list(filter_), axis=1)


def _grid(tiles: list[Levels], *, columns: int, size: int, gap: int) -> Picture:
    """Lay tiles out in rows, every number a square as large as fits `size` pixels across, at least one pixel."""
    cell = max(1, (size - gap * (columns - 1)) // (columns * tiles[0].shape[1]))
    height, width = (side * cell for side in tiles[0].shape)
    rows = math.ceil(len(tiles) / columns)
    whole = (rows * (height + gap) - gap, columns * (width + gap) - gap)
    canvas: Levels = np.full(whole, CLEAR, dtype=np.uint8)
    for i, tile in enumerate(tiles):
        top, left = i // columns * (height + gap), i % columns * (width + gap)
        canvas[top : top + height, left : left + width] = tile.repeat(cell, axis=0).repeat(cell, axis=1)
    return Picture(canvas)
