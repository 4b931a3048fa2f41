"""What a handful of accuracies say: mean, spread, and how sure one can be of a difference."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Agreement = Literal["agrees", "disagrees", "tie"]

CONFIDENCE = 0.95
RESAMPLES = 10_000


@dataclass(frozen=True)
class Summary:
    """The mean of n numbers and their sample standard deviation, which one number does not have."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """A difference of two means with its bootstrap interval, which needs two numbers on either side."""

    mean: float
    low: float | None
    high: float | None

    @property
    def decided(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        return self.low is not None and self.high is not None and self.low * self.high > 0


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, standard deviation (n - 1 in the denominator) and n.

    >>> summarise([90.0, 91.0, 92.0])
    Summary(mean=91.0, std=1.0, n=3)
    """
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), std, len(values))


def bootstrap_difference(values: Sequence[float], baseline: Sequence[float], *, seed: int = 0) -> Difference:
    """Return mean(values) - mean(baseline) with its 95 % percentile bootstrap interval.

    Both sides are resampled on their own, 10,000 times. Three seeds have only ten distinct resamples, so the interval
    is coarse and, like any interval from so few, too narrow; it is given to warn, not to prove.

    >>> bootstrap_difference([2.0, 2.0], [1.0, 1.0])
    Difference(mean=1.0, low=1.0, high=1.0)
    """
    mean = float(np.mean(values)) - float(np.mean(baseline))
    if min(len(values), len(baseline)) < 2:
        return Difference(mean, None, None)
    rng = np.random.default_rng(seed)
    resampled = [
        rng.choice(np.asarray(side, dtype=float), size=(RESAMPLES, len(side))).mean(axis=1)
        for side in (values, baseline)
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled[0] - resampled[1], [tail, 1 - tail])
    return Difference(mean, float(low), float(high))


def compare_signs(measured: float, paper: float) -> Agreement:
    """Return whether two differences point the same way; a difference of zero points nowhere.

    >>> compare_signs(1.2, 0.1), compare_signs(-1.2, 0.1), compare_signs(0.0, 0.1)
    ('agrees', 'disagrees', 'tie')
    """
    product = math.copysign(1.0, measured) * math.copysign(1.0, paper)
    if measured == 0 or paper == 0:
        return "tie"
    return "agrees" if product > 0 else "disagrees"
