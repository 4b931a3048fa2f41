"""The covariance of separable structure: the nearest Kronecker square.

In block form A⊗A is the rank-one matrix vec(A) vec(A)ᵀ, so the best A in least squares is the leading eigenvector of
the block form's symmetric part: exact, where the paper ran gradient descent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.forms import Array, KernelSize, as_covariance, kernel_shape, show_size, to_block
from filtercov.errors import CovarianceError


def nearest_kronecker(cov: ArrayLike, kernel_size: KernelSize) -> Array:
    """Return A (k, k) for which A⊗A is nearest to the flat covariance of k×k filters in Frobenius norm.

    Of A and -A, the one with the larger trace is returned. Where no Kronecker square is nearer than zero, A is zero.

    >>> A = np.array([[2.0, 0.5], [0.5, 1.0]])
    >>> np.allclose(nearest_kronecker(np.kron(A, A), 2), A)
    True
    """
    shape = kernel_shape(kernel_size)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise CovarianceError(f"nearest_kronecker: A⊗A needs square 2-D filters, got {show_size(shape)}")
    block = to_block(as_covariance(cov, kernel_size=shape), shape)
    eigenvalues, vectors = np.linalg.eigh((block + block.T) / 2)
    A: Array = np.sqrt(max(eigenvalues[-1], 0.0)) * vectors[:, -1].reshape(shape)
    return A if np.trace(A) >= 0 else -A
