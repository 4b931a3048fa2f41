"""How good a fit of σ is: for one layer, and for a schedule across layers, beside what chance would give.

Likeness is the cosine between a covariance and the closed form; of a schedule, the root of the mean square over layers,
which is what the fit maximises. Some σ is always the nearest, also to noise, so a likeness says something only beside
that of independent filters of the same number and size, see `chance_likeness`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.covariance.layer_statistics import LayerStatistics
from filtercov.covariance.likeness import SIGMAS, Likeness, chance_likeness, likeness
from filtercov.schedule.schedules import QuadraticSchedule

# What a schedule must do before another network is started with it: explain half of the layers' covariances, in least
# squares, and lose less than half of what each layer's own σ explains in all but a tenth of the layers.
HALF = math.sqrt(0.5)
MAY_MISS = 0.1


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


def fit_layer(layer: LayerStatistics) -> SigmaFit:
    """Return the σ, to half a percent, whose closed form is most like a layer's covariance, and how good it is.

    >>> from filtercov.covariance.closed_form import gaussian_covariance
    >>> fit = fit_layer(LayerStatistics("conv", (7, 7), 512, np.zeros(49), 3.0 * gaussian_covariance(7, 0.8)))
    >>> round(fit.sigma, 2), round(fit.likeness, 2), round(fit.chance, 2), fit.above_chance
    (0.8, 1.0, 0.35, True)
    """
    return _best_of(Likeness(layer.covariance, layer.kernel_size).at_sigmas(), layer)


def _best_of(cosines: Array, layer: LayerStatistics) -> SigmaFit:
    if not layer.covariance.any() or len(layer.mean) == 1:
        return SigmaFit(math.nan, math.nan, math.nan, math.nan)
    best = int(np.argmax(cosines))
    return SigmaFit(float(SIGMAS[best]), float(cosines[best]), *chance_likeness(layer.kernel_size, layer.count))


@dataclass(frozen=True)
class ScheduleFit:
    """How well one schedule serves many layers: `layers` are their own fits, `along` their likeness at its σ."""

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
        return sum(
            not along > max(fit.limit, HALF * fit.likeness) for fit, along in zip(self.layers, self.along, strict=True)
        )

    @property
    def usable(self) -> bool:
        """Whether the schedule says enough about these layers to start another network with it."""
        return self.likeness >= HALF and self.missed <= MAY_MISS * len(self.layers)

    def __str__(self) -> str:
        """Return the finding in one sentence."""
        count = len(self.layers)
        numbers = (
            f"likeness {self.likeness:.2f} at its σ, {self.attainable:.2f} with each layer's own, {self.chance:.2f} by "
            "chance"
        )
        if not count:
            return "no layer has filters that vary"
        if self.above_chance <= count / 2:
            more = f"{self.above_chance} of {count} layers are" if self.above_chance else "no layer is"
            return f"noise: {more} more like the closed form than independent filters ({numbers})"
        if self.missed > MAY_MISS * count:
            return f"no schedule: the nearest misses {self.missed} of {count} layers ({numbers})"
        if self.likeness < HALF:
            return f"not the closed form: it explains {self.likeness**2:.0%} of the covariances ({numbers})"
        few = ", which any three layers come near to" if count <= 3 else ""
        return f"follows {count - self.missed} of {count} layers{few} ({numbers})"


def judge(sigmas: Sequence[float], layers: Sequence[LayerStatistics], cosines: Array) -> ScheduleFit:
    """Return how well a schedule's `sigmas` serve layers, whose likeness at SIGMAS is `cosines` (layers, SIGMAS).

    Layers without spread are left out.
    """
    alone = [_best_of(row, layer) for row, layer in zip(cosines, layers, strict=True)]
    telling = [i for i, fit in enumerate(alone) if not math.isnan(fit.sigma)]
    along = [float(likeness(layers[i].covariance, layers[i].kernel_size, sigmas[i])[0]) for i in telling]
    return ScheduleFit(tuple(alone[i] for i in telling), tuple(along))


@dataclass(frozen=True, repr=False)
class FittedSchedule(QuadraticSchedule):
    """A quadratic schedule that was read off layers, and `fit`, how well it describes them."""

    fit: ScheduleFit = field(compare=False)

    def short(self) -> FittedSchedule:
        """Return the schedule with as few decimals, four or more, as keep every σ to one percent."""
        few = QuadraticSchedule(self.sigma0, self.v, self.a).short()
        return replace(self, sigma0=few.sigma0, v=few.v, a=few.a)

    def __repr__(self) -> str:
        return f"<{self.sigma0:.4g} + {self.v:.4g} d + ½ {self.a:.4g} d², fitted; {self.fit}>"


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values)) if values else math.nan
