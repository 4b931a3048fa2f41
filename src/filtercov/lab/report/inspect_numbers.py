"""Everything `filtercov inspect` measures: each layer's structure, and σ across depth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.covariance.forms import Array, show_size
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import SourceError
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
    closed_form_scale: float
    closed_form_eigenvalues: Array
    pixel_variance: Array
    centredness: float
    kronecker_residual: float
    eigenvalues: Array
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

    def closed_form(self) -> Array:
        """Return the closed form at the best σ, at the scale where it is nearest to the layer's covariance."""
        if math.isnan(self.sigma):
            return np.zeros_like(self.statistics.covariance)
        return self.closed_form_scale * gaussian_covariance(self.kernel_size, self.sigma)

    def as_json(self) -> dict[str, Any]:
        """Return every number, under the names that the page's table uses; null where one is not determined."""
        scalars = {
            "depth": self.depth,
            "sigma": self.sigma,
            "likeness": self.likeness,
            "chance_likeness": self.chance_likeness,
            "closed_form_scale": self.closed_form_scale,
            "centredness": self.centredness,
            "kronecker_residual": self.kronecker_residual,
            "mean_share": self.mean_share,
        }
        return {
            "name": self.name,
            "kernel_size": list(self.kernel_size),
            "filters": self.statistics.count,
            **{key: number_or_none(value) for key, value in scalars.items()},
            "pixel_variance": self.pixel_variance.tolist(),
            "eigenvalues": self.eigenvalues.tolist(),
            "closed_form_eigenvalues": self.closed_form_eigenvalues.tolist(),
            "structure": _structure_json(self.structure),
        }


@dataclass(frozen=True, eq=False)
class Inspection:
    """A target, measured: its layers in forward order and the schedule fitted to them, None where none can be."""

    target: Target
    layers: tuple[LayerNumbers, ...]
    schedule: FittedSchedule | None

    def paste_line(self) -> str:
        """Return the Python that initialises another model with the fitted schedule, '' where none is worth it."""
        if self.schedule is None or not self.schedule.fit.usable:
            return ""
        s = self.schedule.short()
        return f"filtercov.init_(model, filtercov.QuadraticSchedule({s.sigma0!r}, {s.v!r}, {s.a!r}))"

    def as_json(self) -> dict[str, Any]:
        """Return every number of the page."""
        return {
            "target": self.target.label,
            "kind": self.target.kind,
            "notes": list(self.target.notes),
            "schedule": None if self.schedule is None else _schedule_json(self.schedule),
            "receptive_field": None if self.target.field is None else field_json(self.target.field),
            "layers": [layer.as_json() for layer in self.layers],
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


def describe(inspection: Inspection) -> str:
    """Return what was looked at in a few words: its kind, how many layers and of which sizes."""
    layers = inspection.layers
    sizes = " and ".join(dict.fromkeys(show_size(layer.kernel_size).replace("x", "×") for layer in layers))
    count = f"{len(layers)} depthwise layer{'s' if len(layers) > 1 else ''}"
    return f"{inspection.target.kind} with {count} of {sizes} filters"


def show(value: float, *, digits: int = 3) -> str:
    """Return a number as the page shows it, a dash where there is none.

    >>> show(-0.5), show(-0.0001), show(math.nan)
    ('−0.500', '0.000', '–')
    """
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−") if math.isfinite(value) else "–"


def number_or_none(value: float) -> float | None:
    """Return the number as JSON can hold it: nan and infinities become null."""
    return value if math.isfinite(value) else None


def field_json(field: ReceptiveField) -> dict[str, Any]:
    """Return what is known of an effective receptive field, but for its picture."""
    return {
        "layer": field.layer,
        "size": list(field.shares.shape),
        "centre": list(field.centre),
        "widest": field.widest,
        "radius": _number_json(field.radius),
    }


def _structure_json(structure: Structure) -> dict[str, Any]:
    numbers = {name: _number_json(number) for name, number in structure.numbers().items()}
    offset = None if structure.offset is None else list(structure.offset)
    return {**numbers, "offset": offset, "types": None if structure.types is None else dict(structure.types)}


def _number_json(number: Number) -> dict[str, Any]:
    described: dict[str, Any] = {"value": number.value, "chance": number.chance, "beyond_chance": number.beyond_chance}
    if number.low is not None:
        described["range_of_chance"] = [number.low, number.high]
    return {**described, "reason": number.reason} if number.reason else described


def _schedule_json(schedule: FittedSchedule) -> dict[str, Any]:
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
        "usable": fit.usable,
        "finding": str(fit),
    }


def _fitted(target: Target) -> FittedSchedule | None:
    try:
        schedule = fit_schedule(target.statistics)
    except SourceError:  # no kernel is large enough to tell a σ
        return None
    return schedule if schedule.fit.layers else None  # to filters that do not vary any schedule is as near


def _measure(layer: LayerStatistics, index: int, depth: float) -> LayerNumbers:
    cov, size = layer.covariance, layer.kernel_size
    fit = fit_layer(layer)
    sigma, scale = fit.sigma, math.nan
    closed_eigenvalues: Array = np.zeros(len(cov))
    if not math.isnan(sigma):
        closed = gaussian_covariance(size, sigma)
        scale = float(np.vdot(closed, cov) / np.vdot(closed, closed))
        closed_eigenvalues = scale * spectrum(closed)
    mean_power, spread = float(layer.mean @ layer.mean), float(np.trace(cov))
    return LayerNumbers(
        statistics=layer,
        index=index,
        depth=depth,
        sigma=sigma,
        likeness=fit.likeness,
        chance_likeness=fit.chance,
        closed_form_scale=scale,
        closed_form_eigenvalues=closed_eigenvalues,
        pixel_variance=np.diagonal(cov).reshape(size),
        centredness=centredness(cov, size),
        kronecker_residual=kronecker_residual(cov, size),
        eigenvalues=spectrum(cov),
        mean_share=mean_power / (mean_power + spread) if mean_power + spread else math.nan,
        above_chance=fit.above_chance,
        structure=structure_of_layer(layer),
    )
