"""The symmetric square root of a covariance that may have negative eigenvalues, and its cheap form for the closed form.

Filters are sampled as z @ R with R symmetric. Unlike a factor V√Λ from an eigendecomposition, which is free to flip
signs and to turn inside degenerate eigenspaces, R is determined by the covariance alone, so the same random numbers
give the same filters on any linear algebra library, up to rounding.

The closed form has two savings. It commutes with the flip of every axis, so in a basis of even and odd functions it
falls apart into 2ᵈ blocks; and it fades as exp(-r²/4σ) away from the centre, so only a centred window needs factoring.
On square kernels it also commutes with the exchange of the axes, so of the blocks even-odd and odd-even one is enough.

What of that is left for the other closed forms:

* σ per axis: both. The window has a radius per axis. The axes are exchanged for nothing if their σ are equal.
* A centre that is off the middle: entries fade with the distance from the centre *around* the axis, because C wraps.
  Where the window about the centre lies inside the axis, it is one stretch of pixels; else the axis is taken whole.
  The flip about the centre takes pixels to pixels if the centre lies on one or halfway between two. It leaves C alone,
  and g too as long as no pixel is flipped out of the axis, which a window inside it grants. So half a pixel off, where
  trained filters are, costs nothing as long as the window fits. Any other axis is one block instead of two.
* Two such axes, of one length, one σ and one offset or its opposite: Σ′ commutes with their exchange, (i, j) to (j, i)
  or for opposite offsets (i, j) to (w-1-j, w-1-i), and the block falls into the functions that it leaves alone and
  those that it negates, of w(w+1)/2 and w(w-1)/2 dimensions: a quarter of the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.closed_form import ClosedForm, axis_gaussians
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
        """Return how many pixels of a filter have a standard deviation above `least` times the largest one's."""
        variance = np.square(self.matrix).sum(axis=0)
        return int((variance > least * least * variance.max()).sum())


def symmetric_root(cov: ArrayLike, *, negative: Negative = "clip") -> Array:
    """Return the symmetric R with R @ R = the nearest usable covariance: (n, n) -> (n, n).

    The closed form has a few negative eigenvalues; `clip` drops them, the projection the paper's text describes, and
    `abs` mirrors them, which is what its NumPy listing comes to.

    >>> symmetric_root(np.diag([4.0, -1.0]), negative="abs")
    array([[2., 0.],
           [0., 1.]])
    """
    check_negative(negative)
    return _root_and_mass(as_covariance(cov), negative)[0]


def covariance_root(cov: ArrayLike, kernel_size: KernelSize, *, negative: Negative) -> Root:
    """Return the root of any covariance of `kernel_size` filters, over the whole filter."""
    check_negative(negative)
    shape = kernel_shape(kernel_size)
    matrix, mass = _root_and_mass(as_covariance(cov, kernel_size=shape), negative)
    return Root(shape, tuple(slice(0, k) for k in shape), matrix, mass)


def gaussian_roots(
    kernel_size: KernelSize, forms: Sequence[float | ClosedForm], *, negative: Negative
) -> Iterator[Root]:
    """Yield the root of the closed form of `kernel_size` filters for each σ or `ClosedForm`, exact to `WINDOW_ERROR`.

    Neighbours in `forms` that need the same window and have the same symmetries are computed together.

    >>> [root] = gaussian_roots(31, [0.1], negative="clip")
    >>> root.window, root.matrix.shape
    ((slice(12, 19, None), slice(12, 19, None)), (49, 49))
    >>> [root] = gaussian_roots(31, [ClosedForm((0.1, 0.4), centre=(-0.5, 0))], negative="clip")
    >>> root.window
    (slice(11, 19, None), slice(9, 22, None))
    """
    check_negative(negative)
    shape = kernel_shape(kernel_size)
    axes = [(form if isinstance(form, ClosedForm) else ClosedForm(form)).along(shape) for form in forms]
    plans = [_plan(shape, each) for each in axes]
    start = 0
    while start < len(axes):
        plan = plans[start]
        stop, most = start + 1, max(1, BATCH_ENTRIES // plan.pixels**2)
        while stop < len(axes) and plans[stop] == plan and stop - start < most:
            stop += 1
        parameters = np.asarray(axes[start:stop], dtype=np.float64)  # (s, axes, 2)
        matrices, masses = _gaussian_batch(shape, plan, parameters, negative)
        for matrix, mass in zip(matrices, masses, strict=True):
            yield Root(shape, plan.windows, matrix, float(mass))
        start = stop


def support_window(k: int, sigma: float, centre: float = 0.0) -> slice:
    """Return which pixels of an axis of length k carry the closed form, to `WINDOW_ERROR`: all, or some at its centre.

    >>> support_window(31, 0.1), support_window(31, 0.1, -10.0), support_window(5, 4.0)
    (slice(12, 19, None), slice(2, 9, None), slice(0, 5, None))
    """
    radius = math.ceil(min(math.sqrt(sigma * math.log(1 / WINDOW_ERROR) / WINDOW_DECAY), k))
    middle = (k - 1) / 2 + centre
    first, last = math.floor(middle - radius), math.ceil(middle + radius)
    return slice(first, last + 1) if first >= 0 and last < k else slice(0, k)


def check_negative(negative: str) -> None:
    """Raise unless `negative` names a way to deal with negative eigenvalues."""
    if negative not in get_args(Negative):
        raise CovarianceError(f"negative: needed 'clip' or 'abs', got {negative!r}")


@dataclass(frozen=True)
class _Plan:
    """What of a closed form has to be factored: a window, which axes can be flipped, whether the two can be exchanged.

    `exchange` is 1 if Σ′ commutes with the exchange of both axes, -1 if it does so with that of both, flipped, else 0.
    """

    windows: tuple[slice, ...]
    flips: tuple[bool, ...]
    exchange: int

    @property
    def sides(self) -> tuple[int, ...]:
        return tuple(window.stop - window.start for window in self.windows)

    @property
    def pixels(self) -> int:
        return math.prod(self.sides)


def _plan(shape: tuple[int, ...], axes: tuple[tuple[float, float], ...]) -> _Plan:
    windows = tuple(support_window(k, *axis) for k, axis in zip(shape, axes, strict=True))
    flips = tuple(
        w.start + w.stop - 1 == k - 1 + 2 * centre for k, w, (_, centre) in zip(shape, windows, axes, strict=True)
    )
    exchange = 0
    if len(shape) == 2 and shape[0] == shape[1] and axes[0][0] == axes[1][0]:
        first, second = axes[0][1], axes[1][1]
        exchange = 1 if first == second else -1 if first == -second else 0
    return _Plan(windows, flips, exchange)


def _gaussian_batch(shape: tuple[int, ...], plan: _Plan, parameters: Array, negative: Negative) -> tuple[Array, Array]:
    """Return the roots (s, m, m) over the window, and the negative masses (s,), from the blocks of each parity."""
    count, m = len(parameters), plan.pixels
    axes = [
        _parity_parts(k, window, parameters[:, a], flip)
        for a, (k, window, flip) in enumerate(zip(shape, plan.windows, plan.flips, strict=True))
    ]
    roots: Array = np.zeros((count, m, m))
    total, below = np.zeros(count), np.zeros(count)
    transposed = plan.exchange != 0 and all(plan.flips)  # within their windows the two axes are alike
    for parities in product(*(range(len(axis)) for axis in axes)):
        if transposed and parities == (1, 0):  # the transpose of (0, 1): it was counted there
            continue
        twice = 2 if transposed and parities == (0, 1) else 1
        parts = [axis[parity] for axis, parity in zip(axes, parities, strict=True)]
        C = reduce(_batched_kron, (part.G for part in parts))
        D = reduce(_batched_kron, (part.g for part in parts))
        block = C * (D[:, :, None] + D[:, None, :])
        if not any(parities):  # z is even along every axis
            z = reduce(_batched_kron, (part.z for part in parts))
            block -= z[:, :, None] * z[:, None, :]
        basis = kron([part.basis for part in parts])
        for exchanged in _exchange_bases(plan):
            whole = basis if exchanged is None else exchanged  # without flips the basis is the identity
            part = block if exchanged is None else exchanged.T @ block @ exchanged
            eigenvalues, vectors = np.linalg.eigh(0.5 * part)
            total += twice * np.abs(eigenvalues).sum(axis=1)
            below -= twice * np.minimum(eigenvalues, 0.0).sum(axis=1)
            scaled = (whole @ vectors) * np.sqrt(np.sqrt(_usable(eigenvalues, negative)))[:, None, :]
            root = scaled @ scaled.transpose(0, 2, 1)
            roots += root
        if twice == 2:
            flipped = root.reshape(-1, *plan.sides, *plan.sides).transpose(0, 2, 1, 4, 3)
            roots.reshape(flipped.shape)[...] += flipped
    return roots, np.divide(below, total, out=np.zeros_like(total), where=total > 0)


def _exchange_bases(plan: _Plan) -> list[Array | None]:
    """Return bases (m, ·) of the functions that the exchange of two axes leaves, and of those that it negates.

    Only where neither axis can be flipped; elsewhere it is None, which stands for all functions.
    """
    if not plan.exchange or any(plan.flips):
        return [None]
    grid = np.arange(plan.pixels).reshape(plan.sides)
    here, there = grid.ravel(), (grid if plan.exchange == 1 else grid[::-1, ::-1]).T.ravel()
    identity = np.eye(plan.pixels)
    both, one = here <= there, here < there
    even, odd = identity[:, here[both]] + identity[:, there[both]], identity[:, here[one]] - identity[:, there[one]]
    return [basis / np.linalg.norm(basis, axis=0) for basis in (even, odd)]


@dataclass(frozen=True)
class _ParityPart:
    """The even, the odd or all of one axis: basis (w, p), and in that basis g (s, p), z (s, p) and G (s, p, p)."""

    basis: Array
    g: Array
    z: Array
    G: Array


def _parity_parts(k: int, window: slice, parameters: Array, flip: bool) -> tuple[_ParityPart, ...]:
    """Return the even and the odd part of an axis that can be flipped, else all of it; `parameters` are (s, 2)."""
    g, G = axis_gaussians(k, parameters[:, 0], parameters[:, 1], window=window)
    w = window.stop - window.start
    if not flip:
        return (_ParityPart(np.eye(w), g, g, G),)
    mirror = np.eye(w)[::-1]
    half = w // 2
    even = (np.eye(w) + mirror)[:, half:] / math.sqrt(2)
    if w % 2:
        even[half, 0] = 1.0
    odd = (np.eye(w) - mirror)[:, w - half :] / math.sqrt(2)

    def part(basis: Array, first: int) -> _ParityPart:
        return _ParityPart(basis, g[:, first:], g @ basis, basis.T @ G @ basis)

    return part(even, half), part(odd, w - half)


def _batched_kron(a: Array, b: Array) -> Array:
    """Return the Kronecker product over the last axis (s, ·), or over the last two (s, ·, ·)."""
    size = a.shape[1] * b.shape[1]
    if a.ndim == 2:
        return (a[:, :, None] * b[:, None, :]).reshape(len(a), size)
    return (a[:, :, None, :, None] * b[:, None, :, None, :]).reshape(len(a), size, size)


def _root_and_mass(matrix: Array, negative: Negative) -> tuple[Array, float]:
    eigenvalues, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    scaled = vectors * np.sqrt(np.sqrt(_usable(eigenvalues, negative)))
    total = float(np.abs(eigenvalues).sum())
    return scaled @ scaled.T, float(np.maximum(-eigenvalues, 0.0).sum()) / total if total else 0.0


def _usable(eigenvalues: Array, negative: Negative) -> Array:
    return np.abs(eigenvalues) if negative == "abs" else np.maximum(eigenvalues, 0.0)
