"""What `filtercov inspect` measures of a layer, alone and beside the layer of another target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.covariance.forms import Array, show_size
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, SourceError
from filtercov.lab.report.inspect_target import Target
from filtercov.lab.report.pictures import SHOWN, sampled
from filtercov.printable import counted
from filtercov.schedule import fit_layer
from filtercov.structure import Number, centredness, kronecker_residual, spectrum, structure_of_layer


@dataclass(frozen=True, eq=False)
class LayerNumbers:
    """One layer, measured; nan stands for what its covariance does not determine."""

    statistics: LayerStatistics
    index: int
    depth: float
    sigma: float
    likeness: float
    chance_likeness: float
    closed_form: Array  # at the best σ, at the scale where it is nearest to the covariance; zeros without a σ
    effective_rank: Number
    centredness: float
    kronecker_residual: float
    mean_share: float
    above_chance: bool

    @property
    def name(self) -> str:
        """The layer's name in its model."""
        return self.statistics.name

    @property
    def kernel_size(self) -> tuple[int, ...]:
        """The size of its filters."""
        return self.statistics.kernel_size

    @property
    def size(self) -> str:
        """The size of its filters in words."""
        return show_size(self.kernel_size).replace("x", "×")

    def as_json(self) -> dict[str, Any]:
        """Every number, null where one is not determined."""
        names = ("depth", "sigma", "likeness", "chance_likeness", "centredness", "kronecker_residual", "mean_share")
        rank = self.effective_rank
        return {
            "name": self.name,
            "kernel_size": list(self.kernel_size),
            "filters": self.statistics.count,
            **{name: _finite(getattr(self, name)) for name in names},
            "effective_rank": {"value": rank.value, "chance": rank.chance, "beyond_chance": rank.beyond_chance},
            "eigenvalues": spectrum(self.statistics.covariance).tolist(),
        }


@dataclass(frozen=True, eq=False)
class LayerComparison:
    """The layer of another target at the same depth, resized to this layer's kernel, and how alike they are.

    `cosine` is that between the two covariances as vectors, 1 if one is a multiple of the other; `scale` is the
    root-mean-square size of the other's weights over this one's, their means left out.
    """

    other: LayerNumbers
    resized: bool
    cosine: float
    scale: float

    def as_json(self) -> dict[str, Any]:
        """Every number shown."""
        numbers = {"cosine": self.cosine, "scale": self.scale, "sigma": self.other.sigma}
        return {"other": self.other.name, "resized": self.resized} | {k: _finite(x) for k, x in numbers.items()}


def shown_filters(layer: LayerNumbers, target: Target, rng: np.random.Generator) -> tuple[str, Array]:
    """The strongest filters of a layer with a caption, or drawn ones where there are statistics alone."""
    filters = target.filters.get(layer.name)
    if filters is None:
        drawn = sampled(layer.statistics.covariance, layer.kernel_size, rng, mean=layer.statistics.mean)
        return "filters drawn from the statistics, which hold none", drawn
    power = np.square(filters).sum(axis=tuple(range(1, filters.ndim)))
    strongest = filters[np.argsort(-power, kind="stable")[:SHOWN]]
    return f"strongest {counted(len(strongest), 'filter')}, each on its own scale", strongest


def show(value: float | None, *, digits: int = 2) -> str:
    """A number as pages show it, a dash where there is none.

    >>> show(-0.5), show(-0.0001), show(math.nan), show(None)
    ('−0.50', '0.00', '–', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _finite(value: float) -> float | None:
    """A number as JSON can hold it: nan and infinities become null."""
    return value if math.isfinite(value) else None


def measure_layer(layer: LayerStatistics, index: int, depth: float) -> LayerNumbers:
    """Measure the layer with an index at a relative depth."""
    cov, size = layer.covariance, layer.kernel_size
    fit = fit_layer(layer)
    closed: Array = np.zeros_like(cov)
    if not math.isnan(fit.sigma):
        shape = gaussian_covariance(size, fit.sigma)
        closed = float(np.vdot(shape, cov) / np.vdot(shape, shape)) * shape
    mean_power, spread = float(layer.mean @ layer.mean), float(np.trace(cov))
    return LayerNumbers(
        statistics=layer,
        index=index,
        depth=depth,
        sigma=fit.sigma,
        likeness=fit.likeness,
        chance_likeness=fit.chance,
        closed_form=closed,
        effective_rank=structure_of_layer(layer).effective_rank,
        centredness=centredness(cov, size),
        kronecker_residual=kronecker_residual(cov, size),
        mean_share=mean_power / (mean_power + spread) if mean_power + spread else math.nan,
        above_chance=fit.above_chance,
    )


def compare_layer(layer: LayerNumbers, against: Target) -> LayerComparison:
    """Compare a layer with that of another target at its depth."""
    try:
        other = against.statistics.at(layer.depth, layer.kernel_size)
    except CovarianceError as error:
        raise SourceError(
            f"{against.label}: cannot be compared with {layer.name}, which has {layer.size} filters ({error})"
        ) from None
    own, theirs = layer.statistics.covariance, other.covariance
    norms, spread = float(np.linalg.norm(own) * np.linalg.norm(theirs)), float(np.trace(own))
    layers = against.statistics.layers
    nearest = layers[round(layer.depth * (len(layers) - 1))]
    return LayerComparison(
        other=measure_layer(other, layer.index, layer.depth),
        resized=nearest.kernel_size != layer.kernel_size,
        cosine=float(np.vdot(own, theirs)) / norms if norms else math.nan,
        scale=math.sqrt(max(float(np.trace(theirs)), 0.0) / spread) if spread else math.nan,
    )
