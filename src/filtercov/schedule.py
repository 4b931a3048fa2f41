"""How σ grows with depth: the paper's quadratic variance schedule, its sawtooth variant, and the settings it used.

Depth d runs from 0 at the first depthwise layer to 1 at the last: d = (i-1)/(D-1) for layer i of D.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from filtercov.errors import CovarianceError


class Schedule(Protocol):
    """Anything that turns a depth in [0, 1] into σ."""

    def __call__(self, d: float, /) -> float:
        """Return σ at relative depth d."""


@dataclass(frozen=True)
class QuadraticSchedule:
    """σ(d) = σ₀ + v d + ½ a d², the paper's variance schedule.

    >>> schedule = QuadraticSchedule(0.5, 0.5, 3.0)
    >>> schedule(0.0), schedule(1.0)
    (0.5, 2.5)
    """

    sigma0: float
    v: float
    a: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(x) for x in (self.sigma0, self.v, self.a)):
            raise CovarianceError(f"QuadraticSchedule: needed three finite numbers, got {self}")
        turning = min(max(-self.v / self.a, 0.0), 1.0) if self.a else 0.0
        lowest, where = min((self._sigma(d), d) for d in (0.0, turning, 1.0))
        if lowest <= 0:
            raise CovarianceError(
                f"QuadraticSchedule: needed σ > 0 at every depth, got σ({where:.3g}) = {lowest:.3g} from {self}"
            )

    def __call__(self, d: float, /) -> float:
        """Return σ at relative depth d in [0, 1]."""
        return self._sigma(check_depth(d))

    def _sigma(self, d: float) -> float:
        return self.sigma0 + self.v * d + 0.5 * self.a * d * d


@dataclass(frozen=True)
class SawtoothSchedule:
    """A schedule that starts again at each downsampling, for networks built in stages.

    `stages` counts the depthwise layers of each stage. A layer that is j-th of the m in its stage gets σ at depth
    j/(m-1), counting from 0.

    >>> saw = SawtoothSchedule(QuadraticSchedule(0.1, 1.0, 0.0), stages=(2, 3))
    >>> [round(saw(i / 4), 3) for i in range(5)]
    [0.1, 1.1, 0.1, 0.6, 1.1]
    """

    schedule: Schedule
    stages: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.stages or any(not isinstance(m, int) or m < 1 for m in self.stages):
            raise CovarianceError(
                f"SawtoothSchedule: needed the number of layers of each stage, got stages={self.stages!r}"
            )
        object.__setattr__(self, "stages", tuple(self.stages))

    def __call__(self, d: float, /) -> float:
        """Return σ for the layer at relative depth d of the whole network."""
        layer = round(check_depth(d) * (sum(self.stages) - 1))
        for layers in self.stages:
            if layer < layers:
                return self.schedule(relative_depth(layer, layers))
            layer -= layers
        raise AssertionError("a depth in [0, 1] lies in some stage")


def relative_depth(index: int, count: int) -> float:
    """Return d of the layer at `index`, counting from 0, among `count` layers; a single layer is at the start.

    >>> relative_depth(3, 4), relative_depth(0, 1)
    (1.0, 0.0)
    """
    return index / (count - 1) if count > 1 else 0.0


def check_depth(d: float) -> float:
    """Return d, or raise unless it is in [0, 1]."""
    if not 0.0 <= d <= 1.0:
        raise CovarianceError(f"depth: needed a number from 0 (first layer) to 1 (last layer), got {d!r}")
    return float(d)


PRESETS: Mapping[str, QuadraticSchedule] = MappingProxyType(
    {
        # CIFAR-10, found by grid search on ConvMixer-256/8 with frozen 9x9 filters; 1x1 patches take about the double.
        "cifar-p2": QuadraticSchedule(0.08, 0.37, 2.9),
        "cifar-p1": QuadraticSchedule(0.16, 0.74, 5.8),
        "cifar-p1-listing": QuadraticSchedule(0.16, 0.32, 2.88),
        # ImageNet, found on ConvMixer-512/12 with 14x14 patches.
        "imagenet-thawed": QuadraticSchedule(0.15, 0.25, 1.0),
        "imagenet-frozen": QuadraticSchedule(0.15, 0.5, 0.25),
        "imagenet-third": QuadraticSchedule(0.15, 0.3, 0.5),
        # The paper's illustration of how the covariance changes with depth.
        "figure": QuadraticSchedule(0.5, 0.5, 3.0),
    }
)
