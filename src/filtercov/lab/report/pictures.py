"""Covariances and filters as small palette PNGs.

Colours are ColorBrewer's red and blue, which readers with any common colour blindness can tell apart. The scale is
symmetric: white is zero, equal depths of red and blue are equal sizes of plus and minus. A page with forty layers holds
hundreds of pictures, which at a byte per pixel stay small. Gaps between blocks and filters are transparent.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from filtercov.covariance.closed_form import axis_gaussians, gaussian_covariance
from filtercov.covariance.forms import Array, KernelSize, kernel_shape, show_size
from filtercov.covariance.root import symmetric_root
from filtercov.lab.report import page

COLOURS = 255  # odd, so that zero has a colour of its own
# ColorBrewer's RdBu, from blue to red.
ANCHORS = ("053061", "2166ac", "4393c3", "92c5de", "d1e5f0", "f7f7f7", "fddbc7", "f4a582", "d6604d", "b2182b", "67001f")
CLEAR = COLOURS  # the palette's index after the last colour
SHOWN = 16  # filters of each kind
SIZE = 800  # pixels across, about, of every picture: pages and figures show it smaller
FINEST = 16  # pixels along an axis of a covariance at most; larger kernels are thinned out
SUPPORT = 1 / 12  # of the largest variance: pixels with less look blank
BLOCKS = (
    "Covariances are in block form: the block at row i, column j shows how pixel (i, j) of a filter varies with every "
    "pixel. Red is positive, blue negative, white zero; each picture has its own scale. Blank pixels around the middle "
    "are cut off."
)

Levels = NDArray[np.uint8]


def palette() -> Levels:
    """The colours from most negative to most positive, (255, 3): matplotlib's RdBu_r.

    >>> palette()[127].tolist()  # zero is nearly white
    [247, 246, 246]
    """
    anchors = np.array([list(bytes.fromhex(anchor)) for anchor in ANCHORS])
    steps = np.delete(np.arange(256), 127) / 255  # matplotlib's table has 256 colours, and two in the middle
    channels = [np.interp(steps, np.linspace(0, 1, len(ANCHORS)), channel) for channel in anchors.T]
    colours: Levels = np.round(channels).astype(np.uint8).T
    return colours


def symmetric_limit(values: ArrayLike) -> float:
    """The largest size among values, which the ends of the colour scale stand for; 1 where all are zero."""
    return float(np.abs(np.asarray(values, dtype=np.float64)).max(initial=0.0)) or 1.0


def covariance_limit(cov: ArrayLike) -> float:
    """The limit of the colour scale for a covariance (n, n): the largest covariance between two pixels.

    Larger variances have the deepest red. It is at least a sixteenth of the largest variance, lest noise fill the
    picture.

    >>> covariance_limit([[4.0, -2.0], [-2.0, 3.0]]), covariance_limit(np.eye(2))
    (2.0, 0.0625)
    """
    sizes = np.abs(np.asarray(cov, dtype=np.float64))
    largest = float(sizes.max(initial=0.0))
    between = float((sizes - np.diag(np.diagonal(sizes))).max(initial=0.0))
    return max(between, largest / 16) or 1.0


def levels(values: ArrayLike, limit: float) -> Levels:
    """The index in the palette of each value on a scale from -limit to limit."""
    middle = COLOURS // 2
    scaled = np.clip(np.asarray(values, dtype=np.float64) / limit, -1.0, 1.0)
    indices: Levels = np.round(middle + middle * scaled).astype(np.uint8)
    return indices


@dataclass(frozen=True)
class Picture:
    """Palette indices (height, width), `CLEAR` where there is nothing; `cut` says which pixels are left out."""

    levels: Levels
    cut: str = ""

    @property
    def data_url(self) -> str:
        """The picture as the address of an image: a palette PNG."""
        drawn = Image.fromarray(self.levels, "P")
        drawn.putpalette([*palette().ravel().tolist(), 0, 0, 0])
        stream = io.BytesIO()
        drawn.save(stream, "PNG", transparency=CLEAR)
        return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"

    def html(self, alt: str) -> str:
        """The picture as an inline image, which fills its place on a page."""
        height, width = self.levels.shape
        return f'<img class="pixels" src="{self.data_url}" alt="{page.text(alt)}" width="{width}" height="{height}">'

    def height(self, width: float) -> float:
        """The picture's height at this width."""
        rows, columns = self.levels.shape
        return width * float(rows / columns)

    def svg(self, x: float, y: float, width: float) -> str:
        """The picture at a place in an SVG, on a ground that shows through its gaps."""
        box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{self.height(width):.1f}"'
        return f'<rect {box} fill="var(--line)"/><image {box} href="{self.data_url}"/>'

    def figure(self, caption: str, *, of: str = "") -> str:
        """The picture with a caption, and `of` what for those who cannot see it."""
        return page.figure(self.html(of or caption), page.text(f"{caption}; {self.cut}" if self.cut else caption))


def covariance_picture(cov: Array, kernel_size: KernelSize, *, size: int = SIZE, limit: float | None = None) -> Picture:
    """The block form of a flat covariance (n, n), about `size` pixels wide, with a gap between blocks.

    Blank pixels around the middle are cut off. The blocks of 1-D filters are rows, one below the other; those of 3-D
    filters are slices side by side.

    >>> picture = covariance_picture(gaussian_covariance(15, 0.1), 15, size=94)
    >>> picture.cut, picture.levels.shape  # 9 x 10 and 2 gaps of 2
    ('middle 3×3 of 15×15 pixels', (94, 94))
    """
    shape = kernel_shape(kernel_size)
    limit = covariance_limit(cov) if limit is None else limit
    kept, pixels = shown_pixels(shape, blank_margin(cov, shape))
    blocks = cov[np.ix_(pixels, pixels)].reshape(-1, *map(len, kept))
    tiles = [levels(_on_paper(block), limit) for block in blocks]
    drawn = _tiled(tiles, columns=1 if len(shape) == 1 else len(kept[-1]), size=size, gap=max(2, size // 120))
    sizes, whole = tuple(map(len, kept)), shown_size(shape)
    step = max((int(k[1] - k[0]) for k in kept if len(k) > 1), default=1)
    words = f"one pixel in {step} of {whole}" if step > 1 else f"middle {shown_size(sizes)} of {whole} pixels"
    return Picture(drawn, "" if sizes == shape else words)


def filters_picture(filters: Array, *, columns: int | None = None, size: int = SIZE) -> Picture:
    """Filters (count, *kernel_size) side by side, each on its own symmetric scale.

    >>> filters_picture(np.ones((6, 5, 5)), columns=3, size=94).levels.shape  # 3 x 5 x 6 and 2 gaps of 2
    (62, 94)
    """
    tiles = [levels(_on_paper(f), symmetric_limit(f)) for f in filters]
    columns = columns or {1: 2, 2: 4, 3: 2}[filters.ndim - 1]
    return Picture(_tiled(tiles, columns=columns, size=size, gap=max(2, size // 60)))


def blank_margin(cov: Array, shape: tuple[int, ...]) -> int:
    """How many pixels at every border a picture leaves out: those of little variance, but for a ring of them."""
    variance = np.diagonal(cov).reshape(shape)
    seen = np.argwhere(variance >= SUPPORT * variance.max())
    return max(0, int(min(seen.min(axis=0).min(), (np.array(shape) - 1 - seen.max(axis=0)).min())) - 1)


def shown_pixels(shape: tuple[int, ...], margin: int) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """The pixels of a covariance's picture along each axis, and all of them: no borders, every second, third, …."""
    kept = []
    for k in shape:
        inside = np.arange(margin, k - margin)
        step = math.ceil(len(inside) / FINEST)
        kept.append(inside[(len(inside) - 1) // 2 % step :: step])
    return kept, np.ravel_multi_index(np.meshgrid(*kept, indexing="ij"), shape).ravel()


def shown_size(shape: tuple[int, ...]) -> str:
    """The size of filters in words."""
    return show_size(shape).replace("x", "×")


def sampled(
    cov: Array,
    kernel_size: tuple[int, ...],
    rng: np.random.Generator,
    *,
    mean: Array | None = None,
    count: int = SHOWN,
) -> Array:
    """Draw `count` filters (count, *kernel_size) from N(mean, cov)."""
    filters: Array = rng.normal(size=(count, len(cov))) @ symmetric_root(cov)
    return (filters if mean is None else filters + mean).reshape(-1, *kernel_size)


def construction_parts(kernel_size: int, sigma: float) -> dict[str, Array]:
    """The mask M, the dynamic C and the static S of the paper in flat form, and Σ = ½ [M ⊙ (C − S) + C ⊙ S]."""
    g, G = axis_gaussians(kernel_size, sigma)
    z, ones = np.kron(g, g), np.ones(kernel_size**2)
    cov = gaussian_covariance(kernel_size, sigma)
    return {"Σ": cov, "M": np.outer(z, ones), "C": np.kron(G, G), "S": np.outer(ones, z)}


def _on_paper(filter_: Array) -> Array:
    """A filter of one, two or three axes as a flat picture; the slices of a 3-D one are side by side."""
    return np.atleast_2d(filter_) if filter_.ndim < 3 else np.concatenate(list(filter_), axis=1)


def _tiled(tiles: list[Levels], *, columns: int, size: int, gap: int) -> Levels:
    """Lay tiles out in rows, every number a square as large as fits `size` pixels across, at least one pixel."""
    cell = max(1, (size - gap * (columns - 1)) // (columns * tiles[0].shape[1]))
    height, width = (side * cell for side in tiles[0].shape)
    rows = math.ceil(len(tiles) / columns)
    whole = (rows * (height + gap) - gap, columns * (width + gap) - gap)
    canvas: Levels = np.full(whole, CLEAR, dtype=np.uint8)
    for i, tile in enumerate(tiles):
        top, left = i // columns * (height + gap), i % columns * (width + gap)
        canvas[top : top + height, left : left + width] = tile.repeat(cell, axis=0).repeat(cell, axis=1)
    return canvas
