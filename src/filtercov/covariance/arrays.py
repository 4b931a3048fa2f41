"""Recognise arrays of real numbers in whatever type they come."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.forms import Array, show_size
from filtercov.errors import CovarianceError


def as_array(values: ArrayLike, what: str) -> Array:
    """Return anything that NumPy reads as real numbers as float64, or say that it is something else.

    >>> as_array([[2, 1], [1, 2]], "covariance").dtype
    dtype('float64')
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cSU":
            raise TypeError(f"dtype {array.dtype}")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CovarianceError(
            f"{what}: needed an array of real numbers, got {type(values).__name__} ({error})"
        ) from None


def as_mean(values: ArrayLike, kernel_size: tuple[int, ...]) -> Array:
    """Return the mean of `kernel_size` filters, (n,) or *kernel_size, as float64 (n,), or say what is wrong with it."""
    n = math.prod(kernel_size)
    vector = as_array(values, "mean")
    if vector.size != n or vector.shape not in ((n,), kernel_size):
        raise CovarianceError(f"{show_size(kernel_size)} filters need a ({n},) mean, got {vector.shape}")
    if not np.isfinite(vector).all():
        raise CovarianceError("mean: needed finite numbers, got nan or inf")
    return vector.reshape(n)
