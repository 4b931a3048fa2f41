"""Read the variance schedule off a trained model: which (σ₀, v, a) makes the closed form most like its layers.

Learned covariances come at any scale, so likeness is the cosine between two covariances as vectors; the share of the
learned one, in least squares, that a multiple of the closed form explains is its square.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Protocol

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.covariance.layer_statistics import LayerStatistics
from filtercov.covariance.likeness import SIGMAS, Likeness
from filtercov.covariance.numbers import as_float
from filtercov.errors import SourceError
from filtercov.schedule.fit_quality import FittedSchedule, judge
from filtercov.schedule.schedules import LEAST_SIGMA, QuadraticSchedule, relative_depth

# The schedule stays between these at every depth: a little inside of what QuadraticSchedule takes, which leaves room
# for rounding, and of what makes any difference, which leaves the parabola room to turn outside of it.
LOWEST, HIGHEST = 1.02 * LEAST_SIGMA, 16 * 64.0

# What makes one schedule better than another. Less is rounding, which would send σ wandering where nothing depends on
# it.
NOTICEABLE = 1e-9


class StatisticsOfLayers(Protocol):
    """The statistics of a network's layers in forward order, as `FilterStatistics` has them."""

    @property
    def layers(self) -> Sequence[LayerStatistics]: ...  # noqa: D102


def fit_schedule(statistics: StatisticsOfLayers, *, min_kernel_size: int = 5) -> FittedSchedule:
    """Return the quadratic schedule whose closed forms are, over all layers, most like a model's covariances.

    There always is a nearest one, also to noise: `fit` says how near it is, beside what chance gives, and `fit.usable`
    whether it is worth starting another network with.

    It minimises the share of the layers' covariances left unexplained, Σ (1 - cosine²), among the schedules whose σ is
    positive at every depth. Layers with kernels under `min_kernel_size` have too little structure to tell and are left
    out, but count for depth; layers without spread say nothing.

    >>> import torch
    >>> from torch import nn
    >>> import filtercov as fc
    >>> net = nn.Sequential(*(nn.Conv2d(512, 512, 9, groups=512) for _ in range(6)))
    >>> _ = fc.init_(net, fc.QuadraticSchedule(0.1, 0.4, 2.0), generator=torch.Generator().manual_seed(0))
    >>> fitted = fit_schedule(fc.FilterStatistics.from_model(net))
    >>> all(abs(fitted(d) - (0.1 + 0.4 * d + d * d)) < 0.1 for d in (0.0, 0.5, 1.0))
    True
    >>> print(fitted.fit)
    follows 6 of 6 layers (likeness 1.00 at its σ, 1.00 with each layer's own, 0.26 by chance)
    """
    _check_statistics(statistics)
    if as_float(min_kernel_size) is None:
        raise SourceError(f"fit_schedule: needed min_kernel_size to be a number, got {min_kernel_size!r}")
    count = len(statistics.layers)
    used = [(i, layer) for i, layer in enumerate(statistics.layers) if max(layer.kernel_size) >= min_kernel_size]
    if not used:
        raise SourceError(f"fit_schedule: needed a layer with a kernel of at least {min_kernel_size}, got none")
    depths = np.array([relative_depth(i, count) for i, _ in used])
    cosines = np.stack([Likeness(layer.covariance, layer.kernel_size).at_sigmas() for _, layer in used])
    sigma0, v, a = (float(x) for x in _fit(depths, 1 - np.maximum(cosines, 0.0) ** 2))
    sigmas = [QuadraticSchedule(sigma0, v, a)(float(d)) for d in depths]
    return FittedSchedule(sigma0, v, a, judge(sigmas, [layer for _, layer in used], cosines))


def _check_statistics(statistics: object) -> None:
    if not hasattr(statistics, "layers") or callable(statistics):
        raise SourceError(
            f"fit_schedule: needed FilterStatistics, got {type(statistics).__name__}; measure a model first with "
            "FilterStatistics.from_model(model), a file with FilterStatistics.from_checkpoint(path)"
        )


def _fit(depths: Array, unexplained: Array) -> Array:
    """Return the (σ₀, v, a) with the least Σ unexplained (layers, SIGMAS).

    Points are log σ at the start, the middle and the end of the network, which keeps them comparable in size. A pattern
    search starts from the least-squares parabola and from the best points of a coarse grid, because where σ does not
    follow a parabola there are several minima; all points are made usable before they are judged.
    """
    starts = np.stack([_least_squares(depths, unexplained), *_best_of_grid(depths, unexplained)])
    point, value = starts, _cost(starts, depths, unexplained)
    moves = np.array([move for move in product((-1.0, 0.0, 1.0), repeat=3) if any(move)])
    step = np.full(len(point), 0.5)
    while step.max() > 1e-4:
        tried = _usable(point[:, None] + step[:, None, None] * moves)
        costs = _cost(tried, depths, unexplained)
        best = costs.argmin(axis=1)
        rows = np.arange(len(point))
        better = costs[rows, best] < value - NOTICEABLE
        point = np.where(better[:, None], tried[rows, best], point)
        value = np.where(better, costs[rows, best], value)
        step = np.where(better, step, step / 2)
    first_among_equals = int(np.argmax(value <= value.min() + NOTICEABLE))
    return _through(np.exp(point[first_among_equals]))


def _least_squares(depths: Array, unexplained: Array) -> Array:
    """Return the point (3,) of the parabola through log σ of each layer alone; of a line through σ for two layers."""
    each = np.log(SIGMAS)[unexplained.argmin(axis=1)]
    degree = min(2, len(set(depths.tolist())) - 1)
    point = np.polynomial.Polynomial.fit(depths, each, degree)(np.array([0.0, 0.5, 1.0])) if degree else each[[0, 0, 0]]
    point = np.clip(point, np.log(SIGMAS[0]), np.log(SIGMAS[-1]))
    if degree == 1:
        point[1] = np.log(np.exp(point[[0, 2]]).mean())
    return _usable(point)


def _best_of_grid(depths: Array, unexplained: Array) -> Array:
    side = np.log(np.geomspace(SIGMAS[0], SIGMAS[-1], 16))
    grid = _usable(np.stack(np.meshgrid(side, side, side), axis=-1).reshape(-1, 3))
    best: Array = grid[np.argsort(_cost(grid, depths, unexplained), kind="stable")[:8]]
    return best


def _cost(points: Array, depths: Array, unexplained: Array) -> Array:
    """Return Σ unexplained of the schedules through `points` (..., 3); between SIGMAS it is interpolated."""
    sigma0, v, a = np.moveaxis(_through(np.exp(points)), -1, 0)[..., None]
    sigmas = sigma0 + v * depths + 0.5 * a * depths**2  # (..., layers)
    spacing = np.log(SIGMAS[-1] / SIGMAS[0]) / (len(SIGMAS) - 1)
    position = np.clip(np.log(sigmas / SIGMAS[0]) / spacing, 0, len(SIGMAS) - 1)
    below = np.minimum(position.astype(int), len(SIGMAS) - 2)
    layer = np.arange(len(depths))
    left, right = unexplained[layer, below], unexplained[layer, below + 1]
    cost: Array = (left + (position - below) * (right - left)).sum(axis=-1)
    return cost


def _usable(points: Array) -> Array:
    """Raise the middle of `points` (..., 3) where the parabola through them would fall under LOWEST in between.

    A parabola is at least zero on [0, 1] just if it is (√q₀ (1-d) ± √q₁ d)² plus a multiple ≥ 0 of d(1-d), where q₀ and
    q₁ are its ends. The lower sign gives the lowest middle, ¼ (√q₀ - √q₁)².
    """
    points = np.clip(points, np.log(LOWEST), np.log(HIGHEST))
    above = np.maximum(np.exp(points) - LOWEST, 0.0)
    least = LOWEST + 0.25 * (np.sqrt(above[..., 0]) - np.sqrt(above[..., 2])) ** 2
    return np.stack([points[..., 0], np.maximum(points[..., 1], np.log(least)), points[..., 2]], axis=-1)


def _through(sigmas: Array) -> Array:
    """Return (σ₀, v, a) of the parabola through σ (..., 3) at d = 0, ½ and 1."""
    first, middle, last = np.moveaxis(sigmas, -1, 0)
    return np.stack([first, 4 * middle - 3 * first - last, 4 * (first + last - 2 * middle)], axis=-1)
