"""The symmetric square root of a covariance that may have negative eigenvalues, and its cheap form for the closed form.

Filters are sampled as z @ R with R symmetric. Unlike a factor V√Λ from an eigendecomposition, which is free to flip
signs and to turn inside degenerate eigenspaces, R is determined by the covariance alone, so the same random numbers
give the same filters on any linear algebra library, up to rounding.

The closed form has two savings. It commutes with the flip of every axis, so in a basis of even and odd functions it
falls apart into 2ᵈ blocks; and it fades as exp(-r²/4σ) away from the centre, so only a centred window needs factoring.
On square kernels it also commutes with the exchange of the axes, so of the blocks even-odd and odd-even one is enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, product
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.closed_form import axis_gaussians
from filtercov.covariance.forms import Array, KernelSize, as_covariance, kernel_shape, kron
from filtercov.errors import CovarianceError

Negative = Literal["clip", "abs"]

# The largest error the window may leave in an entry of the root, and the decay of that error, exp(-0.22 r²/σ), measured
# against roots of whole matrices for kernels to 31 and σ from .05 to 5. tests/covariance/test_root.py holds it.
WINDOW_ERROR = 1e-7
WINDOW_DECAY = 0.22

# Roots are computed in batches of this many numbers, where calls into the library cost more than the arithmetic.
BATCH_ENTRIES = 1 << 17


@dataclass(frozen=True)
class Root:
    """The symmetric root of a covariance, zero outside a centred window of the filter.

    `matrix` is (m, m) over the m pixels of `window`; `negative_mass` is Σ|λ| over negative eigenvalues, as a share of
    Σ|λ| over all of them, before anything was done about them.
    """

    kernel_size: tuple[int, ...]
    window: tuple[slice, ...]
    matrix: Array
    negative_mass: float

    def filled(self, least: float) -> int:
        """How many pixels of a filter have a standard deviation above `least` times the largest one's."""
        variance = np.square(self.matrix).sum(axis=0)
        return int((variance > least * least * variance.max()).sum())


def symmetric_root(cov: ArrayLike, *, negative: Negative = "clip") -> Array:
    """The symmetric R with R @ R = the nearest usable covariance: (n, n) -> (n, n).

    The closed form has a few negative eigenvalues; `clip` drops them, the projection the paper's text describes, and
    `abs` mirrors them, which is what its NumPy listing comes to.

    >>> symmetric_root(np.diag([4.0, -1.0]), negative="abs")
    array([[2., 0.],
           [0., 1.]])
    """
    check_negative(negative)
    matrix = as_covariance(cov)
    return covariance_root(matrix, (len(matrix),), negative=negative).matrix


def covariance_root(cov: ArrayLike, kernel_size: KernelSize, *, negative: Negative) -> Root:
    """The root of any covariance of `kernel_size` filters, over the whole filter."""
    shape = kernel_shape(kernel_size)
    matrix = as_covariance(cov, kernel_size=shape)
    eigenvalues, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    scaled = vectors * np.sqrt(np.sqrt(_usable(eigenvalues, negative)))
    total = float(np.abs(eigenvalues).sum())
    mass = float(np.maximum(-eigenvalues, 0.0).sum()) / total if total else 0.0
    return Root(shape, tuple(slice(0, k) for k in shape), scaled @ scaled.T, mass)


def gaussian_roots(kernel_size: KernelSize, sigmas: Iterable[float], *, negative: Negative) -> Iterator[Root]:
    """Yield the root of the closed form of `kernel_size` filters for each σ, exact to `WINDOW_ERROR`.

    Neighbours in `sigmas` that need the same window are computed together.

    >>> [root] = gaussian_roots(31, [0.1], negative="clip")
    >>> root.window, root.matrix.shape
    ((slice(12, 19, None), slice(12, 19, None)), (49, 49))
    """
    shape = kernel_shape(kernel_size)
    for window, neighbours in groupby(sigmas, lambda sigma: tuple(support_window(k, sigma) for k in shape)):
        alike = np.array(list(neighbours))
        most = max(1, BATCH_ENTRIES // _pixels(window) ** 2)
        for start in range(0, len(alike), most):
            matrices, masses = _gaussian_batch(shape, window, alike[start : start + most], negative)
            for matrix, mass in zip(matrices, masses, strict=True):
                yield Root(shape, window, matrix, float(mass))


def support_window(k: int, sigma: float) -> slice:
    """The centred pixels of an axis of length k that carry the closed form, to `WINDOW_ERROR`.

    >>> support_window(31, 0.1), support_window(5, 4.0)
    (slice(12, 19, None), slice(0, 5, None))
    """
    radius = math.ceil(min(math.sqrt(sigma * math.log(1 / WINDOW_ERROR) / WINDOW_DECAY), k))
    middle = (k - 1) / 2
    first, last = math.floor(middle - radius), math.ceil(middle + radius)
    return slice(first, last + 1) if first >= 0 else slice(0, k)


def check_negative(negative: str) -> None:
    """Raise unless `negative` names a way to deal with negative eigenvalues."""
    if negative not in get_args(Negative):
        raise CovarianceError(f"negative: needed 'clip' or 'abs', got {negative!r}")


def _pixels(window: tuple[slice, ...]) -> int:
    return math.prod(side.stop - side.start for side in window)


def _gaussian_batch(
    shape: tuple[int, ...], window: tuple[slice, ...], sigmas: Array, negative: Negative
) -> tuple[Array, Array]:
    """The roots (s, m, m) over the window, and the negative masses (s,), from the blocks of each parity."""
    count, m = len(sigmas), _pixels(window)
    axes = [_parity_parts(k, pixels, sigmas) for k, pixels in zip(shape, window, strict=True)]
    roots: Array = np.zeros((count, m, m))
    total, below = np.zeros(count), np.zeros(count)
    square = len(shape) == 2 and shape[0] == shape[1]
    for parities in product((0, 1), repeat=len(shape)):
        if square and parities == (1, 0):  # the transpose of (0, 1): it was counted there
            continue
        twice = 2 if square and parities == (0, 1) else 1
        parts = [axis[parity] for axis, parity in zip(axes, parities, strict=True)]
        C = reduce(_batched_kron, (part.G for part in parts))
        D = reduce(_batched_kron, (part.g for part in parts))
        block = C * (D[:, :, None] + D[:, None, :])
        if not any(parities):  # z is even along every axis
            z = reduce(_batched_kron, (part.z for part in parts))
            block -= z[:, :, None] * z[:, None, :]
        basis = kron([part.basis for part in parts])
        eigenvalues, vectors = np.linalg.eigh(0.5 * block)
        total += twice * np.abs(eigenvalues).sum(axis=1)
        below -= twice * np.minimum(eigenvalues, 0.0).sum(axis=1)
        scaled = (basis @ vectors) * np.sqrt(np.sqrt(_usable(eigenvalues, negative)))[:, None, :]
        root = scaled @ scaled.transpose(0, 2, 1)
        roots += root
        if twice == 2:
            side = window[0].stop - window[0].start
            exchanged = root.reshape(-1, side, side, side, side).transpose(0, 2, 1, 4, 3)
            roots.reshape(exchanged.shape)[...] += exchanged
    return roots, np.divide(below, total, out=np.zeros_like(total), where=total > 0)


class _ParityPart(NamedTuple):
    """The even or the odd functions on one axis: basis (w, p), and in that basis g (s, p), z (s, p) and G (s, p, p)."""

    basis: Array
    g: Array
    z: Array
    G: Array


def _parity_parts(k: int, window: slice, sigmas: Array) -> list[_ParityPart]:
    g, G = axis_gaussians(k, sigmas, window=window)
    w = window.stop - window.start
    half, mirror = w // 2, np.eye(w)[::-1]
    even = (np.eye(w) + mirror)[:, half:] / math.sqrt(2)
    if w % 2:
        even[half, 0] = 1.0
    odd = (np.eye(w) - mirror)[:, w - half :] / math.sqrt(2)
    parts = ((even, half), (odd, w - half))
    return [_ParityPart(basis, g[:, first:], g @ basis, basis.T @ G @ basis) for basis, first in parts]


def _batched_kron(a: Array, b: Array) -> Array:
    """The Kronecker product over the last axis (s, ·), or over the last two (s, ·, ·)."""
    size = a.shape[1] * b.shape[1]
    if a.ndim == 2:
        return (a[:, :, None] * b[:, None, :]).reshape(len(a), size)
    return (a[:, :, None, :, None] * b[:, None, :, None, :]).reshape(len(a), size, size)


def _usable(eigenvalues: Array, negative: Negative) -> Array:
    return np.abs(eigenvalues) if negative == "abs" else np.maximum(eigenvalues, 0.0)
