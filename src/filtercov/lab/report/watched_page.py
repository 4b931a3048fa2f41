"""The page of a watched run: a player of its moments, then numbers over time and still pictures for paper.

What the player draws from takes a byte a number: a covariance is symmetric and drawn in 255 colours, so its upper
triangle is kept as colours on its own scale, 3.3 kB for 9x9 filters. Filters and spectra take a byte a number as well.
A run of more moments than fit is thinned out.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filtercov.covariance.forms import Array
from filtercov.lab.report.charts import SHARES, Axis, Plot, key, legend, log_axis, over, round_axis, stage, time_map
from filtercov.lab.report.page import (
    Origin,
    embedded_json,
    figure,
    folded,
    grid,
    heading,
    note,
    page,
    table,
    text,
    text_table,
)
from filtercov.lab.report.pictures import (
    BLOCKS,
    blank_margin,
    covariance_limit,
    covariance_picture,
    filters_picture,
    levels,
    palette,
    shown_pixels,
    symmetric_limit,
)
from filtercov.lab.report.watched import JUDGED, History, LayerHistory
from filtercov.printable import counted
from filtercov.statistics.watched import FOLLOWED, Moment, Watched

SMALL = 130  # width of a still picture
MOST_BYTES = 8_000_000  # of all moments on a page, before base64
MOST_MOMENTS = 200  # more cannot be told apart on a slider
DECADES = 4  # of a spectrum
BY_DEPTH = '<p class="legend"><span><span class="depths key"></span>from the first layer to the last</span></p>'

Bytes = NDArray[np.uint8]


def watched_page(history: History, *, origin: Origin | None = None) -> str:
    """Return the page of a run."""
    watched, layers = history.watched, history.layers
    sizes = " and ".join(dict.fromkeys(layer.size for layer in layers))
    span = f"step {watched.steps[0]} to {watched.steps[-1]}" if len(watched) > 1 else f"step {watched.steps[0]}"
    what = f"{watched.source} while it trained: {counted(len(layers), 'depthwise layer')} of {sizes} filters"
    sections = [
        heading(history.label, text(" ".join(history.findings()))),
        f"<p>{text(what)}, {counted(len(watched), 'moment')} from {span}.</p>",
        *(note(words) for words in watched.notes),
        _player(history),
        "<h2>Over time</h2>",
        grid([_sigma(history), _likeness(history), _drift(history)]),
        "<h2>In numbers</h2>",
        text_table(
            history.table(), caption="In brackets: no more than chance. Moved: distance over size at the start."
        ),
        folded("Since when each number is beyond chance", _since(history)),
        _stills(history),
        embedded_json("settings", _page_data(history)),
    ]
    return page(
        f"{history.label} · filtercov", "\n".join(sections), origin=origin, scripts=["drawing.js", "watched.js"]
    )


def most_moments(watched: Watched) -> int:
    """How many moments fit on a page: 150 of twelve layers of 9x9 filters."""
    each = 0
    for filters in watched.start.values():
        pixels = math.prod(filters.shape[1:])
        kept = math.prod(map(len, shown_pixels(filters.shape[1:], 0)))
        each += kept * (kept + 1) // 2 + (FOLLOWED + 1) * pixels
    return int(min(max(MOST_BYTES // each, 3), MOST_MOMENTS))


def _player(history: History) -> str:
    last = len(history.moments) - 1
    buttons = "".join(
        f'<button type="button" aria-pressed="false" aria-label="layer {layer.index + 1}, {text(layer.name)}" '
        f'title="{text(layer.name)}"><canvas class="pixels"></canvas><span>{layer.index + 1}</span></button>'
        for layer in history.layers
    )
    most = max(len(filters) for filters in history.moments[0].filters.values())
    sigmas = [s for layer in history.layers for s in layer.values("sigma") if math.isfinite(s)] or [0.1, 1.0]
    by_depth = stage(
        "depths", SHARES, [log_axis(min(sigmas), max(sigmas))], x_label="relative depth d", y_label="σ by depth"
    )
    spectrum = stage(
        "spectrum", SHARES, [log_axis(10.0**-DECADES, 1.0)], x_label="rank, over the number of eigenvalues",
        y_label="eigenvalue, λ / λ₁",
    )  # fmt: skip
    marks = [("more like a closed form than chance", key(0, "mark")), ("no more than chance", key(0, "ring"))]
    views = [
        figure('<canvas class="pixels" id="covariance" role="img"></canvas>', 'covariance<span id="limit"></span>'),
        figure(
            '<canvas class="pixels" id="filters" role="img"></canvas>',
            f"the same {counted(most, 'filter')} at every moment, each on its own scale",
        ),
        figure(spectrum + legend([("now", key(0)), ("at the first moment", key(0, dashed=True))]), "spectrum"),
    ]
    return f"""<section class="player" id="player" aria-label="player">
<div class="bar"><button type="button" id="play">Play</button>
<input type="range" id="moment" min="0" max="{last}" step="1" value="{last}" aria-label="moment of {last + 1}">
<output id="now" for="moment">step {history.steps[-1]}</output></div>
<div class="wide"><div><div class="strip" id="strip" role="group" aria-label="layers">{buttons}</div>
<p class="quiet">Choose a layer. Arrow keys go from moment to moment, space plays. {BLOCKS}</p></div>
{figure(by_depth + legend(marks), "")}</div>
<h2 id="layer-title">Layer 1</h2><p id="facts"></p>
{grid(views)}</section>
<noscript>{note("Without scripts the player stays empty; what is below needs none.")}</noscript>"""


def _sigma(history: History) -> str:
    found = [s for layer in history.layers for s in layer.values("sigma", beyond_chance=True) if math.isfinite(s)]
    axis = log_axis(min(found), max(found)) if found else log_axis(0.1, 1.0)
    chart = _over_time(
        history, lambda layer: layer.values("sigma", beyond_chance=True), axis, "σ of each layer over time", "σ"
    )
    return figure(chart + BY_DEPTH, "σ of the closed form most like each layer, where it is more like it than chance")


def _drift(history: History) -> str:
    found = [x for layer in history.layers for x in layer.values("relative_distance") if math.isfinite(x)]
    axis = round_axis(0.0, max(found, default=0.0) or 1.0)
    label = f"distance of the filters of {history.label} from where they began"
    chart = _over_time(history, lambda layer: layer.values("relative_distance"), axis, label, "‖W − W₀‖ / ‖W₀‖")
    return figure(chart + BY_DEPTH, "distance of the filters from the first moment; 1.41 is that of unrelated filters")


def _likeness(history: History) -> str:
    rows = {str(layer.index + 1): layer.values("likeness", beyond_chance=True) for layer in history.layers}
    label = "likeness of each layer to the closed form, over time, where it is more than chance"
    chart = time_map(rows, history.steps, label=label, x_label="step", y_label="layer")
    shade = '<p class="legend"><span><span class="key mark s0"></span>deeper is more alike</span></p>'
    return figure(chart + shade, "likeness to the closed form, blank where independent filters would be as alike")


def _over_time(
    history: History, values: Callable[[LayerHistory], Sequence[float]], y: Axis, label: str, y_label: str
) -> str:
    """Return a line for each layer, coloured by depth; a script marks one and moves a cursor along the steps."""
    plot = Plot(over(history.steps), y, label=label, x_label="step", y_label=y_label)
    for layer in history.layers:
        marked = f' data-layer="{layer.index}" style="--depth:{layer.depth:.0%}"'
        line = zip(history.steps, values(layer), strict=True)
        for measured, points in groupby(line, lambda point: math.isfinite(point[1])):
            piece = list(points) if measured else []
            if len(piece) == 1:  # a line of one point would not be seen
                plot.dot(*piece[0], f"{layer.name}: {piece[0][1]:.3g} at step {piece[0][0]:g}", radius=2)
            plot.line(piece, attributes=marked)
    plot.cursor()
    return plot.html()


def _since(history: History) -> str:
    head = ["layer", *(name.replace("_", " ") for name in JUDGED)]
    rows = [[layer.title, *(layer.since(key) for key in JUDGED)] for layer in history.layers]
    many = len(rows) * len(JUDGED)
    few = "about one at most" if many < 200 else f"{many // 100} at most"
    caption = (
        "The step since when each number is beyond chance at every moment to the last. Of "
        f"{many} numbers of independent filters {few} would be."
    )
    return f'<div class="since">{text_table([head, *rows], caption=caption)}</div>'


def _stills(history: History) -> str:
    """Covariances and filters at the first, middle and last moment: also for paper."""
    last = len(history.moments) - 1
    moments = [history.moments[place] for place in dict.fromkeys((0, last // 2, last))]
    head = ["layer", *(f"step {m.step}" for m in moments), *(f"filters, step {m.step}" for m in moments)]
    rows = []
    for layer in history.layers:
        covariances = [_covariance(layer, moment) for moment in moments]
        rows.append([text(layer.title), *covariances, *(_filters(layer, moment) for moment in moments)])
    return f'<h2>First, middle and last</h2><div class="moments">{table(head, rows)}</div>'


def _covariance(layer: LayerHistory, moment: Moment) -> str:
    picture = covariance_picture(moment.statistics[layer.name].covariance, layer.kernel_size, size=SMALL)
    return picture.html(f"covariance of {layer.name} at step {moment.step}")


def _filters(layer: LayerHistory, moment: Moment) -> str:
    picture = filters_picture(moment.filters[layer.name], size=SMALL)
    return picture.html(f"filters of {layer.name} at step {moment.step}")


def _page_data(history: History) -> dict[str, Any]:
    """Everything that the page's scripts draw, ready for JSON."""
    return {
        "palette": palette().tolist(),
        "decades": DECADES,
        "steps": history.steps,
        "layers": [_layer_data(layer, history.moments) for layer in history.layers],
    }


def _layer_data(layer: LayerHistory, moments: Sequence[Moment]) -> dict[str, Any]:
    covariances = [moment.statistics[layer.name].covariance for moment in moments]
    limits = [covariance_limit(cov) for cov in covariances]
    size = layer.kernel_size
    # One for all moments; gaps are as wide as a number, too wide for blocks of three.
    margin = max(0, min(*(blank_margin(cov, size) for cov in covariances), (min(size) - 5) // 2))
    kept = shown_pixels(size, margin)
    pixels = np.ravel_multi_index(np.meshgrid(*kept, indexing="ij"), size).ravel()
    upper = np.triu_indices(len(pixels))
    drawn = [levels(c[np.ix_(pixels, pixels)], limit)[upper] for c, limit in zip(covariances, limits, strict=True)]
    filters = [levels(f, symmetric_limit(f)).ravel() for moment in moments for f in moment.filters[layer.name]]
    return {
        "name": layer.name,
        "depth": layer.depth,
        "size": size,
        "kept": [len(k) for k in kept],
        "covariances": _text(np.concatenate(drawn)),
        "limits": [float(f"{limit:.2g}") for limit in limits],
        "filters": _text(np.concatenate(filters)),
        "spectra": _text(np.concatenate([spectrum_levels(values) for values in layer.spectra])),
        "sigma": _numbers(layer.values("sigma")),
        "likeness": _numbers(layer.values("likeness")),
        "chance": _numbers(layer.values("likeness_chance")),
        "beyond": [bool(record["likeness_beyond_chance"]) for record in layer.records],
        "moved": _numbers(layer.values("relative_distance")),
    }


def spectrum_levels(eigenvalues: Array) -> Bytes:
    """Return the height of eigenvalues on a logarithmic scale that ends at the largest; 0 for what is below it.

    >>> spectrum_levels(np.array([2.0, 0.02, 0.0])).tolist()
    [255, 128, 0]
    """
    top = max(float(eigenvalues.max(initial=0.0)), np.finfo(float).tiny)
    shares = np.log10(np.maximum(eigenvalues / top, 10.0**-DECADES)) / DECADES + 1
    heights: Bytes = np.round(255 * shares).astype(np.uint8)
    return heights


def _numbers(values: list[float]) -> list[float | None]:
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]


def _text(data: Bytes) -> str:
    return base64.b64encode(data.tobytes()).decode()
