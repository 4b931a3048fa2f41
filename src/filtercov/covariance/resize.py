"""Carry a covariance over to filters of another size, as the paper does.

In block form every block is a picture of the filter's extent: pad it with its mean, or clip it, around its centre to
the new size; then interpolate linearly over the grid of blocks to get as many of them as the new filter has pixels. The
result is symmetrised and projected to the nearest positive semi-definite matrix.

The paper's sizes are all odd. Between an even and an odd one the centres lie half a pixel apart, so that pixels can be
laid over each other in two ways, half a pixel to either side; the picture is then the mean of both.

Far from the old size little of the old covariance is left in that: `Resizing` says how much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.empirical import check_pixels
from filtercov.covariance.forms import Array, KernelSize, as_covariance, as_mean, kernel_shape, show_size
from filtercov.errors import CovarianceError


def resize_covariance(cov: ArrayLike, from_size: KernelSize, to_size: KernelSize) -> Array:
    """Return the covariance of `from_size` filters carried over to `to_size` filters: (n, n) -> (n', n').

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> resize_covariance(gaussian_covariance(7, 1.0), 7, 9).shape
    (81, 81)
    """
    old, new = _matching_shapes(from_size, to_size)
    matrix = as_covariance(cov, kernel_size=old)
    if old == new:
        return matrix.copy()
    check_pixels(new)
    blocks = _resize_pictures(matrix.reshape(-1, *old), new).reshape(*old, -1)
    grid = _interpolate_grid(blocks, new)
    n = math.prod(new)
    resized = grid.reshape(n, n)
    return _nearest_positive((resized + resized.T) / 2)


def resize_mean(mean: ArrayLike, from_size: KernelSize, to_size: KernelSize) -> Array:
    """Return a mean filter (n,) padded with its mean or clipped around its centre: (n,) -> (n',).

    >>> resize_mean(np.array([1.0, 2.0, 3.0]), (3,), (5,))
    array([2., 1., 2., 3., 2.])
    """
    old, new = _matching_shapes(from_size, to_size)
    picture = as_mean(mean, old).reshape(1, *old)
    return _resize_pictures(picture, new).reshape(-1)


@dataclass(frozen=True)
class Resizing:
    """What a covariance of `from_size` filters went through on the way to another size.

    `survives` is the squared cosine between the covariances before and after, laid over each other around the centre
    with zeros where one has no pixels: the share of the new one, in least squares, that the old one explains. `padding`
    is the share of the new one's variance at pixels that the old filters did not have. Where pixels can be laid over
    each other in several ways, both are of the mean over these.
    """

    from_size: tuple[int, ...]
    survives: float
    padding: float

    @property
    def doubtful(self) -> bool:
        """Whether little survives: under a quarter of what was there, or under half of the variance in its place."""
        return self.survives < 0.25 or self.padding > 0.5

    def after(self, first: Resizing | None) -> Resizing:
        """Return both resizings as one, if another went before."""
        if first is None:
            return self
        padding = 1 - (1 - first.padding) * (1 - self.padding)
        return Resizing(first.from_size, first.survives * self.survives, padding)


def compare_resized(before: Array, from_size: tuple[int, ...], after: Array, to_size: tuple[int, ...]) -> Resizing:
    """Return what is left of the covariance `before` in `after`, which is it resized.

    >>> cov = np.eye(9)
    >>> resizing = compare_resized(cov, (3, 3), resize_covariance(cov, 3, 7), (7, 7))
    >>> round(resizing.survives, 2), round(resizing.padding, 2)
    (0.09, 0.57)
    """
    numbers = [np.arange(math.prod(size), dtype=np.intp).reshape(size) for size in (from_size, to_size)]
    shared = [(numbers[0][old].ravel(), numbers[1][new].ravel()) for old, new in _overlays(from_size, to_size)]
    norms = float(np.linalg.norm(before) * np.linalg.norm(after))
    inner = float(np.mean([np.vdot(before[np.ix_(old, old)], after[np.ix_(new, new)]) for old, new in shared]))
    variance = np.diagonal(after)
    total, kept = float(variance.sum()), float(np.mean([variance[new].sum() for _, new in shared]))
    return Resizing(
        from_size=from_size,
        survives=min((inner / norms) ** 2, 1.0) if norms else 1.0,  # which rounding may exceed
        padding=min(max(1 - kept / total, 0.0), 1.0) if total > 0 else 0.0,
    )


def _overlays(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Yield, for each way to lay two sizes over each other around their centres, the pixels of both that meet.

    >>> list(_overlays((4,), (3,)))
    [((slice(0, 3, None),), (slice(0, 3, None),)), ((slice(1, 4, None),), (slice(0, 3, None),))]
    """
    ways = []
    for k, o in zip(old, new, strict=True):
        shared, margin = min(k, o), abs(k - o)
        starts = sorted({margin // 2, (margin + 1) // 2})
        whole, parts = slice(0, shared), [slice(start, start + shared) for start in starts]
        ways.append([(part, whole) if k > o else (whole, part) for part in parts])
    for way in product(*ways):
        yield tuple(mine for mine, _ in way), tuple(theirs for _, theirs in way)


def _matching_shapes(from_size: KernelSize, to_size: KernelSize) -> tuple[tuple[int, ...], tuple[int, ...]]:
    old, new = kernel_shape(from_size), kernel_shape(to_size)
    if len(old) != len(new):
        raise CovarianceError(
            f"resize: needed two kernel sizes with as many axes, got {show_size(old)} and {show_size(new)}"
        )
    return old, new


def _resize_pictures(pictures: Array, new: tuple[int, ...]) -> Array:
    """Pad with the picture's own mean, or clip, every picture (p, *old) to (p, *new), keeping the centre."""
    old = pictures.shape[1:]
    means = pictures.reshape(len(pictures), -1).mean(axis=1)
    ways = []
    for inside, outside in _overlays(old, new):
        resized = np.empty((len(pictures), *new))
        resized[...] = means.reshape(-1, *(1 for _ in new))
        resized[:, *outside] = pictures[:, *inside]
        ways.append(resized)
    return ways[0] if len(ways) == 1 else sum(ways[1:], ways[0]) / len(ways)


def _interpolate_grid(values: Array, new: tuple[int, ...]) -> Array:
    """Interpolate linearly over the leading axes (*old, m) -> (*new, m), the ends of each axis onto the ends."""
    for axis, k_new in enumerate(new):
        k_old = values.shape[axis]
        position = np.linspace(0, k_old - 1, k_new) if k_new > 1 else np.array([(k_old - 1) / 2])
        below = np.minimum(np.floor(position).astype(int), max(k_old - 2, 0))
        above = np.minimum(below + 1, k_old - 1)
        weight = (position - below).reshape([-1 if a == axis else 1 for a in range(values.ndim)])
        values = (1 - weight) * values.take(below, axis) + weight * values.take(above, axis)
    return values


def _nearest_positive(matrix: Array) -> Array:
    eigenvalues, vectors = np.linalg.eigh(matrix)
    scaled = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    projected: Array = scaled @ scaled.T
    return projected
