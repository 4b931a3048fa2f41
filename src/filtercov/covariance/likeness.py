"""How alike a covariance and the closed form are, for many σ at once, and how alike they would be by chance.

Likeness is the cosine between the two as vectors, so scale does not matter. Nothing of size n² is built for it: with
u = g_i G_il, v = G_il g_l and w = g_i g_l along each axis, the closed form is ½(⊗u + ⊗v − ⊗w) in block form, and inner
products with it are taken axis by axis.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from itertools import starmap

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.closed_form import axis_gaussians
from filtercov.covariance.forms import Array, KernelSize, kernel_shape, to_block

# Every σ the paper used, with room on both sides; beyond 64 the closed form of a 31x31 filter hardly changes.
SIGMAS: Array = np.geomspace(0.02, 64.0, 2000)

# Likeness by chance varies by less than this many times `spread` in 99 of 100 layers of independent filters.
SPREADS = 4

KEPT = 2 * 17**2  # numbers at each σ: closed forms of kernels up to 17x17 are kept, 18 MB each
AT_ONCE = 2**22  # numbers in each of the arrays over σ: large kernels take fewer σ at a time


def likeness(cov: Array, kernel_size: KernelSize, sigmas: ArrayLike = SIGMAS) -> Array:
    """The cosine between a flat covariance (n, n) and the closed form at each of `sigmas`: 1 for multiples.

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> likeness(3 * gaussian_covariance(7, 0.5), 7, [0.5]).round(12)
    array([1.])
    """
    shape, s = kernel_shape(kernel_size), np.atleast_1d(np.asarray(sigmas, dtype=np.float64))
    matrix = cov / (np.abs(cov).max() or 1.0)  # squares of tiny numbers would vanish
    size = float(np.linalg.norm(matrix))
    block = to_block((matrix + matrix.T) / 2, shape)
    # At each σ the factors have `numbers` numbers, and the first contraction, of the longest axis, leaves `rest`.
    numbers, rest = sum(block.shape), block.size // max(block.shape)
    at_once = max(1, AT_ONCE // max(numbers, rest))
    if s is SIGMAS and numbers <= KEPT and at_once >= len(s):
        forms = iter([_forms_at_sigmas(shape)])
    else:
        forms = (_closed_forms(shape, s[i : i + at_once]) for i in range(0, len(s), at_once))

    def cosines(u: list[Array], w: list[Array], norms: Array) -> Array:
        inner = _contract(block, u) - 0.5 * _contract(block, w)  # symmetric: u and v give the same
        return np.divide(inner, norms * size, out=np.zeros_like(inner), where=norms * size > 0)

    return np.concatenate(list(starmap(cosines, forms)))


def chance_likeness(kernel_size: KernelSize, count: int) -> tuple[float, float]:
    """The likeness that `count` filters of independent Gaussian weights have on average, and seldom more than.

    Their covariance is the identity but for sampling: with n pixels, m = count - 1 and E‖S‖² = n + n(n+1)/m,

        chance = max over σ of tr Σ′ / ‖Σ′‖ / √(n + n(n+1)/m)        spread = √(2/m) / √(n + n(n+1)/m)

    because ⟨S, Σ′⟩ has the mean tr Σ′ and the variance 2‖Σ′‖²/m. The second number is chance + 4 spread. Both are nan
    for a single filter, which has no covariance.

    >>> [round(x, 2) for x in chance_likeness(9, 256)]
    [0.25, 0.28]
    """
    shape = kernel_shape(kernel_size)
    n, m = math.prod(shape), count - 1
    if m < 1:
        return math.nan, math.nan
    size = math.sqrt(1 + (n + 1) / m)  # over that of the identity, √n
    chance = _likeness_of_identity(shape) / size
    return chance, min(chance + SPREADS * math.sqrt(2 / (m * n)) / size, 1.0)


@cache
def _likeness_of_identity(shape: tuple[int, ...]) -> float:
    return float(likeness(np.eye(math.prod(shape)), shape, SIGMAS[::10]).max())


def _closed_forms(shape: tuple[int, ...], sigmas: Array) -> tuple[list[Array], list[Array], Array]:
    """Closed forms at s values of σ: u and w along each axis (s, k²), and their norms (s,)."""
    axes = [axis_gaussians(k, sigmas) for k in shape]
    u = [(g[:, :, None] * G).reshape(len(sigmas), -1) for g, G in axes]
    v = [(G * g[:, None, :]).reshape(len(sigmas), -1) for g, G in axes]
    w = [(g[:, :, None] * g[:, None, :]).reshape(len(sigmas), -1) for g, _ in axes]
    squared = 0.25 * (2 * _dot(u, u) + 2 * _dot(u, v) + _dot(w, w) - 4 * _dot(u, w))
    return u, w, np.sqrt(np.maximum(squared, 0.0))


@lru_cache(maxsize=2)
def _forms_at_sigmas(shape: tuple[int, ...]) -> tuple[list[Array], list[Array], Array]:
    return _closed_forms(shape, SIGMAS)


def _contract(block: Array, factors: list[Array]) -> Array:
    """The inner product of a block form with a product over axes, for each σ."""
    first, *others = sorted(range(block.ndim), key=lambda axis: -block.shape[axis])  # longest first
    result = np.tensordot(factors[first], block.transpose(first, *others), axes=(1, 0))
    for axis in others:
        result = np.einsum("sa,sa...->s...", factors[axis], result)
    return result


def _dot(a: list[Array], b: list[Array]) -> Array:
    result: Array = np.prod([np.einsum("sa,sa->s", x, y) for x, y in zip(a, b, strict=True)], axis=0)
    return result
