"""The two ways to write a filter covariance, and the checks that arrays and numbers pass when they come in.

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
from collections.abc import Callable, Sequence
from functools import reduce
from numbers import Real
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from filtercov.errors import CovarianceError, FiltercovError

Array = NDArray[np.float64]
KernelSize = int | tuple[int, ...]

PIXELS = 4096  # the most pixels of a filter; its covariance is then 128 MiB of float64


def kernel_shape(kernel_size: KernelSize) -> tuple[int, ...]:
    """The kernel size as a tuple; a single number k means a square k×k kernel.

    >>> kernel_shape(7), kernel_shape((51, 5)), kernel_shape((9,))
    ((7, 7), (51, 5), (9,))
    """
    sides = kernel_size if isinstance(kernel_size, tuple | list) else (kernel_size, kernel_size)
    if not 1 <= len(sides) <= 3:
        raise CovarianceError(
            f"kernel_size: needed a whole number or a tuple of one to three of them, got {kernel_size!r}; write 9 for "
            "9x9 filters, (9,) for 1-D ones, (51, 5) for rectangular ones"
        )
    return tuple(whole_number(side, "kernel_size") for side in sides)


def show_size(kernel_size: KernelSize) -> str:
    """The kernel size as people write it.

    >>> show_size(7), show_size((3, 5, 5)), show_size((9,))
    ('7x7', '3x5x5', '9')
    """
    return "x".join(map(str, kernel_shape(kernel_size)))


def to_block(cov: ArrayLike, kernel_size: KernelSize) -> Array:
    """The block form of a flat covariance: (n, n) -> (k₁², …, k_d²).

    Row i, column j of the grid of blocks holds the covariance of pixel (i, j) with every pixel:

    >>> cov = np.arange(16.0).reshape(4, 4)
    >>> to_block(cov, 2)
    array([[ 0.,  1.,  4.,  5.],
           [ 2.,  3.,  6.,  7.],
           [ 8.,  9., 12., 13.],
           [10., 11., 14., 15.]])
    """
    shape, matrix = kernel_shape(kernel_size), as_array(cov, "to_block")
    n = math.prod(shape)
    if matrix.shape != (n, n):
        raise CovarianceError(f"to_block: {show_size(shape)} filters have a flat ({n}, {n}) form, got {matrix.shape}")
    pairs = matrix.reshape(shape * 2).transpose(_interleaved(len(shape)))
    return np.array(pairs, order="C").reshape([k * k for k in shape])


def to_flat(block: ArrayLike, kernel_size: KernelSize) -> Array:
    """The flat form of a block covariance: (k₁², …, k_d²) -> (n, n). The inverse of `to_block`.

    >>> cov = np.arange(36.0).reshape(6, 6)
    >>> np.array_equal(to_flat(to_block(cov, (2, 3)), (2, 3)), cov)
    True
    """
    shape, blocks = kernel_shape(kernel_size), as_array(block, "to_flat")
    n, needed = math.prod(shape), tuple(k * k for k in shape)
    if blocks.shape != needed:
        raise CovarianceError(f"to_flat: {show_size(shape)} filters have a {needed} block form, got {blocks.shape}")
    pairs = blocks.reshape([side for k in shape for side in (k, k)])
    return np.array(pairs.transpose(np.argsort(_interleaved(len(shape)))), order="C").reshape(n, n)


def _interleaved(axes: int) -> list[int]:
    """The axis order (i₁, l₁, i₂, l₂, …) for a tensor stored as (i₁, …, i_d, l₁, …, l_d)."""
    return [axis for a in range(axes) for axis in (a, a + axes)]


def kron(factors: Sequence[Array]) -> Array:
    """The Kronecker product of one or more arrays, which joins filter axes in row-major order."""
    return reduce(np.kron, factors)  # type: ignore[arg-type]


def as_covariance(cov: ArrayLike, *, kernel_size: KernelSize | None = None) -> Array:
    """Return `cov` as a float64 matrix if it is square, finite, symmetric and of the size that `kernel_size` needs."""
    matrix = as_array(cov, "covariance")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise CovarianceError(f"covariance: needed a square (n, n) matrix in flat form, got shape {matrix.shape}")
    if kernel_size is not None:
        shape, n = kernel_shape(kernel_size), len(matrix)
        if n != (needed := math.prod(shape)):
            side = round(n ** (1 / len(shape)))
            old = (side,) * len(shape) if side ** len(shape) == n else "its_kernel_size"
            raise CovarianceError(
                f"{show_size(shape)} filters need a ({needed}, {needed}) covariance, got ({n}, {n}); resize it first "
                f"with resize_covariance(cov, {old}, {shape})"
            )
    check_finite(matrix, "covariance")
    asymmetry = float(np.abs(matrix - matrix.T).max(initial=0.0))
    if asymmetry > 1e-6 * float(np.abs(matrix).max(initial=0.0)):
        raise CovarianceError(
            f"covariance: needed a symmetric matrix, got one that differs from its transpose by up to "
            f"{asymmetry:.3g}; if it is in block form, convert it with to_flat(cov, kernel_size)"
        )
    return matrix


def as_mean(values: ArrayLike, kernel_size: tuple[int, ...]) -> Array:
    """The mean of `kernel_size` filters, (n,) or *kernel_size, as finite float64 numbers (n,)."""
    n, vector = math.prod(kernel_size), as_array(values, "mean")
    if vector.shape not in ((n,), kernel_size):
        raise CovarianceError(f"{show_size(kernel_size)} filters need a ({n},) mean, got {vector.shape}")
    check_finite(vector, "mean")
    return vector.reshape(n)


def as_array(values: ArrayLike, what: str) -> Array:
    """Real numbers of any type, lists and torch tensors included, as a float64 array."""
    given: Any = values
    try:
        if hasattr(given, "detach") and not given.is_complex():  # a tensor, whose type NumPy may not know
            given = given.detach().cpu().double()
        array = np.asarray(given)
        if array.dtype.kind in "cSU":
            raise TypeError(f"dtype {array.dtype}")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CovarianceError(
            f"{what}: needed an array of real numbers, got {type(values).__name__} ({error})"
        ) from None


def whole_number(
    value: Any, what: str, *, least: int = 1, error: Callable[[str], FiltercovError] = CovarianceError
) -> int:
    """A whole number of at least `least` as an int; for anything else raise `error`, which says `what` it is.

    >>> whole_number(np.int64(3), "depth")
    3
    >>> whole_number(3.0, "depth")
    Traceback (most recent call last):
    filtercov.errors.CovarianceError: depth: needed a whole number of at least 1, got 3.0
    """
    if not isinstance(value, SupportsIndex) or isinstance(value, bool) or operator.index(value) < least:
        raise error(f"{what}: needed a whole number of at least {least}, got {value!r}")
    return operator.index(value)


def as_float(value: object) -> float | None:
    """A real number, or an array or tensor without axes that holds one, as a float; None for anything else.

    >>> from fractions import Fraction
    >>> [as_float(x) for x in (2, np.float32(0.5), np.array(0.5), Fraction(1, 2), True, "0.5", np.ones(1))]
    [2.0, 0.5, 0.5, 0.5, None, None, None]
    """
    try:
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            value = value.item()
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None
    except (RuntimeError, TypeError):  # no value to read: on torch's meta device, or traced by JAX
        return None


def check_finite(values: Array, what: str) -> None:
    """Raise unless every number is finite."""
    if bad := int((~np.isfinite(values)).sum()):
        raise CovarianceError(f"{what}: needed finite numbers, got {bad} nan or inf among {values.size}")


def check_pixels(kernel_size: tuple[int, ...]) -> None:
    """Raise for filters so large that their covariance would not fit into memory."""
    n = math.prod(kernel_size)
    if n > PIXELS:
        raise CovarianceError(
            f"needed filters of at most {PIXELS} pixels, got {show_size(kernel_size)} ones, whose covariance would "
            f"take {8 * n * n / 1e9:.3g} GB"
        )


def check_held(largest: Any, dtype: Any) -> None:
    """Raise if filters whose largest weight is this, rounded to their type, became infinite or all zero.

    >>> check_held(np.float16(np.inf), "float16")
    Traceback (most recent call last):
    filtercov.errors.CovarianceError: needed filters that float16 can hold, got ones that become infinite; use a ...
    """
    if largest == 0 or not math.isfinite(largest):
        wrong, use = ("infinite", "smaller") if largest else ("all zero", "larger")
        raise CovarianceError(
            f"needed filters that {dtype} can hold, got ones that become {wrong}; use a {use} σ, covariance or scale"
        )


def to_odd(values: Array) -> NDArray[np.float32]:
    """Round to float32 so that rounding once more, to float16 or bfloat16, equals rounding the float64 directly.

    A number between two float32s goes to the one whose last bit is set (round to odd), so it never lands on the middle
    between two numbers of a type at least two bits shorter.

    >>> x = np.array([1 + 2**-11 + 2**-30])
    >>> x.astype(np.float32).astype(np.float16) == x.astype(np.float16), to_odd(x).astype(np.float16) == x.astype("e")
    (array([False]), array([ True]))
    """
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
        even = (near.view(np.uint32) & 1) == 0
        away = np.nextafter(near, np.where(near < values, np.float32(np.inf), np.float32(-np.inf)))
    odd: NDArray[np.float32] = np.where(even & (near != values), away, near)
    return odd
