"""What a handful of accuracies say, and how it is written: mean, spread, a paired difference with its interval.

Columns of a table share their seeds, and with them the order of images, the augmentation and all weights but the
filters. Their difference is therefore taken seed by seed, and its interval is Student's over the seeds. It covers the
true difference in 95 of 100 experiments if the differences of the seeds are independent and normal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.95
INTERVAL = f"{CONFIDENCE:.0%} interval"
OVER_SEEDS = "mean ± standard deviation over seeds"
MOST_SEEDS = 200  # worth naming
METHOD = (
    f"Differences are means over the n seeds that both sides have, in brackets Student's {INTERVAL} for independent "
    "and normal differences. One seed: no interval, no verdict."
)
ANGLES = 20_001  # of a numerical integral: enough for five digits of any quantile
ROUNDING = 1e-9  # of the mean accuracy: smaller spreads are those of the last bits


@dataclass(frozen=True)
class Summary:
    """The mean of n numbers and their sample standard deviation, which one number does not have.

    >>> str(Summary(52.184, 0.751, 3)), str(Summary(52.184, None, 1))
    ('52.18 ± 0.75', '52.18')
    """

    mean: float
    std: float | None
    n: int = 3  # as the paper has

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")


class Difference(Summary):
    """A summary of n differences, each of two runs of one seed; None is a spread that was not measured.

    >>> str(Difference(2.0, 0.6, 3)), str(Difference(2.0, None, 1))
    ('+2.00 [+0.51, +3.49], n = 3', '+2.00 (one seed)')
    """

    def __str__(self) -> str:
        return self.interval if self.n == 1 else f"{self.interval}, n = {self.n}"

    @property
    def interval(self) -> str:
        """The mean and its interval."""
        if not (bounds := self.bounds()):
            return f"{self.mean:+.2f} ({'one seed' if self.n == 1 else 'no spread'})"
        return "{:+.2f} [{:+.2f}, {:+.2f}]".format(self.mean, *bounds)

    def bounds(self, level: float = CONFIDENCE) -> tuple[float, float] | None:
        """Student's interval of that level, where the spread was measured."""
        if self.std is None:
            return None
        half = t_quantile(level, self.n - 1) * self.std / math.sqrt(self.n)
        return self.mean - half, self.mean + half

    @property
    def sign(self) -> int:
        """The side of zero on which the interval lies, 1 or -1; 0 if it lies on both or was not measured."""
        low, high = self.bounds() or (0.0, 0.0)
        return (low > 0) - (high < 0)


def summarise(values: Sequence[float]) -> Summary:
    """Mean, standard deviation (n - 1 in the denominator) and n.

    >>> summarise([90.0, 91.0, 92.0])
    Summary(mean=91.0, std=1.0, n=3)
    """
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), std, len(values))


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """Values - baseline over the seeds that both have, None if they share none.

    There is no interval with one seed, nor where all differences are equal: accuracies are whole numbers of images, so
    a few may coincide.
    """
    seeds = sorted(values.keys() & baseline.keys())
    if not seeds:
        return None
    differences = np.array([values[seed] - baseline[seed] for seed in seeds])
    scale = max(abs(side[seed]) for side in (values, baseline) for seed in seeds)
    spread = len(seeds) > 1 and np.ptp(differences) > ROUNDING * scale
    return Difference(float(differences.mean()), float(differences.std(ddof=1)) if spread else None, len(seeds))


def welch_interval(ours: Summary, theirs: Summary) -> str:
    """The difference of two independent means, with Welch's interval where both have a spread."""
    mean = ours.mean - theirs.mean
    if not ours.std or not theirs.std:
        return f"{mean:+.2f}"
    first, second = ours.std**2 / ours.n, theirs.std**2 / theirs.n
    df = (first + second) ** 2 / (first**2 / (ours.n - 1) + second**2 / (theirs.n - 1))
    half = t_quantile(CONFIDENCE, math.floor(df)) * math.sqrt(first + second)
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def seeds_needed(found: Difference, *, wanted: float = 0.8) -> int | None:
    """About how many seeds tell a true difference of that size and spread with probability `wanted`, if few enough."""
    beyond = NormalDist().inv_cdf(wanted)  # the mean is normal; the critical value counts as known
    ratio = abs(found.mean) / (found.std or math.inf)
    counts = range(2, MOST_SEEDS + 1)
    return next((n for n in counts if ratio * math.sqrt(n) >= t_quantile(CONFIDENCE, n - 1) + beyond), None)


@lru_cache
def t_quantile(level: float, df: int) -> float:
    """The t with P(|T| ≤ t) = level, for a T with `df` degrees of freedom.

    With θ = atan(t/√df) that probability is a share of the integral of cos(θ)^(df - 1) up to π/2, so no library is
    needed where a report is made.
    """
    theta = np.linspace(0.0, math.pi / 2, ANGLES)
    density = np.cos(theta) ** (df - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(df) * math.tan(np.interp(level, below / below[-1], theta))
