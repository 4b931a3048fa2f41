"""Read the variance schedule off a trained model: which σ, and which (σ₀, v, a), make the closed form most like it.

Learned covariances come at any scale, so likeness is the cosine between two covariances as vectors; the share of the
learned one, in least squares, that a multiple of the closed form explains is its square.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.forms import Array, KernelSize
from filtercov.covariance.likeness import likeness
from filtercov.errors import SourceError
from filtercov.schedule import QuadraticSchedule, relative_depth

if TYPE_CHECKING:
    from filtercov.statistics import FilterStatistics

# Every σ the paper used, with room on both sides; beyond 64 the closed form of a 31x31 filter hardly changes.
SIGMAS: Array = np.geomspace(0.02, 64.0, 2000)


def fit_sigma(cov: ArrayLike, kernel_size: KernelSize) -> float:
    """Return the σ, to half a percent, whose closed form is most like a covariance (n, n).

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> round(fit_sigma(3.0 * gaussian_covariance(7, 0.8), 7), 2)
    0.8
    """
    return float(SIGMAS[np.argmax(likeness(cov, kernel_size, SIGMAS))])


def fit_schedule(statistics: FilterStatistics, *, min_kernel_size: int = 5) -> QuadraticSchedule:
    """Return the quadratic schedule whose closed forms are, over all layers, most like a model's covariances.

    It minimises the share of the layers' covariances left unexplained, Σ (1 - cosine²). Layers with kernels under
    `min_kernel_size` have too little structure to tell and are left out, but count for depth.

    >>> import torch
    >>> from torch import nn
    >>> import filtercov as fc
    >>> net = nn.Sequential(*(nn.Conv2d(512, 512, 9, groups=512) for _ in range(6)))
    >>> _ = fc.init_(net, fc.QuadraticSchedule(0.1, 0.4, 2.0), generator=torch.Generator().manual_seed(0))
    >>> fitted = fit_schedule(fc.FilterStatistics.from_model(net))
    >>> all(abs(fitted(d) - (0.1 + 0.4 * d + d * d)) < 0.1 for d in (0.0, 0.5, 1.0))
    True
    """
    count = len(statistics.layers)
    used = [(i, layer) for i, layer in enumerate(statistics.layers) if max(layer.kernel_size) >= min_kernel_size]
    if not used:
        raise SourceError(f"fit_schedule: needed a layer with a kernel of at least {min_kernel_size}, got none")
    depths = np.array([relative_depth(i, count) for i, _ in used])
    cosines = np.stack([likeness(layer.covariance, layer.kernel_size, SIGMAS) for _, layer in used])
    return QuadraticSchedule(*(float(x) for x in _fit(depths, 1 - np.maximum(cosines, 0.0) ** 2)))


def _fit(depths: Array, unexplained: Array) -> Array:
    """Return the (σ₀, v, a) with the least Σ unexplained, by pattern search from the least-squares parabola.

    The search moves log σ at the start, the middle and the end of the network, which keeps σ positive there and the
    parameters comparable in size.
    """
    logs = np.log(SIGMAS)

    def cost(point: Array) -> float:
        sigma0, v, a = _through(np.exp(point))
        grid = np.linspace(0, 1, 65)
        if (sigma0 + v * grid + 0.5 * a * grid**2).min() <= 0:
            return float("inf")
        at = np.log(sigma0 + v * depths + 0.5 * a * depths**2)
        return float(sum(np.interp(x, logs, row) for x, row in zip(at, unexplained, strict=True)))

    each = logs[unexplained.argmin(axis=1)]
    degree = min(2, len(set(depths.tolist())) - 1)
    parabola = np.polynomial.Polynomial.fit(depths, each, degree) if degree else None
    start = np.full(3, each[0]) if parabola is None else parabola(np.array([0.0, 0.5, 1.0]))
    point = np.clip(start, logs[0], logs[-1])
    moves = [m for m in np.array(np.meshgrid(*[[-1, 0, 1]] * 3)).reshape(3, -1).T if m.any()]
    value, step = cost(point), 0.5
    while step > 1e-3:
        costs = [cost(point + step * move) for move in moves]
        best = int(np.argmin(costs))
        if costs[best] < value:
            value, point = costs[best], point + step * moves[best]
        else:
            step /= 2
    return _through(np.exp(point))


def _through(sigmas: Array) -> Array:
    """Return (σ₀, v, a) of the parabola through σ at d = 0, ½ and 1."""
    first, middle, last = sigmas
    return np.array([first, 4 * middle - 3 * first - last, 4 * (first + last - 2 * middle)])
