"""The paper's closed form, a learning-free covariance of depthwise filters, and two that trained filters ask for.

With per-axis Gaussians g_i = exp(-(i-c)²/2σ) around the centre c, their product z over all pixels, D = diag(z), and the
circulant C of Gaussians of the wrap-around distance between pixels, the flat covariance is

    Σ′ = ½ (D C + C D − z zᵀ)

which is the paper's ½[M⊙(C−S) + S⊙C]. Axes multiply, so 1-D, rectangular and 3-D kernels need no special case. The
paper defines odd kernels only; for even ones c = (k-1)/2 lies between the two middle pixels and all symmetries hold.

The paper has one σ, and c in the middle. Since axes multiply, each may have a σ of its own; and since only g knows of
c, it may lie anywhere in the kernel: C, which says how pixels vary together wherever they are, stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.forms import Array, KernelSize, kernel_shape, kron, show_size
from filtercov.covariance.numbers import as_float
from filtercov.errors import CovarianceError

PerAxis = float | Sequence[float]


@dataclass(frozen=True)
class ClosedForm:
    """The parameters of a closed form: σ, one number or one per axis, and the centre, in pixels from the middle.

    A function of the layer may return one to `init_`, which then draws from it as fast as from a σ.

    >>> print(ClosedForm(0.5)), print(ClosedForm((0.5, 2.0), centre=(-0.5, 0.0)))
    σ = 0.5
    σ = 0.5, 2, centre -0.5, 0
    (None, None)
    """

    sigma: float | tuple[float, ...]
    centre: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        for name in ("sigma", "centre"):
            value = getattr(self, name)
            several = hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0
            each = as_float(value) is None and several and not isinstance(value, str | bytes)
            object.__setattr__(self, name, tuple(map(_plain, value)) if each else _plain(value))

    def along(self, shape: tuple[int, ...]) -> tuple[tuple[float, float], ...]:
        """Return (σ, offset) of each axis of a kernel, or say what is wrong with them.

        >>> ClosedForm(0.5, centre=(0, 1)).along((3, 5))
        ((0.5, 0.0), (0.5, 1.0))
        """
        sigmas = [check_sigma(sigma) for sigma in _each("sigma", self.sigma, shape)]
        centres = [
            _check_centre(centre, k) for centre, k in zip(_each("centre", self.centre, shape), shape, strict=True)
        ]
        return tuple(zip(sigmas, centres, strict=True))

    def __str__(self) -> str:
        """Return the parameters as a table shows them."""

        def shown(value: float | tuple[float, ...]) -> str:
            return ", ".join(map(_show, value if isinstance(value, tuple) else (value,)))

        centred = not any(self.centre) if isinstance(self.centre, tuple) else not self.centre
        return f"σ = {shown(self.sigma)}" + ("" if centred else f", centre {shown(self.centre)}")


def gaussian_covariance(kernel_size: KernelSize, sigma: PerAxis, *, centre: PerAxis = 0.0) -> Array:
    """Return the closed-form covariance Σ′ of `kernel_size` filters: (n, n) float64, flat form.

    σ is the variance parameter of the paper's Gaussians: small σ gives filters focused on their centre, large σ
    diffuse ones; it is one number, as in the paper, or one per axis. `centre` is where filters have most variance, in
    pixels from the middle of the kernel, along every axis or one number per axis. The matrix is symmetric but may have
    slightly negative eigenvalues; `symmetric_root` deals with them.

    >>> gaussian_covariance(3, 0.5).shape
    (9, 9)
    >>> gaussian_covariance(1, 2.0)
    array([[0.5]])
    >>> wide = gaussian_covariance(5, (0.2, 2.0), centre=(-1, 0))  # one row up, and wider than high
    >>> np.diag(wide).reshape(5, 5).round(2)
    array([[0.03, 0.06, 0.08, 0.06, 0.03],
           [0.3 , 0.48, 0.5 , 0.48, 0.3 ],
           [0.03, 0.06, 0.08, 0.06, 0.03],
           [0.  , 0.  , 0.  , 0.  , 0.  ],
           [0.  , 0.  , 0.  , 0.  , 0.  ]])
    """
    shape = kernel_shape(kernel_size)
    axes = ClosedForm(sigma, centre).along(shape)  # type: ignore[arg-type]
    g, G = zip(*(axis_gaussians(k, *axis) for k, axis in zip(shape, axes, strict=True)), strict=True)
    z, C = kron(g), kron(G)
    cov: Array = z[:, None] + z
    cov *= C
    cov -= z[:, None] * z
    cov *= 0.5
    return cov


def axis_gaussians(
    k: int, sigma: ArrayLike, centre: ArrayLike = 0.0, *, window: slice | None = None
) -> tuple[Array, Array]:
    """Return g (…, w) and the circulant G (…, w, w) of one axis of length k, for any batch of σ and centre.

    The window is the part of the axis that is wanted, by default all; distances wrap around the whole of it.
    """
    pixels = window or slice(0, k)
    with np.errstate(over="ignore"):  # a tiny σ sends the exponent to -inf, which is the right limit
        two_sigma = 2.0 * np.asarray(sigma, dtype=np.float64)[..., None]
        i = np.arange(pixels.start, pixels.stop, dtype=np.float64)
        apart = np.abs(i[:, None] - i)
        around = np.minimum(apart, k - apart)
        g = np.exp(-((i - (k - 1) / 2 - np.asarray(centre, dtype=np.float64)[..., None]) ** 2) / two_sigma)
        G = np.exp(-(around**2) / two_sigma[..., None])
    return g, G


def _plain(value: object) -> object:
    """Return a number of any kind as a float; anything else as it is, for `along` to refuse."""
    number = as_float(value)
    return value if number is None else number


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def check_sigma(sigma: object) -> float:
    """Return σ as a float, or raise unless it is a positive, finite number."""
    number = as_float(sigma)
    if number is None or not 0 < number < math.inf:
        raise CovarianceError(f"sigma: needed a positive, finite number, got {sigma!r}; the paper uses .08 to 6")
    return number


def _check_centre(centre: object, k: int) -> float:
    number = as_float(centre)
    if number is None or not abs(number) <= k / 2:
        raise CovarianceError(
            f"centre: needed a number of pixels from the middle, up to {k / 2:g} along an axis of {k}, got {centre!r}"
        )
    return number


def _each(what: str, value: object, shape: tuple[int, ...]) -> Sequence[object]:
    """Return one value for each axis."""
    if not isinstance(value, tuple):
        return [value] * len(shape)
    if len(value) != len(shape):
        raise CovarianceError(
            f"{what}: needed one number, or one for each of the {len(shape)} axes of {show_size(shape)} filters, got "
            f"{len(value)}"
        )
    return value
