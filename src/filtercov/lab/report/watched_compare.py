"""Two watched runs of one network: how alike their covariances are at each moment, and whether they end in one place.

Two samples of a few filters from one and the same covariance differ too. So the cosine between the covariances of two
layers stands beside what two such samples show: with Σ the covariance that the two have in common, which is estimated
as follows, as many normal filters are drawn twice, several times over.

The pooled covariance P of both, each divided by its trace, has more norm than Σ: for ν degrees of freedom

    E‖P‖² = ‖Σ‖² + (‖Σ‖² + (tr Σ)²)/ν,   so that   ν²/((ν-1)(ν+2)) (‖P‖² - (tr P)²/ν)

is on average ‖Σ‖². P is moved towards the multiple of the identity with its trace until it has that norm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.covariance.root import symmetric_root
from filtercov.covariance.transfer import LayerStatistics
from filtercov.lab.report.inspect_numbers import number_or_none
from filtercov.lab.report.watched_numbers import History, LayerHistory
from filtercov.lab.report.watched_run import WatchedRun
from filtercov.structure import Number, within

DRAWS = 24  # pairs of samples of one covariance


@dataclass(frozen=True, eq=False)
class LayerPair:
    """A layer of two runs: the cosine between its covariances at each moment of the first.

    `last` is the cosine at the last moment, beside what two samples of one covariance show.
    """

    layer: LayerHistory
    cosines: tuple[float, ...]
    last: Number

    @property
    def apart(self) -> bool:
        """Whether the two ended less alike than two samples of one covariance are."""
        return self.last.value is not None and self.last.low is not None and self.last.value < self.last.low

    def as_json(self) -> dict[str, Any]:
        """Return every number."""
        return {
            "name": self.layer.name,
            "cosines": [number_or_none(cosine) for cosine in self.cosines],
            "of_one_covariance": self.last.chance,
            "of_one_covariance_seldom_below": self.last.low,
            "apart": None if self.last.value is None else self.apart,
        }


def compare_runs(history: History, other: WatchedRun) -> tuple[LayerPair, ...]:
    """Compare every layer of a run, at each of its moments, with the other run at its last moment until then."""
    theirs = [other.at(step) for step in history.steps]
    rng = np.random.default_rng(0)
    pairs = []
    for layer in history.layers:
        both = [
            (mine.statistics[layer.name], their.statistics[layer.name])
            for mine, their in zip(history.moments, theirs, strict=True)
        ]
        cosines = tuple(cosine(a.covariance, b.covariance) for a, b in both)
        pairs.append(LayerPair(layer, cosines, beside_one_covariance(*both[-1], rng)))
    return tuple(pairs)


def cosine(a: Array, b: Array) -> float:
    """Return the cosine between two covariances as vectors, nan if one is zero."""
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.vdot(a, b)) / norms if norms else math.nan


def beside_one_covariance(a: LayerStatistics, b: LayerStatistics, rng: np.random.Generator) -> Number:
    """Return the cosine between two layers' covariances, beside that of two samples of what they have in common."""
    if min(a.count, b.count) < 3 or not (a.covariance.any() and b.covariance.any()):
        return Number(None, reason="too few filters, or filters that do not vary")
    root = symmetric_root(common_covariance([a, b]))
    drawn = [
        cosine(
            *(
                np.cov(rng.normal(size=(each.count, len(root))) @ root, rowvar=False).reshape(root.shape)
                for each in (a, b)
            )
        )
        for _ in range(DRAWS)
    ]
    found = cosine(a.covariance, b.covariance)
    return within(found, float(np.mean(drawn)), float(np.std(drawn, ddof=1)), -1.0, 1.0)


def common_covariance(layers: Sequence[LayerStatistics]) -> Array:
    """Return the covariance, of trace 1, that these layers are samples of if they are samples of one.

    >>> rng = np.random.default_rng(0)
    >>> noise = [LayerStatistics("", (9, 9), 64, np.zeros(81), np.cov(rng.normal(size=(81, 64)))) for _ in range(2)]
    >>> bool(abs(np.linalg.norm(common_covariance(noise)) - 1 / 9) < 0.01)  # that of the identity over its trace
    True
    """
    degrees = [layer.count - 1 for layer in layers]
    freedom = sum(degrees)
    pooled: Array = sum(
        (m / freedom) * layer.covariance / np.trace(layer.covariance) for m, layer in zip(degrees, layers, strict=True)
    )
    level = np.eye(len(pooled)) / len(pooled)
    norm = freedom**2 / ((freedom - 1) * (freedom + 2)) * (float(np.vdot(pooled, pooled)) - 1 / freedom)
    shape = float(np.vdot(pooled, pooled)) - 1 / len(pooled)
    kept = math.sqrt(min(max(norm - 1 / len(pooled), 0.0) / shape, 1.0)) if shape > 0 else 0.0
    return kept * pooled + (1 - kept) * level
