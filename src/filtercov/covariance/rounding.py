"""Round double-precision numbers once to types shorter than single precision, by way of it."""

from __future__ import annotations

import numpy as np

from filtercov.covariance.forms import Array

Singles = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def to_odd(values: Array) -> Singles:
    """Return float32s that keep, in their last bit, whether anything was cut off.

    A number between two float32s goes to the one whose last bit is set, so it never lands on the middle between two
    numbers of a type at least two bits shorter, and rounding it to that type is as good as rounding the double.

    >>> x = np.array([1 + 2**-11 + 2**-30])
    >>> x.astype(np.float32).astype(np.float16) == x.astype(np.float16), to_odd(x).astype(np.float16) == x.astype("e")
    (array([False]), array([ True]))
    """
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
        below = near < values
        even = (near.view(np.uint32) & 1) == 0
        away = np.nextafter(near, np.where(below, np.float32(np.inf), np.float32(-np.inf)))
    odd: Singles = np.where(even & (near != values), away, near)
    return odd
