"""The page of a watched run: a player of its moments, numbers over time, and still pictures for paper.

What the player draws takes a byte a number: a covariance is symmetric and drawn in 255 colours, so its upper triangle
is kept as colours on its own scale, 3.3 kB for 9x9 filters. Filters and spectra take a byte a number as well. A run of
more moments than fit is thinned out.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filtercov.covariance.forms import Array
from filtercov.lab.report import page, pictures
from filtercov.lab.report.charts import SHARES, Axis, Plot, key, legend, log_axis, over, round_axis, stage
from filtercov.lab.report.watched import History, LayerHistory
from filtercov.printable import counted
from filtercov.statistics.watched import FOLLOWED, Moment, Watched

STILL = 200  # width of a still picture
MOST_BYTES = 8_000_000  # of all moments on a page, before base64
MOST_MOMENTS = 200  # more cannot be told apart on a slider
DECADES = 4  # of a spectrum

Bytes = NDArray[np.uint8]


def watched_page(history: History, *, origin: page.Origin | None = None) -> str:
    """The page of a run."""
    watched, layers = history.watched, history.layers
    lead, *more = history.findings()
    sizes = " and ".join(dict.fromkeys(layer.size for layer in layers))
    what = f"{watched.source} while it trained: {counted(len(layers), 'depthwise layer')} of {sizes} filters, "
    what += f"{counted(len(watched), 'moment')} from step {watched.steps[0]} to {watched.steps[-1]}."
    head, *rows = history.table()
    cells = [[page.numbered(each.index, each.name), *row[1:]] for each, row in zip(layers, rows, strict=True)]
    meaning = "In brackets: no more than chance. Moved: distance over size at the start."
    sections = [
        page.heading(history.label, page.text(lead)),
        f"<p>{page.text(' '.join([*more, what]))}</p>",
        *(page.note(words) for words in watched.notes),
        _player(history),
        _over_time(history),
        f'<h2>In numbers</h2><p class="quiet">{meaning}</p>{page.table(head, cells, sortable=True)}',
        _stills(history),
        page.embedded_json("settings", _page_data(history)),
    ]
    scripts = ["drawing.js", "watched.js"]
    return page.page(f"{history.label} · filtercov", "\n".join(sections), origin=origin, scripts=scripts)


def most_moments(watched: Watched) -> int:
    """How many moments fit on a page: 150 of twelve layers of 9x9 filters."""
    each = 0
    for filters in watched.start.values():
        size = filters.shape[1:]
        kept = math.prod(map(len, pictures.shown_pixels(size, 0)))
        each += kept * (kept + 1) // 2 + (FOLLOWED + 1) * math.prod(size)
    return int(min(max(MOST_BYTES // each, 3), MOST_MOMENTS))


def _player(history: History) -> str:
    last = len(history.moments) - 1
    buttons = "".join(
        f'<button type="button" aria-pressed="false" aria-label="layer {layer.index + 1}, {page.text(layer.name)}" '
        f'title="{page.text(layer.name)}"><canvas class="pixels"></canvas><span>{layer.index + 1}</span></button>'
        for layer in history.layers
    )
    most = max(len(filters) for filters in history.moments[0].filters.values())
    sigmas = [s for layer in history.layers for s in layer.values("sigma") if math.isfinite(s)] or [0.1, 1.0]
    by_depth = stage("depths", SHARES, [log_axis(min(sigmas), max(sigmas))], x_label="relative depth d", y_label="σ")
    decades = log_axis(10.0**-DECADES, 1.0)
    spectrum = stage("spectrum", SHARES, [decades], x_label="rank / number of pixels", y_label="eigenvalue, λ / λ₁")
    marks = [("more like a closed form than chance", key(0, "mark")), ("no more than chance", key(0, "ring"))]
    views = [
        page.figure(
            '<canvas class="pixels" id="covariance" role="img"></canvas>', 'covariance<span id="limit"></span>'
        ),
        page.figure(
            '<canvas class="pixels" id="filters" role="img"></canvas>',
            f"the same {counted(most, 'filter')} at every moment, each on its own scale",
        ),
        page.figure(spectrum + legend([("now", key(0)), ("at the first moment", key(0, dashed=True))]), "spectrum"),
    ]
    return f"""<section class="player" id="player" aria-label="player">
<div class="bar"><button type="button" id="play">Play</button>
<input type="range" id="moment" min="0" max="{last}" step="1" value="{last}" aria-label="moment of {last + 1}">
<output id="now" for="moment">step {history.steps[-1]}</output></div>
<div class="wide"><div><div class="strip" id="strip" role="group" aria-label="layers">{buttons}</div>
<p class="quiet">Choose a layer. Arrow keys go from moment to moment, space plays. {pictures.BLOCKS}</p></div>
{page.figure(by_depth + legend(marks), "")}</div>
<h2 id="layer-title">Layer 1</h2><p id="facts"></p>
{page.grid(views)}</section>
<noscript>{page.note("Without scripts the player stays empty; what is below needs none.")}</noscript>"""


def _over_time(history: History) -> str:
    """σ, likeness and drift: a line for each layer, coloured by depth; a script marks one and moves the cursors."""
    layers = history.layers
    drawn = [
        ("σ", "σ of the closed form most like each layer, where it is more like it than chance",
         [layer.values("sigma", structured=True) for layer in layers]),
        ("likeness", "likeness to that closed form, where it is more than chance",
         [layer.values("likeness", structured=True) for layer in layers]),
        ("‖W − W₀‖ / ‖W₀‖", "distance of the filters from the first moment; 1.41 is that of unrelated filters",
         [layer.values("relative_distance") for layer in layers]),
    ]  # fmt: skip
    figures = []
    for name, caption, values in drawn:
        found = [x for line in values for x in line if math.isfinite(x)] or [1.0]
        y = log_axis(min(found), max(found)) if name == "σ" else round_axis(0.0, max(found) or 1.0)
        figures.append(page.figure(_lines(history, values, y, name), caption))
    depths = '<p class="legend"><span><span class="depths key"></span>from the first layer to the last</span></p>'
    return f"<h2>Over time</h2>{depths}{page.grid(figures)}"


def _lines(history: History, values: Sequence[Sequence[float]], y: Axis, name: str) -> str:
    plot = Plot(over(history.steps), y, label=f"{name} of each layer over time", x_label="step", y_label=name)
    for layer, line in zip(history.layers, values, strict=True):
        marked = f' data-layer="{layer.index}" style="--depth:{layer.depth:.0%}"'
        points = zip(history.steps, line, strict=True)
        for measured, group in groupby(points, lambda point: math.isfinite(point[1])):
            piece = list(group) if measured else []
            if len(piece) == 1:  # a line of one point would not be seen
                plot.dot(*piece[0], f"{layer.name}: {piece[0][1]:.3g} at step {piece[0][0]:g}", radius=2)
            plot.line(piece, attributes=marked)
    plot.cursor()
    return plot.html()


def _stills(history: History) -> str:
    """Covariances and filters at the first, middle and last moment: also for paper."""
    moments = [history.moments[place] for place in history.stills]
    rows = []
    for layer in history.layers:
        name, size = layer.name, layer.kernel_size
        drawn = {
            "covariance": [
                pictures.covariance_picture(m.statistics[name].covariance, size, size=STILL) for m in moments
            ],
            "filters": [pictures.filters_picture(m.filters[name], size=STILL) for m in moments],
        }
        figures = (
            page.figure(picture.html(f"{kind} of {name} at step {moment.step}"), f"{kind}, step {moment.step}")
            for kind, each in drawn.items()
            for picture, moment in zip(each, moments, strict=True)
        )
        rows.append(f'<h3>{layer.index + 1}. {page.text(name)}</h3><div class="stills">{"".join(figures)}</div>')
    return f"<h2>First, middle and last</h2>{''.join(rows)}"


def _page_data(history: History) -> dict[str, Any]:
    """Everything that the page's scripts draw, ready for JSON."""
    layers = [_layer_data(layer, history.moments) for layer in history.layers]
    return {"palette": pictures.palette().tolist(), "decades": DECADES, "steps": history.steps, "layers": layers}


def _layer_data(layer: LayerHistory, moments: Sequence[Moment]) -> dict[str, Any]:
    covariances = [moment.statistics[layer.name].covariance for moment in moments]
    limits = [pictures.covariance_limit(cov) for cov in covariances]
    size = layer.kernel_size
    # One for all moments; gaps are as wide as a number, too wide for blocks of three.
    margin = max(0, min(*(pictures.blank_margin(cov, size) for cov in covariances), (min(size) - 5) // 2))
    kept = pictures.shown_pixels(size, margin)
    pixels = np.ravel_multi_index(np.meshgrid(*kept, indexing="ij"), size).ravel()
    upper = np.triu_indices(len(pixels))
    drawn = [
        pictures.levels(c[np.ix_(pixels, pixels)], limit)[upper] for c, limit in zip(covariances, limits, strict=True)
    ]
    filters = [
        pictures.levels(f, pictures.symmetric_limit(f)).ravel()
        for moment in moments
        for f in moment.filters[layer.name]
    ]
    numbers = {"sigma": "sigma", "likeness": "likeness", "chance": "likeness_chance", "moved": "relative_distance"}
    return {
        "name": layer.name,
        "depth": layer.depth,
        "size": size,
        "kept": [len(k) for k in kept],
        "covariances": _text(drawn),
        "limits": [float(f"{limit:.2g}") for limit in limits],
        "filters": _text(filters),
        "spectra": _text([spectrum_levels(values) for values in layer.spectra]),
        "beyond": [bool(record["likeness_beyond_chance"]) for record in layer.records],
        **{name: [record[column] for record in layer.records] for name, column in numbers.items()},
    }


def spectrum_levels(eigenvalues: Array) -> Bytes:
    """The height of eigenvalues on a logarithmic scale that ends at the largest; 0 for those below it.

    >>> spectrum_levels(np.array([2.0, 0.02, 0.0])).tolist()
    [255, 128, 0]
    """
    top = max(float(eigenvalues.max(initial=0.0)), np.finfo(float).tiny)
    shares = np.log10(np.maximum(eigenvalues / top, 10.0**-DECADES)) / DECADES + 1
    heights: Bytes = np.round(255 * shares).astype(np.uint8)
    return heights


def _text(data: Sequence[Bytes]) -> str:
    return base64.b64encode(np.concatenate(data).tobytes()).decode()
