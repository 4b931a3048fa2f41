"""Round double-precision numbers once to any narrower type."""

from __future__ import annotations

import torch
from torch import Tensor

from filtercov.covariance.forms import Array
from filtercov.covariance.rounding import to_odd


def rounded(values: Array, dtype: torch.dtype) -> Tensor:
    """Return a float64 array as a tensor of `dtype`, every number the nearest that the type has.

    torch converts float64 to 16 bits by way of float32, which rounds twice: 1 + 2⁻¹¹ + 2⁻³⁰ lies above the middle of
    two halves, its float32 on it.

    >>> import numpy as np
    >>> x = np.array([1 + 2**-11 + 2**-30])
    >>> float(torch.from_numpy(x).half()) - 1, float(rounded(x, torch.half)) - 1
    (0.0, 0.0009765625)
    """
    exact = torch.from_numpy(values)
    return exact.to(dtype) if dtype.itemsize >= 4 else torch.from_numpy(to_odd(values)).to(dtype)
