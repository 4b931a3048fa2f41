"""The paper's closed form, a learning-free covariance of depthwise filters.

With per-axis Gaussians g_i = exp(-(i-c)²/2σ) around the centre c, their product z over all pixels, D = diag(z), and the
circulant C of Gaussians of the wrap-around distance between pixels, the flat covariance is

    Σ′ = ½ (D C + C D − z zᵀ)

which is the paper's ½[M⊙(C−S) + S⊙C]. Axes multiply, so 1-D, rectangular and 3-D kernels need no special case. The
paper defines odd kernels only; for even ones c = (k-1)/2 lies between the two middle pixels and all symmetries hold.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.forms import Array, KernelSize, as_float, kernel_shape, kron
from filtercov.errors import CovarianceError


def gaussian_covariance(kernel_size: KernelSize, sigma: float) -> Array:
    """The closed-form covariance Σ′ of `kernel_size` filters: (n, n) float64, flat form.

    σ is the variance parameter of the paper's Gaussians: small σ gives filters focused on their centre, large σ
    diffuse ones. The matrix is symmetric but may have slightly negative eigenvalues; `symmetric_root` deals with them.

    >>> gaussian_covariance(3, 0.5).shape
    (9, 9)
    >>> gaussian_covariance(1, 2.0)
    array([[0.5]])
    """
    sigma = check_sigma(sigma)
    g, G = zip(*(axis_gaussians(k, sigma) for k in kernel_shape(kernel_size)), strict=True)
    z, C = kron(g), kron(G)
    return 0.5 * ((z[:, None] + z) * C - z[:, None] * z)


def axis_gaussians(k: int, sigma: ArrayLike, *, window: slice | None = None) -> tuple[Array, Array]:
    """The Gaussian g (…, w) and the circulant G (…, w, w) of one axis of length k, for σ of any shape (…).

    `window` picks w of the k pixels, by default all; distances still wrap around the whole axis.
    """
    pixels = window or slice(0, k)
    with np.errstate(over="ignore"):  # a tiny σ sends the exponent to -inf, which is the right limit
        two_sigma = 2.0 * np.asarray(sigma, dtype=np.float64)[..., None]
        i = np.arange(pixels.start, pixels.stop, dtype=np.float64)
        apart = np.abs(i[:, None] - i)
        around = np.minimum(apart, k - apart)
        g = np.exp(-((i - (k - 1) / 2) ** 2) / two_sigma)
        G = np.exp(-(around**2) / two_sigma[..., None])
    return g, G


def check_sigma(sigma: object) -> float:
    """σ as a float if it is a positive, finite number."""
    number = as_float(sigma)
    if number is None or not 0 < number < math.inf:
        raise CovarianceError(f"sigma: needed a positive, finite number, got {sigma!r}; the paper uses .08 to 6")
    return number
