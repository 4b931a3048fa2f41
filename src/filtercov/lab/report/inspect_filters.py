"""Which filters of a layer to show."""

from __future__ import annotations

import math

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.covariance.root import symmetric_root
from filtercov.lab.report.inspect_numbers import Inspection, LayerNumbers

SHOWN = 24  # filters of each kind


def shown_filters(inspection: Inspection, layer: LayerNumbers, rng: np.random.Generator) -> list[tuple[str, Array]]:
    """Return the filters to draw, with captions: the layer's own where there are any, and some of the closed form."""
    shown = []
    filters = inspection.target.filters.get(layer.name)
    if filters is None:
        drawn = sampled(layer.statistics.covariance, layer.kernel_size, rng, mean=layer.statistics.mean)
        shown.append(("drawn from the statistics, which hold no filters", drawn))
    else:
        power = np.square(filters).sum(axis=tuple(range(1, filters.ndim)))
        shown.append(("strongest filters", filters[np.argsort(-power, kind="stable")[:SHOWN]]))
        if len(filters) > SHOWN:
            shown.append(("random filters", filters[np.sort(rng.permutation(len(filters))[:SHOWN])]))
    if not math.isnan(layer.sigma):
        shown.append(("drawn from the closed form", sampled(layer.closed_form(), layer.kernel_size, rng)))
    return shown


def sampled(
    cov: Array,
    kernel_size: tuple[int, ...],
    rng: np.random.Generator,
    *,
    mean: Array | None = None,
    count: int = SHOWN,
) -> Array:
    """Return `count` filters (count, *kernel_size) from N(mean, cov)."""
    filters: Array = rng.normal(size=(count, len(cov))) @ symmetric_root(cov)
    return (filters if mean is None else filters + mean).reshape(-1, *kernel_size)
