"""Numbers in whatever type they come, recognised; and in whatever type they go to, rounded once."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from filtercov.errors import CovarianceError


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
        except (RuntimeError, TypeError):  # it holds no value: on torch's meta device, or traced by JAX
            return None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_array(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Return anything that NumPy reads as real numbers, and tensors of any type, as float64, or say what else it is.

    >>> as_array([[2, 1], [1, 2]], "covariance").dtype
    dtype('float64')
    """
    try:
        array = np.asarray(_as_numpy_reads(values))
        if array.dtype.kind in "cSU":
            raise TypeError(f"dtype {array.dtype}")
        if np.ma.is_masked(values):
            raise ValueError("some of them masked")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CovarianceError(
            f"{what}: needed an array of real numbers, got {type(values).__name__} ({error})"
        ) from None


def _as_numpy_reads(values: Any) -> Any:
    """Return a tensor of real numbers such as torch has as one that NumPy can read, anything else as it is."""
    if not all(hasattr(values, method) for method in ("detach", "cpu", "double", "is_complex")):
        return values
    return values if values.is_complex() else values.detach().cpu().double()


Singles = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def to_odd(values: NDArray[np.float64]) -> Singles:
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


def check_held(largest: float, dtype: Any) -> None:
    """Raise if filters whose largest number is given would become infinite, or zero, in a type that NumPy knows.

    >>> check_held(1e6, "float16")
    Traceback (most recent call last):
    filtercov.errors.CovarianceError: needed filters that float16 can hold, got numbers up to 1e+06; use smaller ones
    """
    kind = np.dtype(dtype)
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float64(largest).astype(kind))
    if not math.isfinite(rounded):
        raise CovarianceError(f"needed filters that {kind} can hold, got numbers up to {largest:.3g}; use smaller ones")
    if rounded == 0:
        raise CovarianceError(
            f"needed a covariance that is not all zero, or too small for {kind}, or every filter would be zero"
        )
