"""Student's t, by the finite sums it has for whole degrees of freedom; no library needed where a report is made.

With θ = atan(t/√df), the probability that |T| ≤ t is a sum of powers of cos θ (Abramowitz & Stegun, 26.7.3 and 26.7.4).
"""

import math
from functools import lru_cache


@lru_cache
def t_quantile(level: float, df: int) -> float:
    """Return the t with P(|T| ≤ t) = level, for a T with `df` degrees of freedom.

    >>> round(t_quantile(0.95, 2), 4), round(t_quantile(0.95, 4), 4)
    (4.3027, 2.7764)
    """
    if not (0 < level < 1 and df >= 1):
        raise ValueError(f"t_quantile: needs 0 < level < 1 and df of 1 or more, got level {level} and df {df}")
    # The probability is concave in θ, so Newton's steps from 0 come nearer from below until rounding ends them.
    steepest = 2 / math.sqrt(math.pi) * math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2))
    theta, following = -1.0, 0.0
    while following > theta:
        theta = following
        following = theta + (level - _probability(theta, df)) / (steepest * math.cos(theta) ** (df - 1))
    return math.sqrt(df) * math.tan(theta)


def _probability(theta: float, df: int) -> float:
    """Return P(|T| ≤ √df tan θ)."""
    cosine, sine = math.cos(theta), math.sin(theta)
    odd = df % 2
    term = cosine if odd else 1.0
    total = term if df > 1 else 0.0
    for power in range(2 + odd, df - 1, 2):
        term *= (power - 1) / power * cosine**2
        total += term
    return 2 / math.pi * (theta + sine * total) if odd else sine * total
