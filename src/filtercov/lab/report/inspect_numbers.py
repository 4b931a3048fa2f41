"""Everything `filtercov inspect` measures: each layer's structure, σ across depth, and two targets layer by layer."""

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
from filtercov.schedule import FittedSchedule, fit_layer, fit_schedule, relative_depth
from filtercov.statistics.receptive_field import ReceptiveField
from filtercov.structure import Number, Structure, centredness, kronecker_residual, spectrum, structure_of_layer


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
    centredness: float
    kronecker_residual: float
    mean_share: float
    above_chance: bool
    structure: Structure

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

    @property
    def pixel_variance(self) -> Array:
        """The variance of each pixel, as a filter."""
        return np.diagonal(self.statistics.covariance).reshape(self.kernel_size)

    def as_json(self) -> dict[str, Any]:
        """Every number, null where one is not determined."""
        names = ("depth", "sigma", "likeness", "chance_likeness", "centredness", "kronecker_residual", "mean_share")
        return {
            "name": self.name,
            "kernel_size": list(self.kernel_size),
            "filters": self.statistics.count,
            **{name: number_or_none(getattr(self, name)) for name in names},
            "pixel_variance": self.pixel_variance.tolist(),
            "eigenvalues": spectrum(self.statistics.covariance).tolist(),
            "closed_form_eigenvalues": spectrum(self.closed_form).tolist(),
            "structure": _structure_json(self.structure),
        }


@dataclass(frozen=True, eq=False)
class Inspection:
    """A target, measured: its layers in forward order and the schedule fitted to them, None where none can be."""

    target: Target
    layers: tuple[LayerNumbers, ...]
    schedule: FittedSchedule | None

    @property
    def too_wide(self) -> bool:
        """Whether the schedule's σ exceeds the side of a kernel anywhere: then its filters would be nearly flat."""
        if self.schedule is None:
            return False
        return any(self.schedule(layer.depth) > max(layer.kernel_size) for layer in self.layers)

    def paste_line(self) -> str:
        """Return the Python that initialises another model with the fitted schedule, '' where that is not sane."""
        if self.schedule is None or not self.schedule.fit.usable or self.too_wide:
            return ""
        s = self.schedule.short()
        return f"filtercov.init_(model, filtercov.QuadraticSchedule({s.sigma0!r}, {s.v!r}, {s.a!r}))"

    def as_json(self) -> dict[str, Any]:
        """Every number of the page."""
        return {
            "target": self.target.label,
            "kind": self.target.kind,
            "notes": list(self.target.notes),
            "schedule": None if self.schedule is None else self._schedule_json(self.schedule),
            "receptive_field": field_json(self.target.field),
            "layers": [layer.as_json() for layer in self.layers],
        }

    def _schedule_json(self, schedule: FittedSchedule) -> dict[str, Any]:
        fit = schedule.fit
        return {
            "sigma0": schedule.sigma0,
            "v": schedule.v,
            "a": schedule.a,
            "likeness": number_or_none(fit.likeness),
            "attainable_likeness": number_or_none(fit.attainable),
            "chance_likeness": number_or_none(fit.chance),
            "layers": len(fit.layers),
            "missed": fit.missed,
            "usable": bool(self.paste_line()),
            "finding": str(fit),
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
        return {
            "other": self.other.name,
            "resized": self.resized,
            "cosine": number_or_none(self.cosine),
            "scale": number_or_none(self.scale),
            "sigma": number_or_none(self.other.sigma),
        }


def measure_target(target: Target) -> Inspection:
    """Measure every depthwise layer of a target.

    >>> from torch import nn
    >>> from filtercov.lab.report.inspect_target import model_target
    >>> inspection = measure_target(model_target(nn.Conv2d(64, 64, 7, groups=64), "one layer"))
    >>> inspection.layers[0].kernel_size
    (7, 7)
    """
    layers = target.statistics.layers
    numbers = tuple(_measure(layer, i, relative_depth(i, len(layers))) for i, layer in enumerate(layers))
    return Inspection(target, numbers, _fitted(target))


def compare_targets(inspection: Inspection, against: Target) -> tuple[LayerComparison, ...]:
    """For every layer of the first target the second one's at that depth, and how alike the two are."""
    return tuple(_compare(layer, against) for layer in inspection.layers)


def show(value: float | None, *, digits: int = 2) -> str:
    """Return a number as pages show it, a dash where there is none.

    >>> show(-0.5), show(-0.0001), show(math.nan), show(None)
    ('−0.50', '0.00', '–', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def number_or_none(value: float) -> float | None:
    """Return a number as JSON can hold it: nan and infinities become null."""
    return value if math.isfinite(value) else None


def field_json(field: ReceptiveField | None) -> dict[str, Any] | None:
    """Return the numbers of an effective receptive field, without its picture."""
    if field is None:
        return None
    return {
        "layer": field.layer,
        "size": list(field.shares.shape),
        "centre": list(field.centre),
        "widest": field.widest,
        "radius": _number_json(field.radius),
    }


def _structure_json(structure: Structure) -> dict[str, Any]:
    numbers = {name: _number_json(number) for name, number in structure.numbers().items()}
    return {**numbers, "types": None if structure.types is None else dict(structure.types)}


def _number_json(number: Number) -> dict[str, Any]:
    described: dict[str, Any] = {"value": number.value, "chance": number.chance, "beyond_chance": number.beyond_chance}
    if number.low is not None:
        described["range_of_chance"] = [number.low, number.high]
    return {**described, "reason": number.reason} if number.reason else described


def _fitted(target: Target) -> FittedSchedule | None:
    try:
        schedule = fit_schedule(target.statistics)
    except SourceError:  # no kernel is large enough to tell a σ
        return None
    return schedule if schedule.fit.layers else None  # to filters that do not vary any schedule is as near


def _measure(layer: LayerStatistics, index: int, depth: float) -> LayerNumbers:
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
        centredness=centredness(cov, size),
        kronecker_residual=kronecker_residual(cov, size),
        mean_share=mean_power / (mean_power + spread) if mean_power + spread else math.nan,
        above_chance=fit.above_chance,
        structure=structure_of_layer(layer),
    )


def _compare(layer: LayerNumbers, against: Target) -> LayerComparison:
    try:
        other = against.statistics.at(layer.depth, layer.kernel_size)
    except CovarianceError as error:
        raise SourceError(
            f"{against.label}: cannot be compared with {layer.name}, which has {layer.size} filters ({error})"
        ) from None
    own, theirs = layer.statistics.covariance, other.covariance
    norms, spread = float(np.linalg.norm(own) * np.linalg.norm(theirs)), float(np.trace(own))
    layers = against.statistics.layers
    position = layer.depth * (len(layers) - 1)
    near = {layers[math.floor(position + 1e-9)].kernel_size, layers[math.ceil(position - 1e-9)].kernel_size}
    return LayerComparison(
        other=_measure(other, layer.index, layer.depth),
        resized=near != {layer.kernel_size},
        cosine=float(np.vdot(own, theirs)) / norms if norms else math.nan,
        scale=math.sqrt(max(float(np.trace(theirs)), 0.0) / spread) if spread else math.nan,
    )
