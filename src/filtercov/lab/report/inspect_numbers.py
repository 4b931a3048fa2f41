"""What `filtercov inspect` measures of a layer, alone and beside the layer of another target."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.covariance.forms import Array
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, SourceError
from filtercov.lab.report.inspect_target import Target
from filtercov.lab.report.pictures import shown_size
from filtercov.schedule import SigmaFit, fit_layer
from filtercov.structure import Number, centredness, kronecker_residual, spectrum, structure_of_layer


@dataclass(frozen=True, eq=False)
class LayerNumbers:
    """One layer, measured; nan in its `numbers` stands for what its covariance does not determine.

    `other` is the layer of another target at this depth, with which it is compared: `cosine` is that between the two
    covariances as vectors, 1 if one is a multiple of the other; `scale` is the root-mean-square size of the other's
    weights over this one's, their means left out.
    """

    statistics: LayerStatistics
    index: int
    fit: SigmaFit
    closed_form: Array  # at the best σ, at the scale where it is nearest to the covariance; zeros without a σ
    effective_rank: Number
    numbers: dict[str, float]
    other: LayerNumbers | None = None
    resized: bool = False  # the other, to this layer's kernel

    @property
    def name(self) -> str:
        """The layer's name in its model."""
        return self.statistics.name

    @property
    def size(self) -> str:
        """The size of its filters in words."""
        return shown_size(self.statistics.kernel_size)

    def as_json(self) -> dict[str, Any]:
        """Every number, null where one is not determined."""
        rank = self.effective_rank
        numbers = {name: value if math.isfinite(value) else None for name, value in self.numbers.items()}
        compared = {name: numbers.pop(name) for name in ("cosine", "scale") if self.other}
        found: dict[str, Any] = {
            "name": self.name,
            "kernel_size": list(self.statistics.kernel_size),
            "filters": self.statistics.count,
            **numbers,
            "effective_rank": {"value": rank.value, "chance": rank.chance, "beyond_chance": rank.beyond_chance},
            "eigenvalues": spectrum(self.statistics.covariance).tolist(),
        }
        if self.other:
            theirs = {"other": self.other.name, "resized": self.resized}
            found["comparison"] = {**theirs, **compared, "sigma": self.other.as_json()["sigma"]}
        return found


def show(value: float | None, *, digits: int = 2) -> str:
    """A number as pages show it, a dash where there is none.

    >>> show(-0.5), show(-0.0001), show(math.nan), show(None)
    ('−0.50', '0.00', '–', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def measure_layer(layer: LayerStatistics, index: int, depth: float) -> LayerNumbers:
    """Measure the layer with an index at a relative depth."""
    cov, size, fit = layer.covariance, layer.kernel_size, fit_layer(layer)
    closed: Array = np.zeros_like(cov)
    if not math.isnan(fit.sigma):
        shape = gaussian_covariance(size, fit.sigma)
        closed = float(np.vdot(shape, cov) / np.vdot(shape, shape)) * shape
    mean, spread = float(layer.mean @ layer.mean), float(np.trace(cov))
    numbers = {
        "depth": depth,
        "sigma": fit.sigma,
        "likeness": fit.likeness,
        "chance_likeness": fit.chance,
        "centredness": centredness(cov, size),
        "kronecker_residual": kronecker_residual(cov, size),
        "mean_share": mean / (mean + spread) if mean + spread else math.nan,
    }
    return LayerNumbers(layer, index, fit, closed, structure_of_layer(layer).effective_rank, numbers)


def compare_layer(layer: LayerNumbers, against: Target) -> LayerNumbers:
    """The layer beside that of another target at its depth."""
    depth, size = layer.numbers["depth"], layer.statistics.kernel_size
    try:
        other = against.statistics.at(depth, size)
    except CovarianceError as error:
        raise SourceError(
            f"{against.label}: cannot be compared with {layer.name}, which has {layer.size} filters ({error})"
        ) from None
    own, theirs = layer.statistics.covariance, other.covariance
    norms, spread = float(np.linalg.norm(own) * np.linalg.norm(theirs)), float(np.trace(own))
    compared = {
        "cosine": float(np.vdot(own, theirs)) / norms if norms else math.nan,
        "scale": math.sqrt(max(float(np.trace(theirs)), 0.0) / spread) if spread else math.nan,
    }
    layers = against.statistics.layers
    return replace(
        layer,
        numbers=layer.numbers | compared,
        other=measure_layer(other, layer.index, depth),
        resized=layers[round(depth * (len(layers) - 1))].kernel_size != size,
    )
