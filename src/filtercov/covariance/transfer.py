"""Measure the Gaussian that a layer's filters look drawn from, and carry it over to filters of another size.

Resizing follows the paper. In block form every block is a picture of the filter's extent: pad it with its mean, or clip
it, around its centre to the new size; then interpolate linearly over the grid of blocks to get as many of them as the
new filter has pixels. The result is symmetrised and projected to the nearest positive semi-definite matrix. The paper's
sizes are all odd. Between an even and an odd one the centres lie half a pixel apart, and the picture is the mean of the
two ways to lay pixels over each other. Far from the old size little of the old covariance is left; `Resizing` says how
much.

The nearest Kronecker square is exact where the paper ran gradient descent: in block form A⊗A is the rank-one matrix
vec(A) vec(A)ᵀ, so the best A in least squares is the leading eigenvector of the block form's symmetric part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.forms import (
    Array,
    KernelSize,
    as_array,
    as_covariance,
    as_mean,
    check_finite,
    check_pixels,
    kernel_shape,
    show_size,
    to_block,
    whole_number,
)
from filtercov.errors import CovarianceError, naming
from filtercov.printable import counted, printable, shortened

DOUBTFUL = 0.25  # share of a covariance under which too little survives resizing


def empirical_covariance(filters: ArrayLike) -> tuple[Array, Array]:
    """The mean (n,) and the covariance (n, n) of filters (H, *kernel_size), in float64.

    The covariance is the unbiased estimate, with H-1 in the denominator. Fewer filters than pixels give a
    rank-deficient covariance, which is a fine thing to sample from: the paper's best references are narrow. One filter
    alone has no spread: its covariance is zero, and the mean is the filter.

    >>> mean, cov = empirical_covariance([[[1.0, 0.0]], [[3.0, 0.0]]])
    >>> mean, cov
    (array([2., 0.]), array([[2., 0.], [0., 0.]]))
    """
    stack = as_array(filters, "empirical_covariance")
    if not 2 <= stack.ndim <= 4 or 0 in stack.shape:
        raise CovarianceError(
            f"empirical_covariance: needed at least one filter as (H, *kernel_size), got shape {stack.shape}; "
            "squeeze a depthwise weight (H, 1, kh, kw) with weight[:, 0] first"
        )
    check_pixels(stack.shape[1:])
    check_finite(stack, "empirical_covariance")
    flat = stack.reshape(len(stack), -1)
    from_first = flat - flat[0]  # exactly zero if all filters are equal, where a rounded mean would not be
    offset = from_first.mean(axis=0)
    centred = from_first - offset
    return flat[0] + offset, centred.T @ centred / max(len(flat) - 1, 1)


def nearest_kronecker(cov: ArrayLike, kernel_size: KernelSize) -> Array:
    """Return A (k, k) for which A⊗A is nearest to the flat covariance of k×k filters in Frobenius norm.

    Of A and -A, the one with the larger trace is returned. Where no Kronecker square is nearer than zero, A is zero.

    >>> A = np.array([[2.0, 0.5], [0.5, 1.0]])
    >>> np.allclose(nearest_kronecker(np.kron(A, A), 2), A)
    True
    """
    shape = kernel_shape(kernel_size)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise CovarianceError(f"nearest_kronecker: A⊗A needs square 2-D filters, got {show_size(shape)}")
    block = to_block(as_covariance(cov, kernel_size=shape), shape)
    eigenvalues, vectors = np.linalg.eigh((block + block.T) / 2)
    A: Array = np.sqrt(max(eigenvalues[-1], 0.0)) * vectors[:, -1].reshape(shape)
    return A if np.trace(A) >= 0 else -A


def resize_covariance(cov: ArrayLike, from_size: KernelSize, to_size: KernelSize) -> Array:
    """The covariance of `from_size` filters carried over to `to_size` filters: (n, n) -> (n', n').

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> resize_covariance(gaussian_covariance(7, 1.0), 7, 9).shape
    (81, 81)
    """
    old, new = kernel_shape(from_size), kernel_shape(to_size)
    if len(old) != len(new):
        raise CovarianceError(
            f"resize: needed two kernel sizes with as many axes, got {show_size(old)} and {show_size(new)}"
        )
    matrix = as_covariance(cov, kernel_size=old)
    if old == new:
        return matrix.copy()
    check_pixels(new)
    blocks = _resize_pictures(matrix.reshape(-1, *old), new).reshape(*old, -1)
    n = math.prod(new)
    resized = _interpolate_grid(blocks, new).reshape(n, n)
    eigenvalues, vectors = np.linalg.eigh((resized + resized.T) / 2)
    scaled = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    projected: Array = scaled @ scaled.T
    return projected


def resize_mean(mean: ArrayLike, from_size: KernelSize, to_size: KernelSize) -> Array:
    """A mean filter padded with its mean or clipped around its centre: (n,) -> (n',).

    >>> resize_mean(np.array([1.0, 2.0, 3.0]), (3,), (5,))
    array([2., 1., 2., 3., 2.])
    """
    old = kernel_shape(from_size)
    return _resize_pictures(as_mean(mean, old).reshape(1, *old), kernel_shape(to_size)).reshape(-1)


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
        below = np.floor(position).astype(int)
        above = np.minimum(below + 1, k_old - 1)
        weight = (position - below).reshape([-1 if a == axis else 1 for a in range(values.ndim)])
        values = (1 - weight) * values.take(below, axis) + weight * values.take(above, axis)
    return values


@dataclass(frozen=True)
class Resizing:
    """What is left of a covariance of `from_size` filters at another size.

    `survives` is the squared cosine between the covariances before and after, laid over each other around the centre:
    the share of the new one, in least squares, that the old one explains. Between even and odd sizes the cosine is the
    mean over the overlays.
    """

    from_size: tuple[int, ...]
    survives: float


def compare_resized(before: Array, from_size: tuple[int, ...], after: Array, to_size: tuple[int, ...]) -> Resizing:
    """What is left of the covariance `before` in `after`, the same one resized.

    >>> cov = np.eye(9)
    >>> round(compare_resized(cov, (3, 3), resize_covariance(cov, 3, 7), (7, 7)).survives, 2)
    0.09
    """
    norms = float(np.linalg.norm(before) * np.linalg.norm(after))
    if norms == 0:
        return Resizing(from_size, 1.0)
    first, second = before.reshape(from_size * 2), after.reshape(to_size * 2)
    inner = [np.vdot(first[old * 2], second[new * 2]) for old, new in _overlays(from_size, to_size)]
    return Resizing(from_size, min((float(np.mean(inner)) / norms) ** 2, 1.0))  # rounding may exceed 1


def resizing_doubts(layers: Iterable[tuple[tuple[int, ...], Resizing | None]]) -> list[str]:
    """Note each pair of kernel sizes between which little of the statistics survived resizing.

    `layers` are the kernel sizes that statistics have now, each with its resizing, if there was one.

    >>> resizing_doubts([((7, 7), Resizing((3, 3), survives=0.2)), ((7, 7), None)])
    ['1 layer resized from 3x3 to 7x7: 20% of the covariance survives; statistics of filters nearer in size carry ...']
    """
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}
    for size, resized in layers:
        if resized is not None and resized.survives < DOUBTFUL:
            groups.setdefault((resized.from_size, size), []).append(resized.survives)
    return [
        f"{counted(len(survives), 'layer')} resized from {show_size(old)} to {show_size(new)}: {min(survives):.0%} of "
        "the covariance survives; statistics of filters nearer in size carry over better"
        for (old, new), survives in groups.items()
    ]


@dataclass(frozen=True, eq=False, repr=False)
class LayerStatistics:
    """The Gaussian that the `count` filters of one layer look drawn from: mean (n,) and covariance (n, n).

    `resized` is set if the filters were measured at another kernel size; `near_zero`, how many of them have no weight
    above 1 % of the layer's largest, if that was counted at this size.
    """

    name: str
    kernel_size: tuple[int, ...]
    count: int
    mean: Array
    covariance: Array
    resized: Resizing | None = None
    near_zero: int | None = None

    def __post_init__(self) -> None:
        with naming(self.name):
            size, count = kernel_shape(self.kernel_size), whole_number(self.count, "count")
            mean, covariance = as_mean(self.mean, size), as_covariance(self.covariance, kernel_size=size)
        checked = {"kernel_size": size, "count": count, "mean": mean, "covariance": covariance}
        for field, value in checked.items():
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        origin = "" if self.resized is None else f", resized from {show_size(self.resized.from_size)}"
        text = f"<LayerStatistics {self.name}: {self.count} filters of {show_size(self.kernel_size)}{origin}>"
        return printable(text)

    def resize(self, kernel_size: KernelSize) -> LayerStatistics:
        """These statistics for filters of another size."""
        new = kernel_shape(kernel_size)
        if new == self.kernel_size:
            return self
        old, covariance = self.kernel_size, resize_covariance(self.covariance, self.kernel_size, new)
        return replace(
            self,
            kernel_size=new,
            mean=resize_mean(self.mean, old, new),
            covariance=covariance,
            resized=compare_resized(self.covariance, old, covariance, new),
            near_zero=None,
        )


def interpolate_layers(below: LayerStatistics, above: LayerStatistics, weight: float) -> LayerStatistics:
    """The statistics between two layers of one kernel size, `weight` of the way from the first to the second.

    `resized` is that of the nearer layer, or of the other if only that was resized.

    >>> a, b = (LayerStatistics(name, (1,), 8, [x], [[x]]) for name, x in (("a", 1.0), ("b", 2.0)))
    >>> interpolate_layers(a, b, 0.25).name, interpolate_layers(a, b, 0.25).mean
    ('layers a and b, weighted 0.75 : 0.25', array([1.25]))
    """
    nearer, other = (above, below) if weight > 0.5 else (below, above)
    names = f"{shortened(below.name)} and {shortened(above.name)}"  # which may say of what they are interpolated
    return LayerStatistics(
        name=f"layers {names}, weighted {1 - weight:.2g} : {weight:.2g}",
        kernel_size=below.kernel_size,
        count=min((count for count in (below.count, above.count) if count > 1), default=1),  # one has no spread
        mean=(1 - weight) * below.mean + weight * above.mean,
        covariance=(1 - weight) * below.covariance + weight * above.covariance,
        resized=nearer.resized or other.resized,
    )
