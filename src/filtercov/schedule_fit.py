"""Read the variance schedule off a trained model: which σ, and which (σ₀, v, a), make the closed form most like it.

Learned covariances come at any scale, so likeness is the cosine between two covariances as vectors: the share of the
learned one, in least squares, that a multiple of the closed form explains is its square.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.covariance.forms import Array, KernelSize, as_covariance
from filtercov.errors import SourceError
from filtercov.schedule import QuadraticSchedule, relative_depth

if TYPE_CHECKING:
    from filtercov.statistics import FilterStatistics

# Every σ the paper used, with room on both sides; beyond 64 the closed form of a 31x31 filter hardly changes.
SIGMAS: Array = np.geomspace(0.02, 64.0, 160)


def likeness(cov: ArrayLike, kernel_size: KernelSize, sigma: float) -> float:
    """Return the cosine between a covariance and the closed form at σ: 1 if they are multiples of each other."""
    matrix = as_covariance(cov, kernel_size=kernel_size)
    closed = gaussian_covariance(kernel_size, sigma)
    norms = np.linalg.norm(matrix) * np.linalg.norm(closed)
    return float(np.vdot(matrix, closed) / norms) if norms else 0.0


def fit_sigma(cov: ArrayLike, kernel_size: KernelSize) -> float:
    """Return the σ whose closed form is most like a covariance (n, n).

    >>> round(fit_sigma(3.0 * gaussian_covariance(7, 0.8), 7), 4)
    0.8
    """
    matrix = as_covariance(cov, kernel_size=kernel_size)
    best = int(np.argmax([likeness(matrix, kernel_size, s) for s in SIGMAS]))
    low, high = np.log(SIGMAS[max(best - 1, 0)]), np.log(SIGMAS[min(best + 1, len(SIGMAS) - 1)])
    golden = (np.sqrt(5) - 1) / 2
    while high - low > 1e-6:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if likeness(matrix, kernel_size, float(np.exp(left))) < likeness(matrix, kernel_size, float(np.exp(right))):
            low = left
        else:
            high = right
    return float(np.exp((low + high) / 2))


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
    unexplained = _unexplained([(layer.kernel_size, layer.covariance) for _, layer in used])
    depths = np.array([relative_depth(i, count) for i, _ in used])
    best = _fit(depths, unexplained)
    return QuadraticSchedule(*(float(x) for x in best))


def _unexplained(layers: list[tuple[tuple[int, ...], Array]]) -> Array:
    """Return the share of each layer's covariance that no multiple of the closed form explains, at each of `SIGMAS`."""
    cosines = np.zeros((len(layers), len(SIGMAS)))
    norms = np.array([np.linalg.norm(cov) for _, cov in layers])
    for size in {size for size, _ in layers}:
        rows = [row for row, (other, _) in enumerate(layers) if other == size and norms[row]]
        for column, sigma in enumerate(SIGMAS):
            closed = gaussian_covariance(size, float(sigma))
            closed /= np.linalg.norm(closed)
            cosines[rows, column] = [np.vdot(closed, layers[row][1]) / norms[row] for row in rows]
    return 1 - np.maximum(cosines, 0.0) ** 2


def _finer(logs: Array, rows: Array, steps: int = 20) -> tuple[Array, Array]:
    """Return evenly spaced `logs`, and rows of values over them, `steps` times as fine: cubics through four points."""
    t = np.arange(steps) / steps
    weights = [
        -t * (t - 1) * (t - 2) / 6,
        (t + 1) * (t - 1) * (t - 2) / 2,
        -(t + 1) * t * (t - 2) / 2,
        (t + 1) * t * (t - 1) / 6,
    ]
    cells = rows.shape[1] - 3
    fine = sum(w * rows[:, k : k + cells, None] for k, w in enumerate(weights))
    positions = logs[1:-2, None] + t * (logs[1] - logs[0])
    return positions.ravel(), np.asarray(fine).reshape(len(rows), -1)


def _fit(depths: Array, unexplained: Array) -> Array:
    """Return the (σ₀, v, a) with the least Σ unexplained, by pattern search from the least-squares parabola.

    The search moves σ at the start, the middle and the end of the network, by factors: that keeps σ positive there, and
    with it the parameters comparable in size.
    """
    logs, rows = _finer(np.log(SIGMAS), unexplained)

    def cost(ends: Array) -> float:
        sigma0, v, a = _through(np.exp(ends))
        sigmas = sigma0 + v * depths + 0.5 * a * depths**2
        lowest = min(sigma0 + v * d + 0.5 * a * d * d for d in np.linspace(0, 1, 65))
        if lowest <= 0:
            return float("inf")
        at = np.log(sigmas)
        return float(sum(np.interp(x, logs, row) for x, row in zip(at, rows, strict=True)))

    each = np.exp(logs[rows.argmin(axis=1)])
    degree = min(2, len(set(depths.tolist())) - 1)
    parabola = np.polynomial.Polynomial.fit(depths, np.log(each), degree) if degree else None
    start = np.log(each[0]) * np.ones(3) if parabola is None else parabola(np.array([0.0, 0.5, 1.0]))
    point = np.clip(start, logs[0], logs[-1])
    moves = [m for m in np.array(np.meshgrid(*[[-1, 0, 1]] * 3)).reshape(3, -1).T if m.any()]
    value, step = cost(point), 0.5
    while step > 1e-4:
        value_, move = min(((cost(point + step * m), i) for i, m in enumerate(moves)), key=lambda pair: pair[0])
        if value_ < value:
            value, point = value_, point + step * moves[move]
        else:
            step /= 2
    return _through(np.exp(point))


def _through(sigmas: Array) -> Array:
    """Return (σ₀, v, a) of the parabola through σ at d = 0, ½ and 1."""
    first, middle, last = sigmas
    return np.array([first, 4 * middle - 3 * first - last, 4 * (first + last - 2 * middle)])
