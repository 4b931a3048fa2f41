"""How alike a covariance of long 1-D filters and the closed form are, without arrays of σ by pixel by pixel.

Along one axis C is circulant, so it is known by its first row γ, and with g as in `closed_form` all that a cosine needs
is a product of matrices, or a circular convolution of rows:

    ⟨S, DC⟩ = Σ_d γ_d Σ_i g_i (S_i,i+d + S_i,i-d)      ‖DC‖² = Σ g² Σ γ²      ⟨DC, CD⟩ = Σ g (γ² ⊛ g)
    ⟨S, zzᵀ⟩ = gᵀ S g                                   ‖zzᵀ‖² = (Σ g²)²       ⟨DC, zzᵀ⟩ = Σ g² (γ ⊛ g)
"""

from __future__ import annotations

import numpy as np

from filtercov.covariance.forms import Array


class LineLikeness:
    """The likeness of one covariance (k, k), symmetric, to closed forms of any σ and centre, many at a time.

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> like = LineLikeness(3 * gaussian_covariance((9,), 0.5, centre=1))
    >>> like(np.array([0.5, 0.9]), np.array([1.0, 0.0])).round(3)
    array([1.   , 0.729])
    """

    def __init__(self, matrix: Array) -> None:
        k = len(matrix)
        pixel, apart = np.arange(k)[:, None], np.arange(k)
        ahead, behind = pixel + apart, pixel - apart
        self._matrix, self._size = matrix, float(np.linalg.norm(matrix))
        self._by_distance = np.where(ahead < k, matrix[pixel, np.minimum(ahead, k - 1)], 0.0)
        self._by_distance += np.where((behind >= 0) & (apart > 0), matrix[pixel, np.maximum(behind, 0)], 0.0)

    def __call__(self, sigmas: Array, centres: Array) -> Array:
        """Return the cosine for each σ and offset from the middle, both (s,) -> (s,)."""
        k = len(self._matrix)
        pixel = np.arange(k, dtype=np.float64)
        with np.errstate(over="ignore"):  # a tiny σ sends the exponent to -inf, which is the right limit
            g = np.exp(-((pixel - (k - 1) / 2 - centres[:, None]) ** 2) / (2 * sigmas[:, None]))
            gamma = np.exp(-(np.minimum(pixel, k - pixel) ** 2) / (2 * sigmas[:, None]))
        inner = ((g @ self._by_distance) * gamma).sum(axis=1) - 0.5 * ((g @ self._matrix) * g).sum(axis=1)
        energy = np.square(g).sum(axis=1)
        moving = energy * np.square(gamma).sum(axis=1) + (g * _around(np.square(gamma), g)).sum(axis=1)
        across = (np.square(g) * _around(gamma, g)).sum(axis=1)
        norms = self._size * np.sqrt(np.maximum(0.25 * (2 * moving + np.square(energy) - 4 * across), 0.0))
        cosines: Array = np.divide(inner, norms, out=np.zeros_like(inner), where=norms > 0)
        return cosines


def _around(kernel: Array, rows: Array) -> Array:
    """Return the circular convolution of each row with its kernel."""
    k = rows.shape[1]
    convolved: Array = np.fft.irfft(np.fft.rfft(kernel) * np.fft.rfft(rows), n=k)
    return convolved
