"""A number beside what chance gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Chance leaves its range in fewer than 1 of 100 layers: four standard deviations, for numbers that are nowhere normal.
SPREADS = 4


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
    """Return the number that there is not, with the reason."""
    return Number(None, reason=reason)


def within(value: float, mean: float, deviation: float, least: float = -math.inf, most: float = math.inf) -> Number:
    """Return a value beside a chance level with a standard deviation; a range of chance never leaves [least, most].

    >>> number = within(0.9, 0.75, 0.1, 0.0, 1.0)
    >>> number.chance, round(number.low, 6), number.high
    (0.75, 0.35, 1.0)
    """
    # Rounding must not put a value that cannot differ from its chance, such as 1 of 1, beside it.
    reach = SPREADS * deviation + 1e-12 * max(abs(mean), 1.0)
    return Number(value, mean, max(mean - reach, least), min(mean + reach, most))
