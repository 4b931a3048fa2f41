"""σ as a function of depth: the paper's schedules and settings, and the schedule most like measured layers.

Depth d runs from 0 at the first depthwise layer to 1 at the last: d = (i-1)/(D-1) for layer i of D.

A schedule is fitted by likeness, the cosine between a covariance and the closed form, because learned covariances come
at any scale; its square is the share of the learned one, in least squares, that a multiple of the closed form explains.
Some σ is always the nearest, also to noise, so a likeness says something only beside that of independent filters of the
same number and size, see `chance_likeness`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Self

import numpy as np

from filtercov.covariance.forms import Array, as_float, whole_number
from filtercov.covariance.likeness import SIGMAS, chance_likeness, likeness
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, SourceError

# σ is in square pixels. From about 7e-4 down exp(-1/2σ) is zero, and filters are one pixel whatever σ is.
LEAST_SIGMA = 1e-4

# A fitted schedule stays between these at every depth: inside of what QuadraticSchedule takes, which leaves room for
# rounding, and far outside of what makes any difference, which leaves the parabola room to turn.
LOWEST, HIGHEST = 1.02 * LEAST_SIGMA, 16 * 64.0

# A smaller gain in likeness is rounding, which would send σ wandering where nothing depends on it.
NOTICEABLE = 1e-9

# What a schedule must do before another network is started with it: explain half of the layers' covariances, in least
# squares, and lose less than half of what each layer's own σ explains in all but a tenth of the layers.
HALF = math.sqrt(0.5)
MAY_MISS = 0.1

Schedule = Callable[[float], float]  # relative depth in [0, 1] -> σ


@dataclass(frozen=True)
class QuadraticSchedule:
    """σ(d) = σ₀ + v d + ½ a d², the paper's variance schedule.

    >>> schedule = QuadraticSchedule(0.5, 0.5, 3.0)
    >>> schedule(0.0), schedule(1.0)
    (0.5, 2.5)
    """

    sigma0: float
    v: float
    a: float

    def __post_init__(self) -> None:
        given = f"({self.sigma0!r}, {self.v!r}, {self.a!r})"
        for name in ("sigma0", "v", "a"):
            number = as_float(getattr(self, name))
            if number is None or not math.isfinite(number):
                raise CovarianceError(f"QuadraticSchedule: needed three finite numbers, got {given}")
            object.__setattr__(self, name, number)
        lowest = _lowest_sigma(self.sigma0, self.v, self.a)
        if lowest < LEAST_SIGMA:
            raise CovarianceError(
                f"QuadraticSchedule: needed σ of at least {LEAST_SIGMA:g} at every depth, got {lowest:.3g} from {given}"
            )

    def __call__(self, d: float, /) -> float:
        """σ at relative depth d in [0, 1]."""
        d = check_depth(d)
        return self.sigma0 + self.v * d + 0.5 * self.a * d * d

    def short(self) -> Self:
        """The schedule with as few decimals, four or more, as keep every σ to one percent.

        >>> QuadraticSchedule(0.1514159, 0.2482818, 0.9996123).short()
        QuadraticSchedule(sigma0=0.1514, v=0.2483, a=0.9996)
        """
        numbers = (self.sigma0, self.v, self.a)
        tolerance = 0.01 * _lowest_sigma(*numbers)
        for decimals in range(4, 10):
            few = [round(x, decimals) + 0.0 for x in numbers]  # + 0.0 turns -0.0 into 0.0
            off = [abs(x - y) for x, y in zip(few, numbers, strict=True)]
            if off[0] + off[1] + 0.5 * off[2] <= tolerance and _lowest_sigma(*few) >= LEAST_SIGMA:
                return replace(self, sigma0=few[0], v=few[1], a=few[2])
        return self


def _lowest_sigma(sigma0: float, v: float, a: float) -> float:
    """The smallest σ₀ + v d + ½ a d² for d in [0, 1]."""
    turning = min(max(-v / a, 0.0), 1.0) if a else 0.0
    return min(sigma0 + v * d + 0.5 * a * d * d for d in (0.0, turning, 1.0))


PRESETS: Mapping[str, QuadraticSchedule] = MappingProxyType(
    {
        # CIFAR-10, found by grid search on ConvMixer-256/8 with frozen 9x9 filters; 1x1 patches take about the double.
        "cifar-p2": QuadraticSchedule(0.08, 0.37, 2.9),
        "cifar-p1": QuadraticSchedule(0.16, 0.74, 5.8),
        "cifar-p1-listing": QuadraticSchedule(0.16, 0.32, 2.88),
        # ImageNet, found on ConvMixer-512/12 with 14x14 patches.
        "imagenet-thawed": QuadraticSchedule(0.15, 0.25, 1.0),
        "imagenet-frozen": QuadraticSchedule(0.15, 0.5, 0.25),
        "imagenet-third": QuadraticSchedule(0.15, 0.3, 0.5),
        # The paper's illustration of how the covariance changes with depth.
        "figure": QuadraticSchedule(0.5, 0.5, 3.0),
    }
)


@dataclass(frozen=True)
class SawtoothSchedule:
    """A schedule that starts again at each downsampling, for networks built in stages.

    `stages` counts the depthwise layers of each stage. A layer that is j-th of the m in its stage gets σ at depth
    j/(m-1), counting from 0.

    >>> saw = SawtoothSchedule(QuadraticSchedule(0.1, 1.0, 0.0), stages=(2, 3))
    >>> [round(saw(i / 4), 3) for i in range(5)]
    [0.1, 1.1, 0.1, 0.6, 1.1]
    """

    schedule: Schedule
    stages: tuple[int, ...]

    def __post_init__(self) -> None:
        stages = tuple(whole_number(count, "SawtoothSchedule: stages") for count in self.stages)
        object.__setattr__(self, "stages", stages)

    def __call__(self, d: float, /) -> float:
        """σ for the layer at relative depth d of the whole network."""
        layer = round(check_depth(d) * (sum(self.stages) - 1))
        depths = [relative_depth(i, count) for count in self.stages for i in range(count)]
        return self.schedule(depths[layer])


def relative_depth(index: int, count: int) -> float:
    """Depth d of the layer at `index`, counting from 0, among `count` layers; a single layer is at the start.

    >>> relative_depth(3, 4), relative_depth(0, 1)
    (1.0, 0.0)
    """
    return index / (count - 1) if count > 1 else 0.0


@dataclass(frozen=True)
class Layer:
    """A depthwise layer of a model in any framework, its place in forward order, and its relative depth in [0, 1]."""

    name: str
    kernel_size: tuple[int, ...]
    channels: int
    index: int
    depth: float


def check_depth(d: float) -> float:
    """The depth d as a float, if it is in [0, 1]."""
    number = as_float(d)
    if number is None or not 0.0 <= number <= 1.0:
        raise CovarianceError(f"depth: needed a number from 0 (first layer) to 1 (last layer), got {d!r}")
    return number


@dataclass(frozen=True)
class SigmaFit:
    """The σ whose closed form is most like a layer's covariance, how alike they are, and what chance gives.

    `chance` is the likeness of as many independent filters on average, and `limit` what they seldom exceed. All are nan
    where a layer has no spread or one pixel, which any σ fits.
    """

    sigma: float
    likeness: float
    chance: float
    limit: float

    @property
    def above_chance(self) -> bool:
        """Whether the layer is more like the closed form than independent filters are."""
        return self.likeness > self.limit


def fit_layer(layer: LayerStatistics, cosines: Array | None = None) -> SigmaFit:
    """The σ, to half a percent, whose closed form is most like a layer's covariance, and how good it is.

    `cosines` is the layer's likeness at every one of SIGMAS, where that is known already.

    >>> from filtercov.covariance import gaussian_covariance
    >>> fit = fit_layer(LayerStatistics("conv", (7, 7), 512, np.zeros(49), 3.0 * gaussian_covariance(7, 0.8)))
    >>> round(fit.sigma, 2), round(fit.likeness, 2), round(fit.chance, 2), fit.above_chance
    (0.8, 1.0, 0.35, True)
    """
    if not layer.covariance.any() or len(layer.mean) == 1:
        return SigmaFit(math.nan, math.nan, math.nan, math.nan)
    if cosines is None:
        cosines = likeness(layer.covariance, layer.kernel_size)
    best = int(np.argmax(cosines))
    return SigmaFit(float(SIGMAS[best]), float(cosines[best]), *chance_likeness(layer.kernel_size, layer.count))


@dataclass(frozen=True)
class ScheduleFit:
    """How well one schedule serves many layers: `layers` are their own fits, `along` their likeness at its σ.

    Likeness over layers is the root of the mean square, which is what the fit maximises.
    """

    layers: tuple[SigmaFit, ...]
    along: tuple[float, ...]

    @property
    def likeness(self) -> float:
        """The likeness of the layers to the closed form at the schedule's σ."""
        return _root_mean_square(self.along)

    @property
    def attainable(self) -> float:
        """The same with each layer's own σ, which no schedule can exceed."""
        return _root_mean_square([fit.likeness for fit in self.layers])

    @property
    def chance(self) -> float:
        """The same for layers of independent filters, each with its own σ."""
        return _root_mean_square([fit.chance for fit in self.layers])

    @property
    def above_chance(self) -> int:
        """How many layers are more like the closed form, at their own σ, than independent filters are."""
        return sum(fit.above_chance for fit in self.layers)

    @property
    def missed(self) -> int:
        """How many layers the schedule explains less than half as much of as their own σ, or no more than chance."""
        needed = [max(fit.limit, HALF * fit.likeness) for fit in self.layers]
        return sum(not along > least for along, least in zip(self.along, needed, strict=True))

    @property
    def usable(self) -> bool:
        """Whether the schedule says enough about these layers to start another network with it."""
        return self.likeness >= HALF and self.missed <= MAY_MISS * len(self.layers)

    def __str__(self) -> str:
        """The finding in one sentence."""
        count = len(self.layers)
        if not count:
            return "no layer has filters that vary"
        if self.above_chance <= count / 2:
            more = f"{self.above_chance} of {count} layers are" if self.above_chance else "no layer is"
            finding = f"noise: {more} more like the closed form than independent filters"
        elif self.missed > MAY_MISS * count:
            finding = f"no schedule: the nearest misses {self.missed} of {count} layers"
        elif self.likeness < HALF:
            finding = f"not the closed form: it explains {self.likeness**2:.0%} of the covariances"
        else:
            finding = f"follows {count - self.missed} of {count} layers"
        own, chance = f"{self.attainable:.2f} with each layer's own", f"{self.chance:.2f} by chance"
        return f"{finding} (likeness {self.likeness:.2f} at its σ, {own}, {chance})"


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values)) if values else math.nan


@dataclass(frozen=True, repr=False)
class FittedSchedule(QuadraticSchedule):
    """A quadratic schedule that was read off layers, and `fit`, how well it describes them."""

    fit: ScheduleFit = field(compare=False)

    def __repr__(self) -> str:
        return f"<{self.sigma0:.4g} + {self.v:.4g} d + ½ {self.a:.4g} d², fitted; {self.fit}>"


def fit_schedule(statistics: Iterable[LayerStatistics], *, min_kernel_size: int = 5) -> FittedSchedule:
    """The quadratic schedule whose closed forms are, over all layers, most like a model's covariances.

    `statistics` are `FilterStatistics`, or the statistics of layers in forward order. There always is a nearest
    schedule, also to noise: `fit` says how near it is, beside what chance gives, and `fit.usable` whether it is worth
    starting another network with. It minimises the share of the layers' covariances left unexplained, Σ (1 - cosine²),
    among the schedules whose σ is positive at every depth. Layers with kernels under `min_kernel_size` have too little
    structure to tell and are left out, but count for depth; layers without spread say nothing.

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
    measured = list(statistics) if isinstance(statistics, Iterable) else []
    if not measured or not all(isinstance(layer, LayerStatistics) for layer in measured):
        raise SourceError(
            f"fit_schedule: needed FilterStatistics, got {type(statistics).__name__}; measure a model first with "
            "FilterStatistics.from_model(model), a file with FilterStatistics.from_checkpoint(path)"
        )
    by_depth = [(relative_depth(i, len(measured)), layer) for i, layer in enumerate(measured)]
    layers = [(d, layer) for d, layer in by_depth if max(layer.kernel_size) >= min_kernel_size]
    if not layers:
        raise SourceError(f"fit_schedule: needed a layer with a kernel of at least {min_kernel_size}, got none")
    cosines = np.stack([likeness(layer.covariance, layer.kernel_size) for _, layer in layers])
    found = _search(np.array([d for d, _ in layers]), 1 - np.maximum(cosines, 0.0) ** 2)
    schedule = QuadraticSchedule(*found.tolist())
    own, along = [], []
    for (d, layer), of_layer in zip(layers, cosines, strict=True):
        fit = fit_layer(layer, of_layer)
        if not math.isnan(fit.sigma):  # the others have no spread
            own.append(fit)
            along.append(float(likeness(layer.covariance, layer.kernel_size, schedule(d))[0]))
    return FittedSchedule(schedule.sigma0, schedule.v, schedule.a, ScheduleFit(tuple(own), tuple(along)))


def _search(depths: Array, unexplained: Array) -> Array:
    """The (σ₀, v, a) with the least Σ unexplained (layers, SIGMAS).

    Points are log σ at the start, the middle and the end of the network, which keeps them comparable in size. A pattern
    search starts from the least-squares parabola and from the best points of a coarse grid, because where σ does not
    follow a parabola there are several minima; all points are made usable before they are judged.
    """
    side = np.log(np.geomspace(SIGMAS[0], SIGMAS[-1], 16))
    grid = _usable(np.stack(np.meshgrid(side, side, side), axis=-1).reshape(-1, 3))
    best_of_grid = grid[np.argsort(_cost(grid, depths, unexplained), kind="stable")[:8]]
    point = np.stack([_least_squares(depths, unexplained), *best_of_grid])
    value = _cost(point, depths, unexplained)
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
    """The point (3,) of the parabola through log σ of each layer alone; of a line through σ for two layers."""
    each = np.log(SIGMAS)[unexplained.argmin(axis=1)]
    degree = min(2, len(set(depths.tolist())) - 1)
    point = np.polynomial.Polynomial.fit(depths, each, degree)(np.array([0.0, 0.5, 1.0])) if degree else each[[0, 0, 0]]
    point = np.clip(point, np.log(SIGMAS[0]), np.log(SIGMAS[-1]))
    if degree == 1:
        point[1] = np.log(np.exp(point[[0, 2]]).mean())
    return _usable(point)


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
