"""The page of a watched run: a player of its moments, then what they show over time, in numbers and on paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from filtercov.lab.report import style
from filtercov.lab.report.charts import Axis, decades, key, stage
from filtercov.lab.report.inspect_numbers import show
from filtercov.lab.report.inspect_pictures import covariance_picture, filters_picture
from filtercov.lab.report.page import Origin, asset, embedded_json, figure, page, table, text
from filtercov.lab.report.watched_charts import (
    LEGEND,
    cosines_over_time,
    drift_over_time,
    sigma_over_time,
    structure_map,
)
from filtercov.lab.report.watched_compare import LayerPair
from filtercov.lab.report.watched_data import DECADES, page_data
from filtercov.lab.report.watched_numbers import JUDGED, History, LayerHistory
from filtercov.lab.report.watched_words import describe_run, findings, meeting, since
from filtercov.printable import counted
from filtercov.statistics.watched import Moment

SCRIPTS = ("watched_data.js", "drawing.js", "watched_tiles.js", "watched_views.js", "watched_player.js")
SMALL = 97  # width of a picture


def watched_page(histories: list[History], *, pairs: Sequence[LayerPair] = (), origin: Origin | None = None) -> str:
    """Return the page of a run, or of two with `pairs` of their layers."""
    title = " against ".join(history.run.label for history in histories)
    notes = [note for history in histories for note in history.run.watched.notes]
    sections = [
        f"<h1>{text(title)}</h1>",
        *(_opening(history, named=len(histories) > 1) for history in histories),
        *(f'<p class="note">{text(note)}</p>' for note in notes),
        _player(histories),
        *(_comparison(histories, pairs) if pairs else ()),
        f'<div class="{"columns" if len(histories) == 1 else "rows"}">',
        _sigma(histories),
        _structure(histories),
        _drift(histories),
        "</div>",
        *map(_since, histories),
        "<h2>In numbers</h2>",
        *(_numbers(history, named=len(histories) > 1) for history in histories),
        _moments(histories),
        embedded_json("watched", page_data(histories)),
    ]
    scripts = [asset(name) for name in SCRIPTS]
    return page(
        f"{title} · filtercov", "\n".join(sections), origin=origin, styles=[asset("watched.css")], scripts=scripts
    )


def _opening(history: History, *, named: bool) -> str:
    whole = len(history.run.watched)
    fewer = "" if named or len(history.moments) == whole else f" The page has {len(history.moments)} of the moments."
    name = f"<b>{text(history.run.label)}</b>: " if named else ""
    return f"<p>{name}{text(describe_run(history))}.{fewer} {text(' '.join(findings(history)))}</p>"


def _player(histories: list[History]) -> str:
    first, named = histories[0], len(histories) > 1
    count, last = len(first.moments), len(first.moments) - 1
    canvases = '<canvas class="pixels"></canvas>' * len(histories)
    buttons = "".join(
        f'<button type="button" aria-pressed="false" aria-label="layer {layer.index + 1}, {text(layer.name)}" '
        f'title="{text(layer.name)}">{canvases}<span>{layer.index + 1}</span></button>'
        for layer in first.layers
    )
    runs = "".join(_run_pictures(history, index, named=named) for index, history in enumerate(histories))
    depth = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))
    sigmas = [s for h in histories for layer in h.layers for s in layer.values("sigma") if math.isfinite(s)]
    range_ = decades(min(sigmas), max(sigmas)) if sigmas else decades(0.1, 1.0)
    by_depth = stage("depths", depth, [range_], x_label="relative depth d", y_label="σ")
    rank = "eigenvalues, from the largest to the smallest"
    spectrum = stage("spectrum", Axis(0.0, 1.0, ()), [decades(10.0**-DECADES, 1.0)], x_label=rank, y_label="λ / λ₁")
    keys = "".join(f"{key(i, 'mark')}{text(h.run.label)} " for i, h in enumerate(histories)) if named else ""
    dots = f"σ by depth: {keys}{key(0, 'ring')}no more like a closed form than chance"
    lines = f"Spectrum: {key(0)}now, {key(0, dashed=True)}at the first moment"
    return f"""<section class="player" id="player" aria-label="player">
<div class="bar"><button type="button" id="play">Play</button>
<input type="range" id="moment" min="0" max="{last}" step="1" value="{last}" aria-label="moment of {count}">
<output id="now" for="moment">step {first.steps[-1]}</output></div>
<p class="quiet">Arrow keys go from moment to moment, space plays. Between two moments pictures are mixed. Covariances
are in block form: the block at row i, column j shows how pixel (i, j) varies together with every pixel; red is
positive, blue negative, each on its own scale.</p>
<div class="overview"><div class="strip" id="strip" role="group" aria-label="layers">{buttons}</div>
{figure(by_depth, dots)}</div>
<h2 id="layer-title">Layer 1</h2>
<div class="pictures">{runs}{figure(spectrum, lines)}</div>
</section>
<noscript><p class="note">Without scripts the player stays empty; what is below needs none.</p></noscript>"""


def _run_pictures(history: History, index: int, *, named: bool) -> str:
    name = f"<h3>{text(history.run.label)}</h3>" if named else ""
    most = max(len(filters) for filters in history.moments[0].filters.values())
    followed = f"the same {counted(most, 'filter')} at every moment, each on its own scale"
    covariance = f'<canvas class="pixels" id="covariance-{index}" role="img"></canvas>'
    filters = f'<canvas class="pixels" id="filters-{index}" role="img"></canvas>'
    return (
        f'<div>{name}<p class="facts" id="facts-{index}"></p><div class="pictures">'
        f"{figure(covariance, f'covariance, <span id=limit-{index}></span>')}{figure(filters, followed)}</div></div>"
    )


def _sigma(histories: list[History]) -> str:
    how = (
        "σ of the closed form most like each layer, where the layer is more like it than as many independent filters "
        "would be: to noise, too, some σ is the nearest."
    )
    return _over_time("σ of each layer over time", how, histories, partial(sigma_over_time, together=histories))


def _structure(histories: list[History]) -> str:
    how = (
        "A band for each layer, from the first above to the last below: its likeness to the closed form, deeper the "
        "more alike, and nothing where independent filters would be as alike."
    )
    return _over_time("When structure appears", how, histories, structure_map)


def _drift(histories: list[History]) -> str:
    how = (
        "Distance of a layer's filters from where they were at the first moment, over their size there; 1.41 is the "
        "distance of filters of the same size that have nothing to do with them."
    )
    return _over_time("How far the filters moved", how, histories, partial(drift_over_time, together=histories))


def _over_time(title: str, how: str, histories: list[History], chart: Callable[[History], str]) -> str:
    drawn = [
        figure(chart(history), f"{text(history.run.label)}: {LEGEND}" if len(histories) > 1 else LEGEND)
        for history in histories
    ]
    return f'<section><h2>{title}</h2><p>{how}</p><div class="charts">{"".join(drawn)}</div></section>'


def _since(history: History) -> str:
    head = ["layer", *(name.replace("_", " ") for name in JUDGED)]
    rows = [[_name(layer), *(since(layer, key) for key in JUDGED)] for layer in history.layers]
    many = len(rows) * len(JUDGED)
    few = "about one at most" if many < 200 else f"{many // 100} at most"
    caption = (
        f"{text(history.run.label)}: the step since when each number is beyond chance at every moment to the last. Of "
        f"{many} numbers of independent filters {few} would be."
    )
    return f'<div class="since">{table(head, rows, caption=caption)}</div>'


def _comparison(histories: list[History], pairs: Sequence[LayerPair]) -> list[str]:
    first, second = (history.run.label for history in histories)
    rows = [
        [
            _name(pair.layer),
            *(show(layer.values("relative_distance")[-1], digits=2) for layer in _both(histories, pair.layer.index)),
            show(pair.cosines[0]),
            show(pair.cosines[-1]),
            show(pair.last.chance if pair.last.chance is not None else math.nan),
            "–" if pair.last.value is None else "apart" if pair.apart else '<span class="quiet">not told apart</span>',
        ]
        for pair in pairs
    ]
    head = ["layer", f"moved, {text(first)}", f"moved, {text(second)}", "cosine at first", "at last", "of one", "end"]
    caption = (
        "cosine between the two covariances of a layer, 1 if they are multiples of each other; of one: what two "
        "samples of as many normal filters from one covariance show on average; apart: less than such samples hardly "
        "ever show"
    )
    chart = cosines_over_time(histories[0], [pair.cosines for pair in pairs])
    return [
        "<h2>Do they end in one place?</h2>",
        f'<p class="verdict">{text(meeting(histories, pairs))}</p>',
        f"<p>{text(second)} is taken at its last moment until each step of {text(first)}.</p>",
        f'<div class="charts">{figure(chart, LEGEND)}</div>',
        f'<div id="pairs">{table(head, rows, caption=caption)}</div>',
    ]


def _numbers(history: History, *, named: bool) -> str:
    head = ["layer", "size", "filters", "σ at first", "at last", "likeness at first", "at last", "by chance"]
    head += ["directions at first", "at last", "by chance", "moved"]
    caption = (
        "Grey: no more than chance. Directions: the effective rank. Moved: distance from the start over the size of "
        "the filters there."
    )
    name = f"<b>{text(history.run.label)}</b>. " if named else ""
    whole = table(head, [_row(layer) for layer in history.layers], caption=name + caption)
    return f'<div class="numbers">{whole}</div>'


def _row(layer: LayerHistory) -> list[str]:
    first, last = layer.records[0], layer.records[-1]

    def cell(record: dict[str, object], key: str, judged: str, digits: int) -> str:
        shown = _shown(record[key], digits)
        return shown if record[f"{judged}_beyond_chance"] else f'<span class="quiet">{shown}</span>'

    return [
        _name(layer),
        layer.size,
        str(layer.count),
        *(cell(record, "sigma", "likeness", 3) for record in (first, last)),
        *(cell(record, "likeness", "likeness", 3) for record in (first, last)),
        _shown(last["likeness_chance"], 3),
        *(cell(record, "effective_rank", "effective_rank", 1) for record in (first, last)),
        _shown(last["effective_rank_chance"], 1),
        _shown(last["relative_distance"], 3),
    ]


def _moments(histories: list[History]) -> str:
    """Return covariances, and filters of a single run, at the first, middle and last moment: also for paper."""
    shown = [(history, shown_moments(history)) for history in histories]
    head = ["layer"]
    for history, moments in shown:
        name = f"{text(history.run.label)}, " if len(histories) > 1 else ""
        head += [f"{name}step {moment.step}" for moment in moments]
    if len(histories) == 1:
        head += [f"filters, step {moment.step}" for moment in shown[0][1]]
    rows = []
    for layer in histories[0].layers:
        pictures = [_covariance(layer, moment) for _, moments in shown for moment in moments]
        if len(histories) == 1:
            pictures += [_filters(layer, moment) for moment in shown[0][1]]
        rows.append([_name(layer), *pictures])
    return f'<h2>First, middle and last</h2><div class="moments">{table(head, rows)}</div>'


def shown_moments(history: History) -> list[Moment]:
    """Return the first, the middle and the last moment, or as many as there are."""
    last = len(history.moments) - 1
    return [history.moments[place] for place in dict.fromkeys((0, last // 2, last))]


def _covariance(layer: LayerHistory, moment: Moment) -> str:
    cov = moment.statistics[layer.name].covariance
    picture = covariance_picture(cov, layer.kernel_size, limit=style.covariance_limit(cov), size=SMALL)
    return picture.html(f"covariance of {layer.name} at step {moment.step}")


def _filters(layer: LayerHistory, moment: Moment) -> str:
    picture = filters_picture(moment.filters[layer.name], columns=4, size=SMALL)
    return picture.html(f"filters of {layer.name} at step {moment.step}")


def _both(histories: list[History], index: int) -> list[LayerHistory]:
    return [history.layers[index] for history in histories]


def _name(layer: LayerHistory) -> str:
    return f"{layer.index + 1}. {text(layer.name)}"


def _shown(value: object, digits: int) -> str:
    return show(float(value) if isinstance(value, int | float) else math.nan, digits=digits)
