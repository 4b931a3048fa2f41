"""From the filters of a trained layer to the Gaussian they look drawn from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.forms import Array, show_size
from filtercov.covariance.numbers import as_array
from filtercov.errors import CovarianceError
from filtercov.printable import show_bytes

LARGEST_WEIGHT = 1e70  # its covariances are within `forms.LARGEST`

PIXELS = 4096  # weights in one filter: its covariance has their square, 128 MiB in float64; 64x64 filters fit


def empirical_covariance(filters: ArrayLike) -> tuple[Array, Array]:
    """Return the mean (n,) and the covariance (n, n) of filters (H, *kernel_size), in float64.

    The covariance is the unbiased estimate, with H-1 in the denominator. Fewer filters than pixels give a
    rank-deficient covariance, which is a fine thing to sample from: the paper's best references are narrow. One filter
    alone has no spread: its covariance is zero, and the mean is the filter.

    >>> mean, cov = empirical_covariance([[[1.0, 0.0]], [[3.0, 0.0]]])
    >>> mean, cov
    (array([2., 0.]), array([[2., 0.], [0., 0.]]))
    """
    stack = as_array(filters, "empirical_covariance")
    if not 2 <= stack.ndim <= 4 or 0 in stack.shape:
        raise CovarianceError(
            f"empirical_covariance: needed at least one filter as (H, *kernel_size), got shape {stack.shape}; "
            "squeeze a depthwise weight (H, 1, kh, kw) with weight[:, 0] first"
        )
    check_pixels(stack.shape[1:])
    if not np.isfinite(stack).all():
        bad = int((~np.isfinite(stack)).sum())
        raise CovarianceError(f"empirical_covariance: needed finite filters, got {bad} nan or inf among {stack.size}")
    largest = float(np.abs(stack).max())
    if largest > LARGEST_WEIGHT:
        raise CovarianceError(f"empirical_covariance: needed weights up to {LARGEST_WEIGHT:g}, got {largest:.3g}")
    flat = stack.reshape(len(stack), -1)
    from_first = flat - flat[0]  # of equal filters zero, which the rounded mean may differ from
    offset = from_first.mean(axis=0)
    centred = from_first - offset
    return flat[0] + offset, centred.T @ centred / max(len(flat) - 1, 1)


def check_pixels(kernel_size: tuple[int, ...]) -> None:
    """Refuse filters so large that their covariance would not fit into memory."""
    n = math.prod(kernel_size)
    if n > PIXELS:
        raise CovarianceError(
            f"needed filters of at most {PIXELS} pixels, got {show_size(kernel_size)} ones, whose covariance would "
            f"take {show_bytes(8 * n * n)}"
        )
