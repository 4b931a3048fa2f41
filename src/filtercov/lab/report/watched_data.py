"""What the page of a watched run draws from: a byte for every number that is only looked at.

A covariance is symmetric and drawn in 255 colours, so its upper triangle is kept, as colours on its own scale: 3.3 kB
for 9x9 filters, a sixteenth of the numbers. Filters and spectra, on four decades, take a byte a number as well. Base64
makes four characters of three bytes. A run of more moments than fit is thinned out.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filtercov.covariance.forms import Array
from filtercov.lab.report import style
from filtercov.lab.report.inspect_pictures import thinned
from filtercov.lab.report.watched_numbers import History, LayerHistory
from filtercov.lab.report.watched_run import WatchedRun
from filtercov.statistics.watched import FOLLOWED, Moment

MOST_BYTES = 8_000_000  # of all moments on a page, before base64
MOST_MOMENTS = 200  # more cannot be told apart on a slider
DECADES = 4  # of a spectrum

Bytes = NDArray[np.uint8]


def most_moments(run: WatchedRun, *, runs: int) -> int:
    """Return how many moments of so many runs fit on a page.

    Fifty of twelve layers of 9x9 filters take 2.6 MB, so there is room for 150.
    """
    sizes = [(math.prod(kept_sides(f.shape[1:])), math.prod(f.shape[1:])) for f in run.watched.start.values()]
    each = sum(kept * (kept + 1) // 2 + (FOLLOWED + 1) * pixels for kept, pixels in sizes)
    return int(min(max(MOST_BYTES // (each * runs), 3), MOST_MOMENTS))


def page_data(histories: list[History]) -> dict[str, Any]:
    """Return everything that the page's scripts draw, ready for JSON."""
    return {
        "palette": style.palette().tolist(),
        "decades": DECADES,
        "steps": histories[0].steps,
        "layers": [
            {"name": layer.name, "depth": layer.depth, "size": layer.kernel_size, "kept": kept_sides(layer.kernel_size)}
            for layer in histories[0].layers
        ],
        "runs": [_run(history) for history in histories],
    }


def kept_sides(size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sides of the filters whose covariance is drawn: large kernels are thinned out."""
    return tuple(len(range(k)[thinned(k)]) for k in size)


def covariance_levels(cov: Array, size: tuple[int, ...]) -> tuple[Bytes, float]:
    """Return the colours of the upper triangle of a covariance (n, n), thinned out if it is large, and its scale."""
    kept = [np.arange(k)[thinned(k)] for k in size]
    pixels = np.ravel_multi_index(np.meshgrid(*kept, indexing="ij"), size).ravel()
    limit = style.covariance_limit(cov)
    drawn: Bytes = style.levels(cov[np.ix_(pixels, pixels)], limit)[np.triu_indices(len(pixels))]
    return drawn, limit


def filter_levels(filters: Array) -> Bytes:
    """Return the colours of filters (few, *kernel_size), each on its own scale, one after another."""
    return np.concatenate([style.levels(f, style.symmetric_limit(f)).ravel() for f in filters])


def spectrum_levels(eigenvalues: Array) -> Bytes:
    """Return how high eigenvalues lie on a logarithmic scale that ends at the largest; 0 for what is below it.

    >>> spectrum_levels(np.array([2.0, 0.02, 0.0])).tolist()
    [255, 128, 0]
    """
    top = max(float(eigenvalues.max(initial=0.0)), np.finfo(float).tiny)
    shares = np.log10(np.maximum(eigenvalues / top, 10.0**-DECADES)) / DECADES + 1
    levels: Bytes = np.round(255 * shares).astype(np.uint8)
    return levels


def _run(history: History) -> dict[str, Any]:
    return {
        "label": history.run.label,
        "steps": history.steps,
        "layers": [_layer(layer, history.moments) for layer in history.layers],
    }


def _layer(layer: LayerHistory, moments: tuple[Moment, ...]) -> dict[str, Any]:
    drawn = [covariance_levels(m.statistics[layer.name].covariance, layer.kernel_size) for m in moments]
    return {
        "covariances": _text(np.concatenate([levels for levels, _ in drawn])),
        "limits": [float(f"{limit:.2g}") for _, limit in drawn],
        "filters": _text(np.concatenate([filter_levels(m.filters[layer.name]) for m in moments])),
        "spectra": _text(np.concatenate([spectrum_levels(values) for values in layer.spectra])),
        "sigma": _numbers(layer.values("sigma")),
        "likeness": _numbers(layer.values("likeness")),
        "chance": _numbers(layer.values("likeness_chance")),
        "beyond": [bool(record["likeness_beyond_chance"]) for record in layer.records],
        "moved": _numbers(layer.values("relative_distance")),
    }


def _numbers(values: list[float]) -> list[float | None]:
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]


def _text(data: Bytes) -> str:
    return base64.b64encode(data.tobytes()).decode()
