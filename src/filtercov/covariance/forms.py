"""The two ways to write a filter covariance, and how to get from one to the other.

A filter of `kernel_size` (k₁, …, k_d) has n = k₁·…·k_d pixels in row-major order. Its covariance is

* **flat**, Σ′: an (n, n) matrix over pairs of pixels, what a multivariate Gaussian takes;
* **block**, Σ: the same numbers as a grid of blocks, where the block at pixel p is a picture of the covariance of p
  with every pixel. For a k×k filter it is a (k², k²) matrix; for other kernels the array has one axis per spatial
  axis, of length k_a², which interleaves the position of the block with the position inside it (paper, eq. 1).

Everything in filtercov works on the flat form; the block form is for looking at and for resizing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from filtercov.covariance.numbers import as_array
from filtercov.errors import CovarianceError

Array = NDArray[np.float64]
KernelSize = int | tuple[int, ...]

LARGEST = 1e150  # entry of a covariance: the sum of the squares of 4096 x 4096 such is still a number


def kernel_shape(kernel_size: KernelSize) -> tuple[int, ...]:
    """Return the kernel size as a tuple; a single number k means a square k×k kernel.

    >>> kernel_shape(7), kernel_shape((51, 5)), kernel_shape((9,))
    ((7, 7), (51, 5), (9,))
    """
    try:
        sides = (kernel_size, kernel_size) if not isinstance(kernel_size, tuple | list) else tuple(kernel_size)
        shape = tuple(operator.index(side) for side in sides)
    except TypeError:
        shape = ()
    if not 1 <= len(shape) <= 3 or min(shape) < 1:
        raise CovarianceError(
            f"kernel_size: needed a whole number or a tuple of one to three of them, each at least 1, got "
            f"{kernel_size!r}; write 9 for 9x9 filters, (9,) for 1-D ones, (51, 5) for rectangular ones"
        )
    return shape


def show_size(kernel_size: KernelSize) -> str:
    """Return the kernel size as people write it.

    >>> show_size(7), show_size((3, 5, 5)), show_size((9,))
    ('7x7', '3x5x5', '9')
    """
    return "x".join(map(str, kernel_shape(kernel_size)))


def as_covariance(cov: ArrayLike, *, kernel_size: KernelSize | None = None) -> Array:
    """Return `cov` as a float64 matrix, or say what is wrong with it: shape, non-finite or asymmetric entries."""
    matrix = as_array(cov, "covariance")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise CovarianceError(f"covariance: needed a square (n, n) matrix in flat form, got shape {matrix.shape}")
    if kernel_size is not None and len(matrix) != math.prod(kernel_shape(kernel_size)):
        raise CovarianceError(wrong_size_message(len(matrix), kernel_size))
    if not np.isfinite(matrix).all():
        bad = int((~np.isfinite(matrix)).sum())
        raise CovarianceError(f"covariance: needed finite numbers, got {bad} nan or inf among {matrix.size}")
    largest = float(np.abs(matrix).max(initial=0.0))
    if largest > LARGEST:
        raise CovarianceError(f"covariance: needed numbers up to {LARGEST:g}, got {largest:.3g}")
    asymmetry = float(np.abs(matrix - matrix.T).max(initial=0.0))
    if asymmetry > 1e-6 * largest:
        raise CovarianceError(
            f"covariance: needed a symmetric matrix, got one that differs from its transpose by up to "
            f"{asymmetry:.3g}; if it is in block form, convert it with to_flat(cov, kernel_size)"
        )
    return matrix


def as_mean(values: ArrayLike, kernel_size: tuple[int, ...]) -> Array:
    """Return the mean of `kernel_size` filters, (n,) or *kernel_size, as float64 (n,), or say what is wrong with it."""
    n = math.prod(kernel_size)
    vector = as_array(values, "mean")
    if vector.size != n or vector.shape not in ((n,), kernel_size):
        raise CovarianceError(f"{show_size(kernel_size)} filters need a ({n},) mean, got {vector.shape}")
    if not np.isfinite(vector).all():
        raise CovarianceError("mean: needed finite numbers, got nan or inf")
    return vector.reshape(n)


def wrong_size_message(n: int, kernel_size: KernelSize) -> str:
    """Say that an (n, n) covariance does not belong to filters of `kernel_size`, and which call would make it fit."""
    shape = kernel_shape(kernel_size)
    needed = math.prod(shape)
    side = round(n ** (1 / len(shape)))
    if side ** len(shape) == n:
        old, new = ((f"({s},)" if len(shape) == 1 else f"{s}") for s in (side, shape[0]))
        new = new if len(set(shape)) == 1 else repr(shape)
        advice = f"resize it first with resize_covariance(cov, {old}, {new})"
    else:
        advice = f"resize it first with resize_covariance(cov, its_kernel_size, {shape})"
    return f"{show_size(shape)} filters need a ({needed}, {needed}) covariance, got ({n}, {n}); {advice}"


def to_block(cov: ArrayLike, kernel_size: KernelSize) -> Array:
    """Return the block form of a flat covariance: (n, n) -> (k₁², …, k_d²).

    Row i, column j of the grid of blocks holds the covariance of pixel (i, j) with every pixel:

    >>> cov = np.arange(16.0).reshape(4, 4)
    >>> to_block(cov, 2)
    array([[ 0.,  1.,  4.,  5.],
           [ 2.,  3.,  6.,  7.],
           [ 8.,  9., 12., 13.],
           [10., 11., 14., 15.]])
    """
    shape = kernel_shape(kernel_size)
    matrix = as_array(cov, "to_block")
    n = math.prod(shape)
    if matrix.shape != (n, n):
        raise CovarianceError(f"to_block: {show_size(shape)} filters have a flat ({n}, {n}) form, got {matrix.shape}")
    pairs = matrix.reshape(shape * 2).transpose(_interleaved(len(shape)))
    return np.array(pairs, order="C").reshape([k * k for k in shape])


def to_flat(block: ArrayLike, kernel_size: KernelSize) -> Array:
    """Return the flat form of a block covariance: (k₁², …, k_d²) -> (n, n). The inverse of `to_block`.

    >>> cov = np.arange(36.0).reshape(6, 6)
    >>> np.array_equal(to_flat(to_block(cov, (2, 3)), (2, 3)), cov)
    True
    """
    shape = kernel_shape(kernel_size)
    blocks = as_array(block, "to_flat")
    needed = tuple(k * k for k in shape)
    if blocks.shape != needed:
        raise CovarianceError(f"to_flat: {show_size(shape)} filters have a {needed} block form, got {blocks.shape}")
    n = math.prod(shape)
    pairs = blocks.reshape([side for k in shape for side in (k, k)])
    return np.array(pairs.transpose(np.argsort(_interleaved(len(shape)))), order="C").reshape(n, n)


def kron(factors: Sequence[Array]) -> Array:
    """Return the Kronecker product of one or more arrays, which puts filter axes together in row-major order."""
    result = factors[0]
    for factor in factors[1:]:
        result = np.kron(result, factor).astype(np.float64, copy=False)
    return result


def _interleaved(axes: int) -> list[int]:
    """Return the axis order (i₁, l₁, i₂, l₂, …) for a tensor stored as (i₁, …, i_d, l₁, …, l_d)."""
    return [axis for a in range(axes) for axis in (a, a + axes)]
