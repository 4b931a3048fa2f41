"""The page of `filtercov inspect`: the network at a glance, then every layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from filtercov.covariance.forms import Array, show_size
from filtercov.lab.report import style
from filtercov.lab.report.charts import Axis, Plot, decades, key
from filtercov.lab.report.inspect_compare import LayerComparison
from filtercov.lab.report.inspect_numbers import Inspection, LayerNumbers, describe, show
from filtercov.lab.report.inspect_pictures import (
    FINEST,
    covariance_picture,
    filters_picture,
    shown_filters,
    variance_picture,
)
from filtercov.lab.report.inspect_structure import (
    field_section,
    structure_section,
    types_line,
)
from filtercov.lab.report.inspect_target import Target
from filtercov.lab.report.page import Origin, asset, copyable, figure, page, table, text
from filtercov.schedule import QuadraticSchedule

THUMB, LARGE, SMALL = 100, 262, 126  # widths of pictures

COLUMNS = {
    "layer": "",
    "size": "of the filters",
    "filters": "how many the layer has",
    "σ": "of the closed form most like the covariance",
    "likeness": "cosine between that closed form and the covariance, 1 if they are the same up to scale; in brackets "
    "what as many independent filters would show by chance, to which some σ is always the nearest; grey if it is no "
    "more than that",
    "centred": "1 if all variance is in the central pixel, 0 if every pixel varies alike, below 0 if the rim does more",
    "Kronecker": "residual of the nearest A⊗A, as a share of the covariance's size",
    "mean": "share of the filters' power that lies in their mean",
}


def inspection_page(
    inspection: Inspection,
    *,
    against: Target | None = None,
    comparisons: Sequence[LayerComparison] = (),
    notes: Sequence[str] = (),
    origin: Origin | None = None,
    seed: int = 0,
) -> str:
    """Return the page; `comparisons`, one per layer, put the target `against` beside it."""
    targets = [inspection.target] if against is None else [inspection.target, against]
    title, other_label = " against ".join(target.label for target in targets), targets[-1].label
    paired: list[LayerComparison | None] = list(comparisons) or [None] * len(inspection.layers)
    rng = np.random.default_rng(seed)
    cards = [
        _card(inspection, layer, other, other_label, rng)
        for layer, other in zip(inspection.layers, paired, strict=True)
    ]
    sections = [
        f"<h1>{text(title)}</h1><p>A {text(describe(inspection))}.</p>",
        *(f'<p class="note">{text(note)}</p>' for note in notes),
        _overview(inspection),
        _schedule(inspection, comparisons, other_label),
        _numbers(inspection, comparisons, other_label),
        structure_section(inspection),
        field_section([(target.label, target.field) for target in targets]),
        "<h2>Layer by layer</h2>",
        *cards,
    ]
    return page(f"{title} · filtercov", "\n".join(sections), origin=origin, styles=[asset("inspect.css")])


def _overview(inspection: Inspection) -> str:
    thumbs = []
    for layer in inspection.layers:
        cov = layer.statistics.covariance
        picture = covariance_picture(cov, layer.kernel_size, limit=style.covariance_limit(cov), size=THUMB)
        drawn = picture.html(f"covariance of {layer.name}")
        thumbs.append(
            f'<a href="#layer-{layer.index}" title="{text(layer.name)}">{drawn}<span>{layer.index + 1}</span></a>'
        )
    how = (
        "In block form: the block at row i, column j shows how pixel (i, j) of a filter varies together with every "
        "pixel. Red is positive, blue negative, white zero; every picture has a "
        "symmetric scale of its own, on which variances may lie beyond the deepest red."
    )
    return f'<h2>Covariances by depth</h2><p>{how}</p><nav class="strip" aria-label="layers">{"".join(thumbs)}</nav>'


def _schedule(inspection: Inspection, comparisons: Sequence[LayerComparison], against: str) -> str:
    layers, schedule = inspection.layers, inspection.schedule
    chart = sigma_chart(layers, schedule, others=[other.sigma for other in comparisons])
    second = f" {key(1, 'mark')}{text(against)}" if comparisons else ""
    keys = f"{key(0, 'mark')}σ of the closed form most like each layer{second}"
    if schedule is None:
        line = (
            "<p>No layer has five pixels along a side or more and filters that vary: there is no schedule to fit.</p>"
        )
    else:
        fitted = f"σ(d) = {schedule.sigma0:.3g} {_signed(schedule.v)} d {_signed(schedule.a / 2)} d²"
        keys += f"; {key(0)}the nearest schedule {fitted}"
        line = f"<p>How good that is: {text(str(schedule.fit))}.</p>"
        if schedule.fit.usable:
            line += "<p>To start another network with filters like these:</p>" + copyable(inspection.paste_line())
    return f"<h2>σ across depth</h2>{figure(chart, keys)}{line}"


def sigma_chart(layers: Sequence[LayerNumbers], schedule: QuadraticSchedule | None, *, others: Sequence[float]) -> str:
    """Return σ of each layer over depth as dots, and the fitted schedule as a line; `others` are a second target's."""
    curve = [(float(d), schedule(float(d))) for d in np.linspace(0, 1, 101)] if schedule else []
    sigmas = [[layer.sigma for layer in layers], others]
    finite = [s for s in (*sigmas[0], *others, *(s for _, s in curve)) if math.isfinite(s)] or [0.1, 1.0]
    plot = Plot(
        Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0)),
        decades(min(finite), max(finite)),
        label="σ of each layer over relative depth, with the fitted schedule",
        x_label="relative depth d",
        y_label="σ",
    )
    plot.line(curve)
    for colour, values in enumerate(sigmas):
        for layer, sigma in zip(layers, values, strict=False):
            if math.isfinite(sigma):
                plot.dot(layer.depth, sigma, f"{layer.name}: σ = {sigma:.3g}", colour=colour, radius=3.5)
    return plot.html()


def spectrum_chart(eigenvalues: Array, closed: Array) -> str:
    """Return both spectra over the largest learned eigenvalue, on a logarithmic scale of four decades."""
    top = float(eigenvalues[0]) if len(eigenvalues) and eigenvalues[0] > 0 else 1.0
    n, scale = len(eigenvalues), decades(1e-4, 1.0)
    plot = Plot(
        Axis(1.0, float(max(n, 2)), (1, n)),
        scale,
        label="spectrum of the covariance and of the closed form",
        x_label="eigenvalue",
        y_label="λ / λ₁",
        height=190,
    )
    for colour, values in ((1, closed), (0, eigenvalues)):
        shares = [(float(rank), float(value) / top) for rank, value in enumerate(values, start=1)]
        plot.line([(rank, min(share, 1.0)) for rank, share in shares if share > scale.low], colour=colour)
    return plot.html()


def _numbers(inspection: Inspection, comparisons: Sequence[LayerComparison], against: str) -> str:
    head = list(COLUMNS)
    rows = [_row(layer) for layer in inspection.layers]
    if comparisons:
        head += ["cosine", "scale"]
        rows = [[*row, show(c.cosine), show(c.scale)] for row, c in zip(rows, comparisons, strict=True)]
    meanings = "".join(f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning in COLUMNS.items() if meaning)
    if comparisons:
        meanings += (
            f"<dt>cosine</dt><dd>between this covariance and that of {text(against)} at the same depth, resized where "
            f"kernels differ</dd><dt>scale</dt><dd>size of the weights of {text(against)} over these, without their "
            "means</dd>"
        )
    explained = f"<details><summary>What the numbers mean</summary><dl>{meanings}</dl></details>"
    return f'<h2>In numbers</h2><div id="numbers">{table(head, rows)}</div>{explained}'


def _row(layer: LayerNumbers) -> list[str]:
    return [
        f'<a href="#layer-{layer.index}">{layer.index + 1}. {text(layer.name)}</a>',
        _size(layer),
        str(layer.statistics.count),
        _unless_chance(layer, show(layer.sigma)),
        _unless_chance(layer, f"{show(layer.likeness)} ({show(layer.chance_likeness)})"),
        show(layer.centredness),
        show(layer.kronecker_residual),
        show(layer.mean_share),
    ]


def _card(
    inspection: Inspection,
    layer: LayerNumbers,
    other: LayerComparison | None,
    against: str,
    rng: np.random.Generator,
) -> str:
    cov, size = layer.statistics.covariance, layer.kernel_size
    limit = style.covariance_limit(cov)
    fitted = layer.closed_form()
    thin = f"; one pixel in {math.ceil(max(size) / FINEST)}" if max(size) > FINEST else ""

    def drawn(matrix: Array, scale: float, caption: str) -> str:
        picture = covariance_picture(matrix, size, limit=scale, size=LARGE)
        return figure(picture.html(f"{caption}, {layer.name}"), f"{text(caption)}, ±{scale:.2g}{thin}")

    shown = [drawn(cov, limit, "covariance"), drawn(fitted, limit, f"closed form, σ = {show(layer.sigma)}")]
    if other is not None:
        resized = " (resized)" if other.resized else ""
        own = style.covariance_limit(other.other.covariance)
        shown.append(drawn(other.other.covariance, own, f"{against}{resized}: {other.other.name}"))
    shown += [_filters(caption, stack, layer) for caption, stack in shown_filters(inspection, layer, rng)]
    variance = variance_picture(layer.pixel_variance, size=SMALL).html(f"variance by pixel, {layer.name}")
    shown.append(figure(variance, f"variance by pixel, centred {show(layer.centredness)}"))
    keys = f"{key(0)}layer {key(1)}closed form"
    shown.append(figure(spectrum_chart(layer.eigenvalues, layer.closed_form_eigenvalues), f"spectrum: {keys}"))
    facts = [
        ("σ", layer.sigma),
        ("likeness", layer.likeness),
        ("Kronecker", layer.kronecker_residual),
    ]
    if other is not None:
        facts += [("cosine", other.cosine), ("scale", other.scale)]
    listed = "".join(f"<span>{name} <b>{show(value)}</b></span>" for name, value in facts)
    return (
        f'<section class="card" id="layer-{layer.index}"><h3>{layer.index + 1}. {text(layer.name)} '
        f'<span class="quiet">{_size(layer)} · {layer.statistics.count} filters · depth {layer.depth:.2f}</span></h3>'
        f'<p class="facts">{listed}</p>{types_line(layer)}<div class="pictures">{"".join(shown)}</div></section>'
    )


def _filters(caption: str, filters: Array, layer: LayerNumbers) -> str:
    return figure(filters_picture(filters, size=LARGE).html(f"{caption}, {layer.name}"), caption)


def _unless_chance(layer: LayerNumbers, shown: str) -> str:
    return shown if layer.above_chance else f'<span class="quiet">{shown}</span>'


def _size(layer: LayerNumbers) -> str:
    return show_size(layer.kernel_size).replace("x", "×")


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'} {round(abs(value), 4):.3g}"
