"""The structure of a layer's filters, in numbers that mean the same for every kernel size, each beside chance.

`structure_of` measures an array of filters; `structure_of_layer` what the statistics of a layer tell. Chance is what as
many filters of independent Gaussian weights would show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.forms import Array, KernelSize, as_array, as_covariance, kernel_shape, kron
from filtercov.covariance.transfer import LayerStatistics, empirical_covariance, nearest_kronecker

SPREADS = 4  # standard deviations that chance leaves in fewer than 1 of 100 layers, for numbers that are nowhere normal
NEAR_ZERO = 0.01  # of the largest weight of a layer
FEW = 128  # pixels times degrees of freedom under which the entropy's chance level is more than a percent off


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
    * `even`: share of the power that half a turn leaves as it is; the rest is odd.
    """

    sparsity: Number
    effective_rank: Number
    even: Number

    def numbers(self) -> dict[str, Number]:
        """The numbers by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

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
    >>> structure.even.value, structure.even.beyond_chance
    (1.0, True)
    """
    stack = as_array(filters, "structure_of")
    mean, cov = empirical_covariance(stack)
    layer = LayerStatistics("", stack.shape[1:], len(stack), mean, cov, near_zero=count_near_zero(stack))
    return structure_of_layer(layer)


def structure_of_layer(layer: LayerStatistics) -> Structure:
    """The structure of a layer from its statistics; numbers that these do not hold are None, with the reason."""
    return Structure(_sparsity(layer), _effective_rank(layer.covariance, layer.count), _even(layer))


def count_near_zero(filters: Array) -> int:
    """How many filters (count, *kernel_size) have no weight above 1 % of the largest of them all.

    >>> count_near_zero(np.array([[1.0, -2.0], [0.0, 0.02], [0.1, 0.0]]))
    1
    """
    largest = np.abs(filters).reshape(len(filters), -1).max(axis=1)
    return int((largest <= NEAR_ZERO * largest.max()).sum())


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
        return Number(None, reason="all filters are zero")
    kept = (total + float(np.trace(power[::-1]))) / 2
    chance = math.ceil(n / 2) / n
    deviation = math.sqrt(chance * (1 - chance) / (count * n / 2 + 1))
    return within(min(max(kept / total, 0.0), 1.0), chance, deviation, most=1.0)


def _effective_rank(cov: Array, count: int) -> Number:
    """e^H for the entropy H = -Σ p ln p of the shares p of the eigenvalues of a covariance (n, n)."""
    n, m = len(cov), count - 1
    if m < 1 or not np.trace(cov) > 0:
        return Number(None, reason="one filter has no spread" if m < 1 else "the filters are all alike")
    rank = math.exp(_entropy(np.linalg.eigvalsh(cov).astype(np.float64)))
    if min(n, m) == 1:  # one pixel, or the difference of two filters, is one direction
        return within(rank, 1.0, 0.0)
    if n * m < FEW:
        return Number(rank)
    mean, deviation = _chance_entropy(n, m)
    low, high = _range_of_chance(mean, deviation, 0.0, math.log(min(n, m)))
    return Number(rank, math.exp(mean), math.exp(low), math.exp(high))


def _entropy(eigenvalues: Array) -> float:
    positive = eigenvalues[eigenvalues > 0]
    shares = positive / positive.sum()
    return float(-(shares * np.log(shares)).sum())


def _chance_entropy(n: int, m: int) -> tuple[float, float]:
    """Mean and standard deviation of the entropy for n independent pixels and m degrees of freedom.

    With p the smaller and q the larger of the two and c = p/q, eigenvalues over their mean lie at x = 1 + c + 2√c cos θ
    with Marchenko and Pastur's density, for which ∫ x ln x = c/2. So the entropy is ln p - c/2 to leading order. A
    change of eigenvalues changes it, to first order, by Σ f(x)/p with f(x) = (1 + c/2) x - x ln x = Σ a_k cos kθ. Bai
    and Silverstein's theorem gives mean and variance of Σ f: ½ Σ a_k over even k > 0, and ½ Σ k a_k². Here a₁ = 0, and
    a_k = -(-1)ᵏ 2 c^(k/2) (1/(k-1) - c/(k+1)) / k for k > 1.
    """
    p, q = sorted((n, m))
    c, k = p / q, np.arange(2.0, 256.0)
    a = 2 * c ** (k / 2) * (1 / (k - 1) - c / (k + 1)) / k  # without its sign
    return math.log(p) - c / 2 - float(a[::2].sum()) / 2 / p, math.sqrt(float((k * a**2).sum()) / 2) / p


def _sparsity(layer: LayerStatistics) -> Number:
    """The share of filters that are near zero.

    By chance all n weights of a filter are that small with probability P(|w| < 1 % of the largest)ⁿ, next to none.
    """
    if layer.near_zero is None:
        return Number(None, reason="the statistics hold no filters, nor how many of them were near zero")
    n, count = math.prod(layer.kernel_size), layer.count
    below = 0.5 ** (1 / (count * n))  # probability that |w| is below the median of the largest of all
    largest = NormalDist().inv_cdf((1 + below) / 2)
    chance = math.erf(NEAR_ZERO * largest / math.sqrt(2)) ** n
    return within(layer.near_zero / count, chance, math.sqrt(chance * (1 - chance) / count), most=1.0)
