"""What only the filters themselves tell: how many are near zero, how orthogonal they are, and of which types.

A filter is *near zero* if no weight of it exceeds 1 % of the layer's largest; those have no direction worth comparing,
so the other two numbers leave them out.

The types are the derivatives of a Gaussian up to the second order: for 2-D kernels the eight G, Gx, Gy, Gxx, Gyy, Gxy,
their sum Gxx+Gyy and their difference Gxx-Gyy, which cover edges, bars, corners and spots. A filter is explained by the
type that explains most of its power, over a range of widths and with the centre in the middle or half a pixel off along
any axis, if that is four fifths or more. 1-D kernels have three types, 3-D ones fourteen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations, product

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.covariance.layer_statistics import OfFilters
from filtercov.structure.number import Number, absent, within

NEAR_ZERO = 0.01
EXPLAINED = 0.8
NARROWEST = 0.25  # the smallest variance of a type's Gaussian, in pixels²; each further one is twice as large
SIMULATED = 1 << 13  # random filters of a size whose chance of being explained is found by trying
NEGLIGIBLE = 1e-6
TOO_FEW = "fewer than two filters are not near zero"


def measure_filters(filters: Array) -> OfFilters:
    """Return what only the filters (count, *kernel_size) themselves tell.

    >>> edge, spot = np.diag([1.0, 0.0, -1.0]), np.diag([0.0, 1.0, 0.0])
    >>> measured = measure_filters(np.stack([edge, spot, 1e-9 * edge]))
    >>> measured.near_zero, measured.mean_squared_cosine
    (1, 0.0)
    """
    flat = filters.reshape(len(filters), -1)
    largest = np.abs(flat).max(axis=1)
    live = flat[largest > NEAR_ZERO * largest.max()]
    if not len(live):
        return OfFilters(len(flat), None, None)
    live = live / np.abs(live).max(axis=1, keepdims=True)
    live /= np.linalg.norm(live, axis=1, keepdims=True)
    pairs = len(live) * (len(live) - 1)
    smaller = live.T @ live if flat.shape[1] < len(live) else live @ live.T
    squared = max(float(np.square(smaller).sum()) - len(live), 0.0) / pairs if pairs else None
    return OfFilters(len(flat) - len(live), squared, _types(live, filters.shape[1:]))


def sparsity(measured: OfFilters, pixels: int, count: int) -> Number:
    """Return the share of filters that are near zero.

    By chance all n weights of a filter are below 1 % of the largest of all with probability P(|w| < 1 %)ⁿ, which is
    next to none from 2×2 on.
    """
    everywhere = 0.5 ** (1 / (count * pixels))  # that one weight is below the median of the largest of all
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle / math.sqrt(2)) < everywhere else (low, middle)
    chance = math.erf(NEAR_ZERO * low / math.sqrt(2)) ** pixels
    return within(measured.near_zero / count, chance, math.sqrt(chance * (1 - chance) / count), 0.0, 1.0)


def orthogonality(measured: OfFilters, pixels: int, count: int) -> Number:
    """Return 1 - the root-mean-square cosine between two filters: 1 if all are orthogonal, 0 if all are multiples.

    Between filters of independent weights cos² has the mean 1/n and the variance 2(n-1)/(n²(n+2)), and it is
    independent from pair to pair.
    """
    live = count - measured.near_zero
    if measured.mean_squared_cosine is None:
        return absent(TOO_FEW)
    n = pixels
    squared = within(
        measured.mean_squared_cosine,
        1 / n,
        math.sqrt(2 * (n - 1) / (n * n * (n + 2)) / (live * (live - 1) / 2)),
        0.0,
        1.0,
    )
    values = (squared.value, squared.chance, squared.high, squared.low)
    value, chance, low, high = (1 - math.sqrt(x or 0.0) for x in values)
    return Number(value, chance, low, high)


def gaussian_derivatives(measured: OfFilters, kernel_size: tuple[int, ...], count: int) -> Number:
    """Return the share of the filters that are not near zero that one of the types explains."""
    live = count - measured.near_zero
    if measured.types is None:
        return absent("no filter is not near zero")
    if math.prod(kernel_size) == 1:
        return absent("one pixel has no shape to be of a type")
    chance = chance_of_a_type(kernel_size)
    return within(sum(measured.types.values()), chance, math.sqrt(chance * (1 - chance) / live), 0.0, 1.0)


@cache
def chance_of_a_type(kernel_size: tuple[int, ...]) -> float:
    """Return the probability that a filter of independent weights is explained by a type.

    One of T shapes explains four fifths with a probability below T P(cos² > ⅘), where cos² has the distribution
    Beta(½, (n-1)/2). Where that is not negligible random filters are tried, always the same ones.
    """
    names, shapes = gaussian_types(kernel_size)
    n = math.prod(kernel_size)
    b = (n - 1) / 2
    log_tail = b * math.log(1 - EXPLAINED) - 0.5 * math.log(EXPLAINED) - math.log(b)
    log_tail -= math.lgamma(0.5) + math.lgamma(b) - math.lgamma(b + 0.5)
    bound = len(names) * math.exp(log_tail)
    if bound < NEGLIGIBLE:
        return bound
    drawn = np.random.default_rng(0).normal(size=(SIMULATED, n))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return float((np.square(drawn @ shapes.T).max(axis=1) >= EXPLAINED).mean())


def _types(live: Array, kernel_size: tuple[int, ...]) -> Mapping[str, float]:
    """Return the share of unit filters (live, n) that each type explains."""
    names, shapes = gaussian_types(kernel_size)
    explained = np.square(live @ shapes.T)
    best = explained.argmax(axis=1)
    enough = explained[np.arange(len(live)), best] >= EXPLAINED
    kinds = list(dict.fromkeys(names))
    found = np.bincount([kinds.index(names[i]) for i in best[enough]], minlength=len(kinds))
    return {kind: float(count) / len(live) for kind, count in zip(kinds, found, strict=True)}


@cache
def gaussian_types(kernel_size: tuple[int, ...]) -> tuple[tuple[str, ...], Array]:
    """Return the names of the types and their shapes of unit length (T, n), each at every width and centre.

    >>> names, shapes = gaussian_types((5, 5))
    >>> list(dict.fromkeys(names)), shapes.shape
    (['G', 'Gy', 'Gx', 'Gyy', 'Gxx', 'Gyx', 'Gyy+Gxx', 'Gyy-Gxx'], (288, 25))
    """
    named = []
    widths = [NARROWEST * 2.0**i for i in range(32) if NARROWEST * 2.0**i <= (max(kernel_size) / 3) ** 2 or i == 0]
    letters = {1: "x", 2: "yx", 3: "zyx"}[len(kernel_size)]
    long = {letter: k for letter, k in zip(letters, kernel_size, strict=True) if k > 1}  # one pixel has no slope
    for variance, centre in product(widths, product((-0.5, 0.0, 0.5), repeat=len(long))):
        axes = {letter: _derivatives(k, variance, c) for (letter, k), c in zip(long.items(), centre, strict=True)}
        named += [(name, shape.ravel()) for name, shape in _shapes(axes)]
    kept = [(name, shape / size) for name, shape in named if (size := float(np.linalg.norm(shape))) > 1e-9]
    order = {name: i for i, name in enumerate(dict.fromkeys(name for name, _ in named))}
    kept.sort(key=lambda pair: order[pair[0]])
    return tuple(name for name, _ in kept), np.array([shape for _, shape in kept])


def _derivatives(k: int, variance: float, centre: float) -> tuple[Array, Array, Array]:
    """Return a Gaussian along an axis, and its first and second derivative."""
    x = np.arange(k) - (k - 1) / 2 - centre
    g = np.exp(-(x**2) / (2 * variance))
    return g, -x / variance * g, (x**2 / variance - 1) / variance * g


def _shapes(axes: Mapping[str, tuple[Array, Array, Array]]) -> Iterator[tuple[str, Array]]:
    def derivative(along: str) -> Array:
        shape: Array = np.ones(())
        for letter, orders in axes.items():
            shape = np.multiply.outer(shape, orders[along.count(letter)])
        return shape

    yield "G", derivative("")
    yield from ((f"G{a}", derivative(a)) for a in axes)
    yield from ((f"G{a}{a}", derivative(a + a)) for a in axes)
    for a, b in combinations(axes, 2):
        yield f"G{a}{b}", derivative(a + b)
    if len(axes) > 1:
        laplacian: Array = np.sum([derivative(a + a) for a in axes], axis=0)
        yield "+".join(f"G{a}{a}" for a in axes), laplacian
    for a, b in combinations(axes, 2):
        yield f"G{a}{a}-G{b}{b}", derivative(a + a) - derivative(b + b)
