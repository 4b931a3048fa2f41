"""Two claims of the paper that need no run: what the statistics of reference networks say of themselves.

C19 is about the static component. The covariances between different pixels are fitted by least squares as

    Σ ≈ α ½ (D C + C D) + β ½ z zᵀ

with the Gaussians of the layer's nearest closed form, which has β = -1 at its own total variance; so β is given for
that. (Variances are left out of the fit: by them alone independent pixels would seem to have a negative β.) C20 is
about σ, layer by layer: of all pairs of layers, in how many does the deeper one have the larger σ? Chance stands beside
both: for β what as many independent filters show, for pairs an order drawn at random.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from filtercov.covariance.closed_form import axis_gaussians
from filtercov.covariance.forms import Array, kron
from filtercov.covariance.transfer import LayerStatistics
from filtercov.schedule import fit_layer
from filtercov.statistics.filter_statistics import FilterStatistics

LEAST_KERNEL = 5  # pixels a side, under which the closed form has no shape to fit
DRAWS = 40  # of independent filters, whose range is chance: 1 of 20 layers without structure lies outside


class ReferenceClaim(NamedTuple):
    """A claim about the covariances of trained networks."""

    number: str
    place: str
    says: str


NEGATIVE_STATIC = ReferenceClaim(
    "C19", "Fig. 1", "Covariances of trained filters often have a static negative component in the centre."
)
GROWING_SIGMA = ReferenceClaim("C20", "Fig. 1", "Covariances of trained filters become more diffuse with depth.")


@dataclass(frozen=True)
class LayerFinding:
    """What one layer of a reference shows."""

    name: str
    depth: float
    sigma: float  # of the nearest closed form
    likeness: float  # to it, 1 at most
    likeness_by_chance: float
    static: float  # β, -1 in the closed form
    static_by_chance: tuple[float, float]  # the lowest and highest of independent filters

    @property
    def negative(self) -> bool:
        """Whether the static component is below what chance shows."""
        return self.static < self.static_by_chance[0]


@dataclass(frozen=True)
class ReferenceFinding:
    """What the layers of a reference say of both claims."""

    network: str
    layers: tuple[LayerFinding, ...]

    @property
    def negative(self) -> int:
        """In how many layers the static component is negative, beyond chance."""
        return sum(layer.negative for layer in self.layers)

    @property
    def rising(self) -> tuple[int, int]:
        """Pairs of layers of which the deeper one has the larger σ, and all pairs."""
        pairs = list(combinations([layer.sigma for layer in self.layers], 2))
        return sum(shallow < deep for shallow, deep in pairs), len(pairs)

    @property
    def by_chance(self) -> float:
        """The probability that as many pairs rise in an order drawn at random."""
        return chance_of_rising(len(self.layers), self.rising[0])


def judge_references(references: Mapping[str, FilterStatistics]) -> list[ReferenceFinding]:
    """Return what the statistics of some networks show, of those that have layers large enough to fit."""
    found = []
    for network, statistics in references.items():
        fitting = [layer for layer in statistics.layers if max(layer.kernel_size) >= LEAST_KERNEL]
        last = max(len(fitting) - 1, 1)
        layers = tuple(_layer(layer, index / last) for index, layer in enumerate(fitting))
        if layers:
            found.append(ReferenceFinding(network, layers))
    return found


def static_component(covariance: Array, kernel_size: tuple[int, ...], sigma: float) -> float:
    """Return β of a covariance (n, n), for the total variance of the closed form of σ.

    >>> from filtercov.covariance import gaussian_covariance
    >>> round(static_component(3.0 * gaussian_covariance(7, 1.5), (7, 7), 1.5), 6)
    -1.0
    """
    z, C = (kron(factors) for factors in zip(*(axis_gaussians(k, sigma) for k in kernel_size), strict=True))
    apart = ~np.eye(len(z), dtype=bool)
    dynamic, static = 0.5 * (z[:, None] + z) * C, 0.5 * z[:, None] * z
    parts = np.stack([dynamic[apart], static[apart]], axis=1)
    (_, beta), *_ = np.linalg.lstsq(parts, covariance[apart], rcond=None)
    return float(beta * np.trace(dynamic - static) / np.trace(covariance))


def chance_of_rising(count: int, pairs: int) -> float:
    """Return the probability that a random order of `count` different numbers has `pairs` or more rising pairs.

    >>> round(6 * chance_of_rising(3, 3), 6), round(chance_of_rising(3, 0), 6)
    (1.0, 1.0)
    """
    orders = np.ones(1)  # orders by their number of rising pairs: the n-th number makes 0 to n-1 new ones
    for n in range(2, count + 1):
        orders = np.convolve(orders, np.ones(n) / n)
    return float(orders[pairs:].sum())


def _layer(layer: LayerStatistics, depth: float) -> LayerFinding:
    fit = fit_layer(layer)
    random = np.random.default_rng(0)
    size, pixels = layer.kernel_size, math.prod(layer.kernel_size)
    by_chance = [
        static_component(np.cov(random.standard_normal((layer.count, pixels)), rowvar=False), size, fit.sigma)
        for _ in range(DRAWS)
    ]
    static = static_component(layer.covariance, size, fit.sigma)
    chance = (min(by_chance), max(by_chance))
    return LayerFinding(layer.name, depth, fit.sigma, fit.likeness, fit.chance, static, chance)
