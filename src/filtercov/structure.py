"""The structure of a layer's filters, in numbers that mean the same for every kernel size, each beside chance.

`structure_of` measures an array of filters; `structure_of_layer` what mean and covariance still tell where the filters
are gone. Chance is what as many filters of independent Gaussian weights would show.

A filter is *near zero* if no weight of it exceeds 1 % of the layer's largest. Such filters have no direction worth
comparing, so orthogonality and types leave them out.

The types are the derivatives of a Gaussian up to the second order: for 2-D kernels the eight G, Gx, Gy, Gxx, Gyy, Gxy,
their sum Gxx+Gyy and their difference Gxx-Gyy, which cover edges, bars, corners and spots. A filter is explained by the
type that explains most of its power, over a range of widths and with the centre in the middle or half a pixel off along
any axis, if that is four fifths or more. 1-D kernels have three types, 3-D ones fourteen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import combinations, product
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.forms import Array, KernelSize, as_array, as_covariance, kernel_shape, kron
from filtercov.covariance.transfer import LayerStatistics, OfFilters, empirical_covariance, nearest_kronecker

SPREADS = 4  # standard deviations that chance leaves in fewer than 1 of 100 layers, for numbers that are nowhere normal
NEAR_ZERO = 0.01
EXPLAINED = 0.8
NARROWEST = 0.25  # the smallest variance of a type's Gaussian, in pixels²; each further one is twice as large
TRIED = 1 << 13  # random filters, or random samples of filters, where chance has no closed form
MANY = 25  # pixels from which on fewer than one in a million random filters is of a type
FEW = 128  # pixels times degrees of freedom under which the closed form of the entropy is more than a percent off


@dataclass(frozen=True)
class Number:
    """A measured value, and what as many independent filters show: `chance` on average, seldom beyond `low` and `high`.

    `value` is None where there is none, and `reason` says why.

    >>> Number(0.9, 0.5, 0.4, 0.6).beyond_chance, Number(0.55, 0.5, 0.4, 0.6).beyond_chance
    (True, False)
    """

    value: float | None
    chance: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def beyond_chance(self) -> bool:
        """Whether independent filters would seldom show as much, or as little."""
        if self.value is None or self.low is None or self.high is None:
            return False
        return not self.low <= self.value <= self.high


def absent(reason: str) -> Number:
    """A missing value, with the reason."""
    return Number(None, reason=reason)


def within(value: float, mean: float, deviation: float, least: float = 0.0, most: float = math.inf) -> Number:
    """A value beside a chance level with a standard deviation; chance stays inside [least, most]."""
    return Number(value, mean, *_range_of_chance(mean, deviation, least, most))


def _range_of_chance(mean: float, deviation: float, least: float, most: float) -> tuple[float, float]:
    # Rounding must not put a value that cannot differ from its chance, such as 1 of 1, beside it.
    reach = SPREADS * deviation + 1e-12 * max(abs(mean), 1.0)
    return max(mean - reach, least), min(mean + reach, most)


@dataclass(frozen=True)
class Structure:
    """What a layer's filters are like, each number beside what as many independent filters show.

    * `sparsity`: share of filters none of whose weights exceeds 1 % of the layer's largest;
    * `effective_rank`: e^entropy of the covariance's spectrum, in how many directions the filters vary;
    * `orthogonality`: 1 - the root-mean-square cosine between two filters;
    * `even`: share of the power that half a turn leaves as it is; the rest is odd;
    * `gaussian_derivatives`: share of filters of which a Gaussian derivative explains four fifths; `types` by type.
    """

    sparsity: Number
    effective_rank: Number
    orthogonality: Number
    even: Number
    gaussian_derivatives: Number
    types: Mapping[str, float] | None

    def numbers(self) -> dict[str, Number]:
        """The numbers by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "types"}

    def as_record(self) -> dict[str, Any]:
        """Everything in one flat dictionary of plain numbers; None where there is none, `absent` says why.

        Beside each number stand what chance gives, `_chance`, and whether it is beyond that, `_beyond_chance`.
        """
        record: dict[str, Any] = {}
        reasons = []
        for name, number in self.numbers().items():
            record |= {name: number.value, f"{name}_chance": number.chance}
            record[f"{name}_beyond_chance"] = None if number.value is None else number.beyond_chance
            if number.value is None:
                reasons.append(f"{name}: {number.reason}")
        return record | {"absent": "; ".join(reasons)}


def structure_of(filters: ArrayLike) -> Structure:
    """The structure of filters (count, *kernel_size) with one to three axes of pixels.

    >>> spot = np.outer([1, 2, 1], [1, 2, 1])
    >>> structure = structure_of(np.random.default_rng(0).normal(size=(64, 1, 1)) * spot)  # multiples of a Gaussian
    >>> round(structure.effective_rank.value, 6), round(structure.effective_rank.chance, 2)
    (1.0, 8.31)
    >>> structure.even.value, structure.gaussian_derivatives.value, structure.types["G"]
    (1.0, 1.0, 1.0)
    """
    stack = as_array(filters, "structure_of")
    mean, cov = empirical_covariance(stack)
    return structure_of_layer(LayerStatistics("", stack.shape[1:], len(stack), mean, cov, None, measure_filters(stack)))


def structure_of_layer(layer: LayerStatistics) -> Structure:
    """What the statistics of a layer tell of its structure; numbers they do not hold are None, with the reason."""
    size, count, measured = layer.kernel_size, layer.count, layer.of_filters
    rank, even = _effective_rank(layer.covariance, count), _even(layer)
    if measured is None:
        missing = absent("the statistics hold no filters, nor what was measured of them")
        return Structure(missing, rank, missing, even, missing, None)
    return Structure(
        sparsity=_sparsity(measured, math.prod(size), count),
        effective_rank=rank,
        orthogonality=_orthogonality(measured, math.prod(size), count),
        even=even,
        gaussian_derivatives=_gaussian_derivatives(measured, size, count),
        types=measured.types,
    )


def centredness(cov: ArrayLike, kernel_size: KernelSize) -> float:
    """How far variance gathers at the centre: 1 all in the central pixel, 0 spread evenly, below 0 at the rim.

    It is 1 - r²/u², where r² is the mean squared distance from the centre, pixels weighted by their variance, and u²
    the same with all pixels weighted alike. Independent filters have 0 on average; nan for one pixel or no variance.

    >>> [centredness(np.diag(variances), (3,)) for variances in ([0, 1, 0], [1, 1, 1], [1, 0, 1])]
    [1.0, 0.0, -0.5]
    """
    shape = kernel_shape(kernel_size)
    variance = np.diagonal(as_covariance(cov, kernel_size=shape)).reshape(shape)
    from_middle = np.meshgrid(*(np.arange(k) - (k - 1) / 2 for k in shape), indexing="ij")
    squared = sum(axis**2 for axis in from_middle)
    evenly, total = float(np.mean(squared)), float(variance.sum())
    return 1 - float((variance * squared).sum()) / total / evenly if evenly > 0 and total > 0 else math.nan


def kronecker_residual(cov: ArrayLike, kernel_size: KernelSize) -> float:
    """‖Σ′ - A⊗A‖ / ‖Σ′‖ for the nearest A: 0 if the covariance is separable; nan unless filters are k×k.

    >>> A = np.array([[2.0, 0.5], [0.5, 1.0]])
    >>> round(kronecker_residual(np.kron(A, A), 2), 6)
    0.0
    """
    shape = kernel_shape(kernel_size)
    matrix = as_covariance(cov, kernel_size=shape)
    norm = float(np.linalg.norm(matrix))
    if norm == 0 or len(shape) != 2 or shape[0] != shape[1]:
        return math.nan
    A = nearest_kronecker(matrix, shape)
    return float(np.linalg.norm(matrix - kron([A, A]))) / norm


def spectrum(cov: ArrayLike) -> Array:
    """The eigenvalues, largest first: (n, n) -> (n,)."""
    return np.linalg.eigvalsh(as_covariance(cov))[::-1].astype(np.float64)


def _even(layer: LayerStatistics) -> Number:
    """The share of the filters' power in the functions that half a turn about the middle leaves alone.

    By chance the share in d of n dimensions, over N filters, has the distribution Beta(Nd/2, N(n-d)/2).
    """
    cov, mean, count = layer.covariance, layer.mean, layer.count
    power = cov * ((count - 1) / count) + np.outer(mean, mean)  # the mean of f fᵀ over filters f
    n, total = len(mean), float(np.trace(power))
    if not total > 0:
        return absent("all filters are zero")
    kept = (total + float(np.trace(power[::-1]))) / 2
    chance = math.ceil(n / 2) / n
    deviation = math.sqrt(chance * (1 - chance) / (count * n / 2 + 1))
    return within(min(max(kept / total, 0.0), 1.0), chance, deviation, most=1.0)


def _effective_rank(cov: Array, count: int) -> Number:
    """e^H for the entropy H = -Σ p ln p of the shares p of the eigenvalues of a covariance (n, n)."""
    n, m = len(cov), count - 1
    if m < 1 or not np.trace(cov) > 0:
        return absent("one filter has no spread" if m < 1 else "the filters are all alike")
    rank = math.exp(_entropy(np.linalg.eigvalsh(cov).astype(np.float64)))
    if min(n, m) == 1:  # one pixel, or the difference of two filters, is one direction
        return within(rank, 1.0, 0.0)
    mean, deviation = _chance_entropy(n, m)
    low, high = _range_of_chance(mean, deviation, 0.0, math.log(min(n, m)))
    return Number(rank, math.exp(mean), math.exp(low), math.exp(high))


def _entropy(eigenvalues: Array) -> float:
    positive = eigenvalues[eigenvalues > 0]
    shares = positive / positive.sum()
    return float(-(shares * np.log(shares)).sum())


@cache
def _chance_entropy(n: int, m: int) -> tuple[float, float]:
    """Mean and standard deviation of the entropy for n independent pixels and m degrees of freedom.

    With p the smaller and q the larger of the two and c = p/q, eigenvalues over their mean lie at x = 1 + c + 2√c cos θ
    with Marchenko and Pastur's density, for which ∫ x ln x = c/2. So the entropy is ln p - c/2 to leading order. A
    change of eigenvalues changes it, to first order, by Σ f(x)/p with f(x) = (1 + c/2) x - x ln x = Σ a_k cos kθ. Bai
    and Silverstein's theorem gives mean and variance of Σ f: ½ Σ a_k over even k > 0, and ½ Σ k a_k². Here a₁ = 0, and
    a_k = -(-1)ᵏ 2 c^(k/2) (1/(k-1) - c/(k+1)) / k for k > 1.
    """
    p, q = sorted((n, m))
    if p * q < FEW:
        drawn = np.random.default_rng(0).normal(size=(TRIED, q, p))
        entropies = [_entropy(row) for row in np.linalg.eigvalsh(drawn.transpose(0, 2, 1) @ drawn)]
        return float(np.mean(entropies)), float(np.std(entropies))
    c, k = p / q, np.arange(2.0, 256.0)
    a = 2 * c ** (k / 2) * (1 / (k - 1) - c / (k + 1)) / k  # without its sign
    return math.log(p) - c / 2 - float(a[::2].sum()) / 2 / p, math.sqrt(float((k * a**2).sum()) / 2) / p


def measure_filters(filters: Array) -> OfFilters:
    """Measure what only the filters (count, *kernel_size) themselves tell.

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
    names, shapes = gaussian_types(filters.shape[1:])
    best = [names[row.argmax()] for row in np.square(live @ shapes.T) if row.max() >= EXPLAINED]
    types = {name: best.count(name) / len(live) for name in dict.fromkeys(names)}
    return OfFilters(len(flat) - len(live), squared, types)


def _sparsity(measured: OfFilters, pixels: int, count: int) -> Number:
    """The share of filters that are near zero.

    By chance all n weights of a filter are that small with probability P(|w| < 1 % of the largest)ⁿ, next to none.
    """
    below = 0.5 ** (1 / (count * pixels))  # probability that |w| is below the median of the largest of all
    largest = NormalDist().inv_cdf((1 + below) / 2)
    chance = math.erf(NEAR_ZERO * largest / math.sqrt(2)) ** pixels
    return within(measured.near_zero / count, chance, math.sqrt(chance * (1 - chance) / count), most=1.0)


def _orthogonality(measured: OfFilters, n: int, count: int) -> Number:
    """1 - the root-mean-square cosine between two filters: 1 if all are orthogonal, 0 if all are multiples.

    Between filters of n independent weights cos² has the mean 1/n and the variance 2(n-1)/(n²(n+2)), and it is
    independent from pair to pair.
    """
    if measured.mean_squared_cosine is None:
        return absent("fewer than two filters are not near zero")
    live = count - measured.near_zero
    deviation = math.sqrt(2 * (n - 1) / (n * n * (n + 2)) / (live * (live - 1) / 2))
    low, high = _range_of_chance(1 / n, deviation, 0.0, 1.0)
    value, chance = 1 - math.sqrt(measured.mean_squared_cosine), 1 - math.sqrt(1 / n)
    return Number(value, chance, 1 - math.sqrt(high), 1 - math.sqrt(low))


def _gaussian_derivatives(measured: OfFilters, kernel_size: tuple[int, ...], count: int) -> Number:
    """The share of the filters that one of the types explains, among those that are not near zero."""
    if measured.types is None:
        return absent("no filter is not near zero")
    if math.prod(kernel_size) == 1:
        return absent("one pixel has no shape to be of a type")
    chance = _chance_of_a_type(kernel_size)
    deviation = math.sqrt(chance * (1 - chance) / (count - measured.near_zero))
    return within(sum(measured.types.values()), chance, deviation, most=1.0)


@cache
def _chance_of_a_type(kernel_size: tuple[int, ...]) -> float:
    """The share of random filters, always the same ones, that a type explains."""
    n = math.prod(kernel_size)
    if n >= MANY:
        return 0.0
    drawn = np.random.default_rng(0).normal(size=(TRIED, n))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    _, shapes = gaussian_types(kernel_size)
    return float((np.square(drawn @ shapes.T).max(axis=1) >= EXPLAINED).mean())


@cache
def gaussian_types(kernel_size: tuple[int, ...]) -> tuple[tuple[str, ...], Array]:
    """The names of the types and their shapes of unit length (T, n), each at every width and centre.

    >>> names, shapes = gaussian_types((5, 5))
    >>> list(dict.fromkeys(names)), shapes.shape
    (['G', 'Gy', 'Gx', 'Gyy', 'Gxx', 'Gyx', 'Gyy+Gxx', 'Gyy-Gxx'], (288, 25))
    """
    widths = [NARROWEST * 2.0**i for i in range(32) if NARROWEST * 2.0**i <= (max(kernel_size) / 3) ** 2 or i == 0]
    # One pixel has no slope.
    long = {letter: k for letter, k in zip("zyx"[-len(kernel_size) :], kernel_size, strict=True) if k > 1}
    found: dict[str, list[Array]] = {}
    for variance, centre in product(widths, product((-0.5, 0.0, 0.5), repeat=len(long))):
        axes = {letter: _derivatives(k, variance, c) for (letter, k), c in zip(long.items(), centre, strict=True)}
        for name, shape in _shapes(axes):
            of_one_type, size = found.setdefault(name, []), float(np.linalg.norm(shape))
            of_one_type += [shape.ravel() / size] if size > 1e-9 else []
    names = tuple(name for name, of_one_type in found.items() for _ in of_one_type)
    return names, np.array([shape for of_one_type in found.values() for shape in of_one_type])


def _derivatives(k: int, variance: float, centre: float) -> tuple[Array, Array, Array]:
    """A Gaussian along an axis, and its first and second derivative."""
    x = np.arange(k) - (k - 1) / 2 - centre
    g = np.exp(-(x**2) / (2 * variance))
    return g, -x / variance * g, (x**2 / variance - 1) / variance * g


def _shapes(axes: Mapping[str, tuple[Array, Array, Array]]) -> Iterator[tuple[str, Array]]:
    def derivative(along: str) -> Array:
        shape: Array = np.ones(())
        for letter, derivatives in axes.items():
            shape = np.multiply.outer(shape, derivatives[along.count(letter)])
        return shape

    pairs = list(combinations(axes, 2))
    orders = ["", *axes, *(a + a for a in axes), *(a + b for a, b in pairs)]
    yield from ((f"G{along}", derivative(along)) for along in orders)
    if pairs:
        yield "+".join(f"G{a}{a}" for a in axes), np.sum([derivative(a + a) for a in axes], axis=0)
    yield from ((f"G{a}{a}-G{b}{b}", derivative(a + a) - derivative(b + b)) for a, b in pairs)
