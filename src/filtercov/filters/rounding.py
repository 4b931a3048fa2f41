"""Round double-precision numbers once to any narrower type."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from filtercov.covariance.forms import Array


def rounded(values: Array, dtype: torch.dtype) -> Tensor:
    """Return a float64 array as a tensor of `dtype`, every number the nearest that the type has.

    torch converts float64 to 16 bits by way of float32, which rounds twice: 1 + 2⁻¹¹ + 2⁻³⁰ lies above the middle of
    two halves, its float32 on it.

    >>> x = np.array([1 + 2**-11 + 2**-30])
    >>> float(torch.from_numpy(x).half()) - 1, float(rounded(x, torch.half)) - 1
    (0.0, 0.0009765625)
    """
    exact = torch.from_numpy(values)
    return exact.to(dtype) if dtype.itemsize >= 4 else torch.from_numpy(_to_odd(values)).to(dtype)


def _to_odd(values: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return float32s that keep, in their last bit, whether anything was cut off.

    A number between two float32s goes to the one whose last bit is set, so it never lands on the middle between two
    numbers of a type at least two bits shorter, and rounding it to that type is as good as rounding the double.
    """
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
        below = near < values
        even = (near.view(np.uint32) & 1) == 0
        away = np.nextafter(near, np.where(below, np.float32(np.inf), np.float32(-np.inf)))
    odd: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = np.where(even & (near != values), away, near)
    return odd
