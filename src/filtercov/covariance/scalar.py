"""Recognise a single real number in whatever type it comes."""

from __future__ import annotations

import math
from numbers import Real


def as_float(value: object) -> float | None:
    """Return a real number as a float, or None if `value` is not one.

    Python's and NumPy's numbers, fractions, and arrays and tensors without axes are numbers; truth values, strings and
    complex numbers are not. What is too large for a float is infinite.

    >>> from fractions import Fraction
    >>> import numpy as np
    >>> [as_float(x) for x in (2, np.float32(0.5), np.array(0.5), Fraction(1, 2), True, "0.5", np.ones(1))]
    [2.0, 0.5, 0.5, 0.5, None, None, None]
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        try:
            value = value.item()
        except RuntimeError:  # a tensor that holds no values, such as one on the meta device
            return None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
