"""What mean and covariance tell: in how many directions filters vary, their symmetry, and where their centre lies.

Chance is exact for symmetry and centre. The share of power in a subspace of d of n dimensions, over N filters of
independent Gaussian weights, has the distribution Beta(Nd/2, N(n-d)/2); the shares of the pixels in the variance of a
sample with m = N-1 degrees of freedom have a Dirichlet distribution with every parameter m/2. The entropy of a sample's
spectrum is a sum over its eigenvalues, whose mean and variance for many pixels and filters are known in closed form;
for few, random ones are tried.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from filtercov.covariance.forms import Array
from filtercov.structure.number import Number, absent, within

ANGLES = 512  # at which a function of an eigenvalue is looked at to expand it in cosines
FEW = 128  # pixels times degrees of freedom under which the closed form is more than a percent off
TRIED = 1 << 13  # random samples of so few
Permutation = NDArray[np.intp]


def spectral_entropy(eigenvalues: Array) -> float:
    """Return -Σ p ln p of the shares p of the eigenvalues, 0 if they are all in one.

    >>> spectral_entropy(np.array([1.0, 1.0, 0.0])) == math.log(2)
    True
    """
    positive = eigenvalues[eigenvalues > 0]
    shares = positive / positive.sum()
    return float(-(shares * np.log(shares)).sum())


def entropy_numbers(cov: Array, count: int) -> tuple[Number, Number]:
    """Return the variance entropy, over what chance gives, and the effective rank e^entropy of a covariance (n, n).

    The entropy of a sample's spectrum grows with the number of filters even where every direction is alike, so it says
    something only over that of as many independent filters: 1 for those, 0 if all filters are multiples of one.

    >>> entropy, rank = entropy_numbers(np.diag([4.0, 4.0, 0.0, 0.0]), 1000)
    >>> round(entropy.value, 2), round(rank.value, 2), round(rank.chance, 2)
    (0.5, 2.0, 3.99)
    """
    n, m = len(cov), count - 1
    if m < 1 or not np.trace(cov) > 0:
        reason = "one filter has no spread" if m < 1 else "the filters are all alike"
        return absent(reason), absent(reason)
    entropy = spectral_entropy(np.linalg.eigvalsh(cov).astype(np.float64))
    rank = math.exp(entropy)
    if min(n, m) == 1:
        reason = f"{'one pixel' if n == 1 else 'the difference of two filters'} is one direction, with no entropy"
        return absent(reason), within(rank, 1.0, 0.0)
    mean, deviation = chance_entropy(n, m)
    logarithmic = within(entropy, mean, deviation, 0.0, math.log(min(n, m)))
    assert logarithmic.low is not None
    assert logarithmic.high is not None
    return (
        Number(entropy / mean, 1.0, logarithmic.low / mean, logarithmic.high / mean),
        Number(rank, math.exp(mean), math.exp(logarithmic.low), math.exp(logarithmic.high)),
    )


@cache
def chance_entropy(n: int, m: int) -> tuple[float, float]:
    """Return the mean and standard deviation of the entropy for n independent pixels and m degrees of freedom.

    With p the smaller and q the larger of the two and c = p/q, eigenvalues over their mean lie at 1 + c + 2√c cos θ
    with Marchenko and Pastur's density, for which ∫ x ln x = c/2. So the entropy is ln p - c/2 to leading order. A
    change of eigenvalues changes it, to first order, by Σ f/p with f(x) = (1 + c/2) x - x ln x, of which Bai and
    Silverstein's theorem gives mean and variance: ¼(f(θ=0) + f(θ=π)) - ½ a₀ and ½ Σ k a_k², where f = Σ a_k cos kθ.

    That holds for large p and q; where they are small, samples are drawn, always the same ones.
    """
    p, q = sorted((n, m))
    if p * q < FEW:
        return _tried_entropy(p, q)
    c = p / q
    theta = (np.arange(ANGLES) + 0.5) * math.pi / ANGLES
    a = (
        2
        * np.cos(np.outer(np.arange(ANGLES // 2), theta))
        @ _change(1 + c + 2 * math.sqrt(c) * np.cos(theta), c)
        / ANGLES
    )
    edges = _change(np.array([(1 + math.sqrt(c)) ** 2, (1 - math.sqrt(c)) ** 2]), c)
    mean = math.log(p) - c / 2 + (float(edges.sum()) / 4 - a[0] / 4) / p
    variance = float((np.arange(len(a)) * a**2).sum()) / 2 / p**2
    return float(mean), math.sqrt(variance)


def _tried_entropy(p: int, q: int) -> tuple[float, float]:
    drawn = np.random.default_rng(0).normal(size=(TRIED, q, p))
    entropies = [spectral_entropy(row) for row in np.linalg.eigvalsh(drawn.transpose(0, 2, 1) @ drawn)]
    return float(np.mean(entropies)), float(np.std(entropies))


def _change(x: Array, c: float) -> Array:
    return (1 + c / 2) * x - x * np.log(np.maximum(x, 1e-300))


def symmetry_numbers(power: Array, kernel_size: tuple[int, ...], count: int) -> tuple[Number, Number, Number]:
    """Return the shares of the filters' power (n, n) that are even, odd, and unchanged by quarter turns.

    `power` is the mean of f fᵀ over filters f. Even is what half a turn about the middle leaves as it is, odd what it
    negates; the two add up to 1. Quarter turns are those of a square or cubic kernel about any axis.

    >>> edge = np.array([-1.0, 0.0, 1.0])
    >>> [number.value for number in symmetry_numbers(np.outer(edge, edge), (3,), 8)[:2]]
    [0.0, 1.0]
    >>> symmetry_numbers(np.eye(9), (3, 3), 8)[2].value  # 3 of 9 dimensions: centre, edges, corners
    0.3333333333333333
    """
    total = float(np.trace(power))
    if not total > 0:
        return (absent("all filters are zero"),) * 3
    n = len(power)
    half_turn = np.arange(n)[::-1]
    even, dimensions = _unchanged(power, (np.arange(n), half_turn))
    share = min(max(even / total, 0.0), 1.0)
    turned = absent("quarter turns need a square or cubic kernel of more than one pixel")
    if n > 1 and len(kernel_size) > 1 and len(set(kernel_size)) == 1:
        kept, kept_dimensions = _unchanged(power, quarter_turns(kernel_size))
        turned = _share(min(max(kept / total, 0.0), 1.0), kept_dimensions, n, count)
    return _share(share, dimensions, n, count), _share(1 - share, n - dimensions, n, count), turned


@cache
def quarter_turns(kernel_size: tuple[int, ...]) -> tuple[Permutation, ...]:
    """Return where each pixel comes from, (n,), for all turns of a square (4) or cubic kernel (24)."""
    pixels = np.arange(math.prod(kernel_size)).reshape(kernel_size)
    steps = [np.rot90(pixels, axes=axes).ravel() for axes in combinations(range(len(kernel_size)), 2)]
    found = {pixels.tobytes(): pixels.ravel()}
    waiting = [pixels.ravel()]
    while waiting:
        turn = waiting.pop()
        for step in steps:
            further = turn[step]
            if further.tobytes() not in found:
                found[further.tobytes()] = further
                waiting.append(further)
    return tuple(found.values())


def _unchanged(power: Array, group: tuple[Permutation, ...]) -> tuple[float, int]:
    """Return how much power lies in the functions that a group of permutations leaves, and their dimension."""
    pixels = np.arange(len(power))
    kept = sum(float(power[pixels, moved].sum()) for moved in group) / len(group)
    return kept, sum(int((moved == pixels).sum()) for moved in group) // len(group)


def _share(value: float, dimensions: int, n: int, count: int) -> Number:
    mean = dimensions / n
    return within(value, mean, math.sqrt(mean * (1 - mean) / (count * n / 2 + 1)), 0.0, 1.0)


def off_centre(cov: Array, kernel_size: tuple[int, ...], count: int) -> tuple[Number, tuple[float, ...] | None]:
    """Return how far the centre of the filters' variance lies off the middle, in pixels, and the way there, by axis.

    >>> number, offset = off_centre(np.diag([0.0, 1.0, 1.0]), (3,), 8)
    >>> number.value, offset
    (0.5, (0.5,))
    """
    variance = np.diagonal(cov).reshape(kernel_size)
    total = float(variance.sum())
    if count < 2 or not total > 0:
        return absent("one filter has no spread" if count < 2 else "the filters are all alike"), None
    grid = np.meshgrid(*(np.arange(k) - (k - 1) / 2 for k in kernel_size), indexing="ij")
    offset = tuple(float((variance * x).sum()) / total + 0.0 for x in grid)
    squared = sum((k * k - 1) / 12 for k in kernel_size) / (variance.size * (count - 1) / 2 + 1)
    # The distance is the length of a normal vector, of which 1 in 100 is longer than 2.6 times the usual.
    chance = math.sqrt(squared)
    return Number(math.hypot(*offset), chance, 0.0, 2.6 * chance + 1e-12), offset
