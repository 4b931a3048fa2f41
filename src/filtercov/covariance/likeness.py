"""How alike a covariance and the closed form are, for many σ at once, and how alike they would be by chance.

Likeness is the cosine between the two as vectors, so scale does not matter. Nothing of size n² is built for it: with
u = g_i G_il, v = G_il g_l and w = g_i g_l along each axis, the closed form is ½(⊗u + ⊗v − ⊗w) in block form, and inner
products with it are taken axis by axis. Along a single long axis even k² numbers for each σ are many; see
`likeness_line`.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.closed_form import axis_gaussians, check_sigma
from filtercov.covariance.forms import Array, KernelSize, as_covariance, kernel_shape, to_block
from filtercov.covariance.likeness_line import LineLikeness
from filtercov.covariance.numbers import as_array

# Every σ the paper used, with room on both sides; beyond 64 the closed form of a 31x31 filter hardly changes.
SIGMAS: Array = np.geomspace(0.02, 64.0, 2000)

# Likeness by chance varies by less than this many times `spread` in 99 of 100 layers of independent filters.
SPREADS = 4

KEPT = 2 * 17**2  # numbers at each σ: closed forms of kernels up to 17x17 are kept, 18 MB each
AT_ONCE = 2**22  # numbers in each of the arrays over σ: long axes, and many of them, take fewer σ at a time


def likeness(cov: ArrayLike, kernel_size: KernelSize, sigmas: ArrayLike) -> Array:
    """Return the cosine between a flat covariance (n, n) and the closed form at each of `sigmas`: 1 for multiples.

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> likeness(3 * gaussian_covariance(7, 0.5), 7, [0.5]).round(12)
    array([1.])
    """
    shape = kernel_shape(kernel_size)
    s = np.atleast_1d(as_array(sigmas, "sigmas"))
    for sigma in s:
        check_sigma(sigma)
    every_axis = np.repeat(s[:, None], len(shape), axis=1)
    return Likeness(cov, shape)(every_axis, np.zeros_like(every_axis))


class Likeness:
    """The likeness of one covariance to closed forms of any σ per axis and any centre, many at a time.

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> like = Likeness(3 * gaussian_covariance(7, (0.5, 0.9), centre=(0, 0.5)), 7)
    >>> like([(0.5, 0.9), (0.5, 0.5)], [(0, 0.5), (0, 0)]).round(3)
    array([1.   , 0.875])
    """

    def __init__(self, cov: ArrayLike, kernel_size: KernelSize) -> None:
        self._shape = kernel_shape(kernel_size)
        matrix = as_covariance(cov, kernel_size=self._shape)
        # The cosine knows no scale: that of tiny filters is taken away, whose squares would vanish.
        matrix = matrix / (np.abs(matrix).max() or 1.0)
        symmetric = (matrix + matrix.T) / 2
        self._block = to_block(symmetric, self._shape)
        self._size = float(np.linalg.norm(matrix))
        self._line = LineLikeness(symmetric) if len(_long(self._shape)) == 1 and len(matrix) ** 2 > KEPT else None

    def __call__(self, sigmas: ArrayLike, centres: ArrayLike) -> Array:
        """Return the cosine for each row of σ and offsets from the middle, both (s, axes) -> (s,)."""
        s, c = (np.asarray(values, dtype=np.float64) for values in (sigmas, centres))
        if self._line is not None and len(self._shape) == 1:
            return self._line(s[:, 0], c[:, 0])
        at_once = max(1, AT_ONCE // sum(k * k for k in self._shape))
        rows = [slice(i, i + at_once) for i in range(0, len(s), at_once)]
        parts = [_Forms(self._shape, s[row], c[row]).cosines(self._block, self._size) for row in rows]
        return np.concatenate(parts) if parts else np.zeros(0)

    def at_sigmas(self) -> Array:
        """Return the cosine at each of `SIGMAS`; the closed forms of small kernels are kept for the next covariance."""
        if self._line is not None:
            return self._line(SIGMAS, np.zeros_like(SIGMAS))
        every_axis = np.repeat(SIGMAS[:, None], len(self._shape), axis=1)
        if sum(k * k for k in self._shape) > KEPT:
            return self(every_axis, np.zeros_like(every_axis))
        return _forms_at_sigmas(self._shape).cosines(self._block, self._size)


def chance_likeness(kernel_size: KernelSize, count: int) -> tuple[float, float]:
    """Return the likeness that `count` filters of independent Gaussian weights have on average, and seldom more than.

    Their covariance is the identity but for sampling: with n pixels, m = count - 1 and E‖S‖² = n + n(n+1)/m,

        chance = max over σ of tr Σ′ / ‖Σ′‖ / √(n + n(n+1)/m)        spread = √(2/m) / √(n + n(n+1)/m)

    because ⟨S, Σ′⟩ has the mean tr Σ′ and the variance 2‖Σ′‖²/m. The second number is chance + 4 spread. Both are nan
    for a single filter, which has no covariance.

    >>> [round(x, 2) for x in chance_likeness(9, 256)]
    [0.25, 0.28]
    """
    n, m = math.prod(kernel_shape(kernel_size)), count - 1
    if m < 1:
        return math.nan, math.nan
    size = math.sqrt(1 + (n + 1) / m)  # over that of the identity, √n
    chance = _likeness_of_identity(_long(kernel_shape(kernel_size))) / size
    return chance, min(chance + SPREADS * math.sqrt(2 / (m * n)) / size, 1.0)


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that are longer than one pixel, which has no σ; one at least."""
    return tuple(k for k in shape if k > 1) or (1,)


@cache
def _likeness_of_identity(shape: tuple[int, ...]) -> float:
    return float(likeness(np.eye(math.prod(shape)), shape, SIGMAS[::10]).max())


class _Forms:
    """Closed forms at rows of σ and of centres (s, axes), as factors along each axis, and their norms."""

    def __init__(self, shape: tuple[int, ...], s: Array, c: Array) -> None:
        axes = [axis_gaussians(k, s[:, a], c[:, a]) for a, k in enumerate(shape)]
        u = [(g[:, :, None] * G).reshape(len(s), -1) for g, G in axes]
        v = [(G * g[:, None, :]).reshape(len(s), -1) for g, G in axes]
        w = [(g[:, :, None] * g[:, None, :]).reshape(len(s), -1) for g, _ in axes]
        squared = 0.25 * (2 * _dot(u, u) + 2 * _dot(u, v) + _dot(w, w) - 4 * _dot(u, w))
        self._u, self._w, self._norms = u, w, np.sqrt(np.maximum(squared, 0.0))

    def cosines(self, block: Array, size: float) -> Array:
        """Return the cosine between each of them and a block form of norm `size`."""
        inner = _contract(block, self._u) - 0.5 * _contract(block, self._w)  # u and v give the same: it is symmetric
        norms = self._norms * size
        cosines: Array = np.divide(inner, norms, out=np.zeros_like(inner), where=norms > 0)
        return cosines


@lru_cache(maxsize=2)
def _forms_at_sigmas(shape: tuple[int, ...]) -> _Forms:
    every_axis = np.repeat(SIGMAS[:, None], len(shape), axis=1)
    return _Forms(shape, every_axis, np.zeros_like(every_axis))


def _contract(block: Array, factors: list[Array]) -> Array:
    """Return the inner product of a block form with a product over axes, for each σ."""
    longest_first = sorted(range(block.ndim), key=lambda axis: -block.shape[axis])  # leaves least for the other axes
    block, factors = block.transpose(longest_first), [factors[axis] for axis in longest_first]
    at_once = max(1, AT_ONCE // math.prod(block.shape[1:]))
    rows = [slice(i, i + at_once) for i in range(0, len(factors[0]), at_once)]
    return np.concatenate([_contract_at_once(block, [factor[row] for factor in factors]) for row in rows])


def _contract_at_once(block: Array, factors: list[Array]) -> Array:
    result = np.tensordot(factors[0], block, axes=(1, 0))
    for factor in factors[1:]:
        result = np.einsum("sa,sa...->s...", factor, result)
    return result


def _dot(a: list[Array], b: list[Array]) -> Array:
    result: Array = np.prod([np.einsum("sa,sa->s", x, y) for x, y in zip(a, b, strict=True)], axis=0)
    return result
