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

import numpy as np

from filtercov.covariance.closed_form import axis_gaussians
from filtercov.covariance.forms import Array, kron
from filtercov.covariance.transfer import LayerStatistics
from filtercov.schedule import fit_layer
from filtercov.statistics.filter_statistics import FilterStatistics

LEAST_KERNEL = 5  # pixels a side, under which the closed form has no shape to fit
DRAWS = 40  # of independent filters, the lowest of which is chance
REFERENCE_CLAIMS = {  # all of the paper's Fig. 1
    "C19": "Covariances of trained filters often have a static negative component in the centre.",
    "C20": "Covariances of trained filters become more diffuse with depth.",
}


@dataclass(frozen=True)
class LayerFinding:
    """What one layer of a reference shows."""

    name: str
    sigma: float  # of the nearest closed form
    static: float  # β, -1 in the closed form
    static_by_chance: float  # the lowest of independent filters


@dataclass(frozen=True)
class ReferenceFinding:
    """What the layers of a reference say of both claims."""

    network: str
    layers: tuple[LayerFinding, ...]

    @property
    def negative(self) -> int:
        """In how many layers the static component is negative, beyond chance."""
        return sum(layer.static < layer.static_by_chance for layer in self.layers)

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
    """What the statistics of some networks show, of those that have layers large enough to fit."""
    found = []
    for network, statistics in references.items():
        fitting = [layer for layer in statistics.layers if max(layer.kernel_size) >= LEAST_KERNEL]
        if fitting:
            found.append(ReferenceFinding(network, tuple(map(_layer, fitting))))
    return found


def static_component(covariance: Array, kernel_size: tuple[int, ...], sigma: float) -> float:
    """β of a covariance (n, n), for the total variance of the closed form of σ.

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
    """The probability that a random order of `count` different numbers has `pairs` or more rising pairs.

    >>> round(6 * chance_of_rising(3, 3), 6), round(chance_of_rising(3, 0), 6)
    (1.0, 1.0)
    """
    orders = np.ones(1)  # orders by their number of rising pairs: the n-th number makes 0 to n-1 new ones
    for n in range(2, count + 1):
        orders = np.convolve(orders, np.ones(n) / n)
    return float(orders[pairs:].sum())


def _layer(layer: LayerStatistics) -> LayerFinding:
    sigma, random = fit_layer(layer).sigma, np.random.default_rng(0)
    size, shape = layer.kernel_size, (layer.count, math.prod(layer.kernel_size))
    draws = [np.cov(random.standard_normal(shape), rowvar=False) for _ in range(DRAWS)]
    by_chance = min(static_component(draw, size, sigma) for draw in draws)
    return LayerFinding(layer.name, sigma, static_component(layer.covariance, size, sigma), by_chance)
