"""What the paper saw in pictures of covariances, as numbers.

Every number is free of scale: it does not change when the filters are multiplied by a constant. Where a covariance does
not determine one (it is zero, or the filter has one pixel), the number is nan.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.closed_form import axis_gaussians, check_sigma
from filtercov.covariance.forms import Array, KernelSize, as_covariance, kernel_shape, kron
from filtercov.covariance.kronecker import nearest_kronecker

# Closer to parallel than this, the static and the dynamic component cannot be told apart: σ under about 0.16.
MOST_PARALLEL = 0.995


def pixel_variance(cov: ArrayLike, kernel_size: KernelSize) -> Array:
    """Return the variance of each pixel, as a picture of the filter: (n, n) -> kernel_size."""
    shape = kernel_shape(kernel_size)
    variance: Array = np.diagonal(as_covariance(cov, kernel_size=shape)).reshape(shape).copy()
    return variance


def centredness(cov: ArrayLike, kernel_size: KernelSize) -> float:
    """Return how far variance gathers at the centre: 1 all in the central pixel, 0 spread evenly, below 0 at the rim.

    It is 1 - r²/u², where r² is the mean squared distance from the centre, pixels weighted by their variance, and u²
    the same with all pixels weighted alike.

    >>> [centredness(np.diag(variances), (3,)) for variances in ([0, 1, 0], [1, 1, 1], [1, 0, 1])]
    [1.0, 0.0, -0.5]
    """
    variance = pixel_variance(cov, kernel_size)
    axes = np.meshgrid(*(np.arange(k) - (k - 1) / 2 for k in variance.shape), indexing="ij")
    squared = sum(axis**2 for axis in axes)
    evenly, total = float(np.mean(squared)), float(variance.sum())
    if evenly == 0 or total <= 0:
        return math.nan
    return 1 - float((variance * squared).sum()) / total / evenly


def isotropic_distance(cov: ArrayLike) -> float:
    """Return ‖Σ - (tr Σ/n) I‖ / ‖Σ‖, the distance from what independent weights of equal variance have: 0 to 1.

    >>> isotropic_distance(3 * np.eye(4))
    0.0
    """
    matrix = as_covariance(cov)
    n, norm = len(matrix), float(np.linalg.norm(matrix))
    if norm == 0:
        return math.nan
    return float(np.linalg.norm(matrix - np.trace(matrix) / n * np.eye(n))) / norm


def isotropic_floor(n: int, count: int) -> float:
    """Return the isotropic distance to expect of the covariance of `count` filters of n independent Gaussian weights.

    A sample of independent weights is not exactly isotropic; only a distance well above this is structure. It follows
    from E‖S‖² = n + n(n+1)/m and E(tr S)²/n = n + 2/m for the sample covariance S with m = count - 1.

    >>> round(isotropic_floor(81, 256), 2)
    0.49
    """
    if count < 2:
        return math.nan
    m = count - 1
    return math.sqrt(max((n * (n + 1) - 2) / m, 0.0) / (n + n * (n + 1) / m))


def dynamic_and_static(cov: ArrayLike, kernel_size: KernelSize, sigma: float) -> tuple[float, float]:
    """Return the sizes of the positive component that moves with the block and of the one that stays at the centre.

    They are the a and b that make a ½(M+S)⊙C + b ½ M⊙S, the two parts of the closed form, nearest to the covariance in
    least squares, over the multiple of the whole closed form that is nearest to it. So the closed form itself gives
    (1, -1), and a static component above 0 means that there is no negative centre.

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> dynamic, static = dynamic_and_static(5 * gaussian_covariance(7, 0.8), 7, 0.8)
    >>> round(dynamic, 6), round(static, 6)
    (1.0, -1.0)
    """
    matrix = as_covariance(cov, kernel_size=kernel_size)
    moving, still = closed_form_parts(kernel_size, sigma)
    closed = moving - still
    mm, ss, ms = np.vdot(moving, moving), np.vdot(still, still), np.vdot(moving, still)
    along_m, along_s = np.vdot(moving, matrix), np.vdot(still, matrix)
    size = float(np.vdot(closed, closed))  # 0 where σ is so small that no pixel is near enough to the centre
    scale = float(np.vdot(closed, matrix)) / size if size else math.nan
    if not scale > 0 or ms > MOST_PARALLEL * math.sqrt(mm * ss):
        return math.nan, math.nan
    determinant = mm * ss - ms * ms
    a = (ss * along_m - ms * along_s) / determinant
    b = (mm * along_s - ms * along_m) / determinant
    return float(a) / scale, float(b) / scale


def closed_form_parts(kernel_size: KernelSize, sigma: float) -> tuple[Array, Array]:
    """Return ½(M+S)⊙C, which moves with the block, and ½ M⊙S, which stays: flat, with the closed form as difference."""
    check_sigma(sigma)
    g, G = zip(*(axis_gaussians(k, sigma) for k in kernel_shape(kernel_size)), strict=True)
    z, C = kron(g), kron(G)
    return 0.5 * (z[:, None] + z) * C, 0.5 * z[:, None] * z


def kronecker_residual(cov: ArrayLike, kernel_size: KernelSize) -> float:
    """Return ‖Σ′ - A⊗A‖ / ‖Σ′‖ for the nearest A: 0 if the covariance is separable; nan unless filters are k×k.

    >>> A = np.array([[2.0, 0.5], [0.5, 1.0]])
    >>> round(kronecker_residual(np.kron(A, A), 2), 6)
    0.0
    """
    shape = kernel_shape(kernel_size)
    matrix = as_covariance(cov, kernel_size=shape)
    norm = float(np.linalg.norm(matrix))
    if norm == 0 or len(shape) != 2 or shape[0] != shape[1]:
        return math.nan
    A = nearest_kronecker(matrix, shape)
    return float(np.linalg.norm(matrix - kron([A, A]))) / norm


def spectrum(cov: ArrayLike) -> Array:
    """Return the eigenvalues, largest first: (n, n) -> (n,)."""
    descending: Array = np.sort(np.linalg.eigvalsh(as_covariance(cov)).astype(np.float64))[::-1]
    return descending
