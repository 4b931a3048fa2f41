"""How σ grows with depth: the paper's quadratic variance schedule, its sawtooth variant, and the settings it used.

Depth d runs from 0 at the first depthwise layer to 1 at the last: d = (i-1)/(D-1) for layer i of D.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from filtercov.covariance.numbers import as_float
from filtercov.errors import CovarianceError

# σ is in square pixels. From about 7e-4 down exp(-1/2σ) is zero, and filters are one pixel whatever σ is; this is a
# little less, and so far from zero that rounding cannot take a schedule there.
LEAST_SIGMA = 1e-4


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
        for name in ("sigma0", "v", "a"):
            number = as_float(getattr(self, name))
            if number is None or not math.isfinite(number):
                given = f"({self.sigma0!r}, {self.v!r}, {self.a!r})"
                hint = "; write numbers without quotes" if isinstance(getattr(self, name), str) else ""
                raise CovarianceError(f"QuadraticSchedule: needed three finite numbers, got {given}{hint}")
            object.__setattr__(self, name, number)
        lowest, where = lowest_sigma(self.sigma0, self.v, self.a)
        if lowest < LEAST_SIGMA:
            raise CovarianceError(
                f"QuadraticSchedule: needed σ of at least {LEAST_SIGMA:g} at every depth, got σ({where:.3g}) = "
                f"{lowest:.3g} from ({self.sigma0}, {self.v}, {self.a})"
            )

    def short(self) -> QuadraticSchedule:
        """Return the schedule with as few decimals, four or more, as keep every σ to one percent.

        >>> QuadraticSchedule(0.1514159, 0.2482818, 0.9996123).short()
        QuadraticSchedule(sigma0=0.1514, v=0.2483, a=0.9996)
        """
        numbers = (self.sigma0, self.v, self.a)
        tolerance = 0.01 * lowest_sigma(*numbers)[0]
        for decimals in range(4, 10):
            few = [round(x, decimals) + 0.0 for x in numbers]  # + 0.0 turns -0.0 into 0.0
            off = [abs(x - y) for x, y in zip(few, numbers, strict=True)]
            if off[0] + off[1] + 0.5 * off[2] <= tolerance and lowest_sigma(*few)[0] >= LEAST_SIGMA:
                return QuadraticSchedule(*few)
        return self

    def __call__(self, d: float, /) -> float:
        """Return σ at relative depth d in [0, 1]."""
        d = check_depth(d)
        return self.sigma0 + self.v * d + 0.5 * self.a * d * d


def lowest_sigma(sigma0: float, v: float, a: float) -> tuple[float, float]:
    """Return the smallest σ₀ + v d + ½ a d² for d in [0, 1], and the d where it is.

    >>> lowest_sigma(1.0, -2.0, 4.0)
    (0.5, 0.5)
    """
    turning = min(max(-v / a, 0.0), 1.0) if a else 0.0
    return min((sigma0 + v * d + 0.5 * a * d * d, d) for d in (0.0, turning, 1.0))


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
        if not callable(self.schedule) or isinstance(self.schedule, type):
            known = isinstance(self.schedule, str) and self.schedule in PRESETS
            hint = f"; pass PRESETS[{self.schedule!r}]" if known else ""
            raise CovarianceError(
                f"SawtoothSchedule: needed a schedule, a function of depth, got {self.schedule!r}{hint}"
            )
        counts = [as_float(count) for count in self.stages] if isinstance(self.stages, Iterable) else []
        stages = tuple(int(count) for count in counts if count is not None and count >= 1 and count.is_integer())
        if not counts or len(stages) < len(counts):
            raise CovarianceError(
                f"SawtoothSchedule: needed the number of layers of each stage, got stages={self.stages!r}"
            )
        object.__setattr__(self, "stages", stages)

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
    number = as_float(d)
    if number is None or not 0.0 <= number <= 1.0:
        came = type(d).__name__ if hasattr(d, "shape") and number is None else repr(d)
        raise CovarianceError(f"depth: needed a number from 0 (first layer) to 1 (last layer), got {came}")
    return number


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
