"""The page of `filtercov inspect`: the network at a glance, a few numbers a layer, then every layer in pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.lab.report.charts import SHARES, Axis, Plot, key, legend, log_axis
from filtercov.lab.report.inspect_numbers import Inspection, LayerComparison, LayerNumbers, show
from filtercov.lab.report.inspect_target import Target
from filtercov.lab.report.page import Origin, copyable, figure, folded, heading, note, page, table, text
from filtercov.lab.report.pictures import BLOCKS, SHOWN, covariance_picture, filters_picture, sampled, variance_picture
from filtercov.printable import counted
from filtercov.schedule import QuadraticSchedule
from filtercov.statistics.receptive_field import ReceptiveField
from filtercov.structure import Number, spectrum

THUMB, LARGE = 136, 280  # widths of pictures

MEANINGS = {
    "σ": "of the closed form most like the layer's covariance",
    "likeness": "cosine between that closed form and the covariance, 1 if they are the same up to scale; in brackets "
    "that of as many independent filters, to which some σ is always the nearest; grey if it is no more than that",
    "rank": "e to the power of the entropy of the spectrum, the number of directions in which filters vary (by chance)",
    "centred": "1 if all variance is in the central pixel, 0 if every pixel varies alike, below 0 if the rim does more",
    "mean": "share of the filters' power that lies in their mean",
    "cosine": "between the covariances of the two at the same depth, resized where kernels differ",
    "scale": "size of the second one's weights over these, without their means",
}
MORE = {
    "sparsity": ("near zero", "share of filters none of whose weights exceeds 1 % of the layer's largest"),
    "orthogonality": ("orthogonal", "1 − the root-mean-square cosine between two filters; 1 if all are orthogonal"),
    "even": ("even", "share of the filters' power that half a turn leaves as it is; the rest is odd"),
    "gaussian_derivatives": (
        "derivatives",
        "share of filters of which a Gaussian or a derivative of one up to the second order explains four fifths",
    ),
}


def inspection_page(
    inspection: Inspection,
    *,
    against: Target | None = None,
    comparisons: Sequence[LayerComparison] = (),
    notes: Sequence[str] = (),
    origin: Origin | None = None,
) -> str:
    """Return the page; `comparisons`, one per layer, put the target `against` beside it."""
    targets = [inspection.target] if against is None else [inspection.target, against]
    title = " against ".join(target.label for target in targets)
    paired: list[LayerComparison | None] = list(comparisons) or [None] * len(inspection.layers)
    rng = np.random.default_rng(0)
    sections = [
        heading(title, text(finding(inspection, comparisons))),
        *map(note, notes),
        _overview(inspection, against, comparisons),
        _schedule(inspection, comparisons, targets[-1].label),
        _numbers(inspection, comparisons),
        _fields([(target.label, target.field) for target in targets]),
        "<h2>Layer by layer</h2>",
        *(_card(layer, other, targets, rng) for layer, other in zip(inspection.layers, paired, strict=True)),
    ]
    return page(f"{title} · filtercov", "\n".join(sections), origin=origin)


def finding(inspection: Inspection, comparisons: Sequence[LayerComparison] = ()) -> str:
    """Return the result in a sentence or two."""
    layers = inspection.layers
    sizes = " and ".join(dict.fromkeys(layer.size for layer in layers))
    alike = [layer for layer in layers if layer.above_chance]
    words = f"A {inspection.target.kind} with {counted(len(layers), 'depthwise layer')} of {sizes} filters. "
    if alike:
        sigmas = [layer.sigma for layer in alike]
        words += f"{len(alike)} of {len(layers)} are more like the closed form than independent filters are"
        words += f", with σ from {min(sigmas):.2g} to {max(sigmas):.2g}."
    else:
        words += "No layer is more like the closed form than independent filters are."
    cosines = [each.cosine for each in comparisons if math.isfinite(each.cosine)]
    if cosines:
        mean = sum(cosines) / len(cosines)
        words += f" The covariances of the two have a cosine of {show(mean)} on average; 1 is the same up to scale."
    return words


def shown_filters(layer: LayerNumbers, target: Target, rng: np.random.Generator) -> tuple[str, Array]:
    """Return the strongest filters of a layer with a caption, or drawn ones where there are statistics alone."""
    filters = target.filters.get(layer.name)
    if filters is None:
        drawn = sampled(layer.statistics.covariance, layer.kernel_size, rng, mean=layer.statistics.mean)
        return "filters drawn from the statistics, which hold none", drawn
    power = np.square(filters).sum(axis=tuple(range(1, filters.ndim)))
    strongest = filters[np.argsort(-power, kind="stable")[:SHOWN]]
    return f"strongest {counted(len(strongest), 'filter')}, each on its own scale", strongest


def _overview(inspection: Inspection, against: Target | None, comparisons: Sequence[LayerComparison]) -> str:
    rows = [(inspection.target.label, inspection.layers)]
    if against is not None:
        rows.append((against.label, tuple(each.other for each in comparisons)))
    strips = []
    for label, layers in rows:
        named = f"<h3>{text(label)}</h3>" if against is not None else ""
        thumbs = "".join(
            f'<a href="#layer-{layer.index}" title="{text(layer.name)}">{_thumb(layer)}'
            f"<span>{layer.index + 1}</span></a>"
            for layer in layers
        )
        strips.append(f'{named}<nav class="strip" aria-label="layers of {text(label)}">{thumbs}</nav>')
    return f'<h2>Covariances by depth</h2>{"".join(strips)}<p class="quiet">{BLOCKS}</p>'


def _thumb(layer: LayerNumbers) -> str:
    picture = covariance_picture(layer.statistics.covariance, layer.kernel_size, size=THUMB)
    return picture.html(f"covariance of {layer.name}")


def _schedule(inspection: Inspection, comparisons: Sequence[LayerComparison], against: str) -> str:
    layers, schedule = inspection.layers, inspection.schedule
    chart = sigma_chart(layers, schedule, others=[each.other.sigma for each in comparisons])
    keys = [("σ of each layer", key(0, "mark"))] + ([(against, key(1, "mark"))] if comparisons else [])
    if schedule is None:
        words = (
            "<p>No layer has five pixels along a side or more and filters that vary: there is no schedule to fit.</p>"
        )
    else:
        fitted = f"σ(d) = {schedule.sigma0:.3g} {_signed(schedule.v)} d {_signed(schedule.a / 2)} d²"
        keys.append((f"nearest schedule, {fitted}", key(0)))
        words = f"<p>The nearest schedule, {text(fitted)}: {text(schedule.fit)}.</p>"
        if line := inspection.paste_line():
            words += f"<p>To start another network with filters like these:</p>{copyable(line)}"
        elif inspection.too_wide and schedule.fit.usable:
            words += note(
                "It is not offered as a start: its σ exceeds the side of a kernel, so filters would be nearly flat."
            )
        else:
            words += note("It says too little of these layers to start another network with it.")
    return f'<h2>σ across depth</h2><div class="pairs">{figure(chart + legend(keys), "")}<div>{words}</div></div>'


def sigma_chart(layers: Sequence[LayerNumbers], schedule: QuadraticSchedule | None, *, others: Sequence[float]) -> str:
    """σ of each layer over depth as dots, and the fitted schedule as a line; `others` are a second target's."""
    curve = [(float(d), schedule(float(d))) for d in np.linspace(0, 1, 101)] if schedule else []
    sigmas = [[layer.sigma for layer in layers], others]
    finite = [s for s in (*sigmas[0], *others, *(s for _, s in curve)) if math.isfinite(s)] or [0.1, 1.0]
    label = "σ of each layer over relative depth, with the fitted schedule"
    plot = Plot(SHARES, log_axis(min(finite), max(finite)), label=label, x_label="relative depth d", y_label="σ")
    plot.line(curve)
    for colour, values in enumerate(sigmas):
        for layer, sigma in zip(layers, values, strict=False):
            if math.isfinite(sigma):
                plot.dot(layer.depth, sigma, f"{layer.name}: σ = {sigma:.3g}", colour=colour, radius=3.5)
    return plot.html()


def spectrum_chart(spectra: Sequence[Array]) -> str:
    """Spectra, each over its largest eigenvalue, on a logarithmic scale of four decades."""
    n, scale = len(spectra[0]), log_axis(1e-4, 1.0)
    ranks = sorted({1, max(2, n // 4), max(2, n // 2), max(2, 3 * n // 4), max(2, n)})
    label = "spectrum of the covariance"
    plot = Plot(Axis(1.0, float(max(n, 2)), ranks), scale, label=label, x_label="rank", y_label="eigenvalue, λ / λ₁")
    for colour, eigenvalues in enumerate(spectra):
        top = float(eigenvalues[0]) if eigenvalues[0] > 0 else 1.0
        shares = [(float(rank), float(value) / top) for rank, value in enumerate(eigenvalues, start=1)]
        plot.line([(rank, share) for rank, share in shares if share > scale.low], colour=colour)
    return plot.html()


def _numbers(inspection: Inspection, comparisons: Sequence[LayerComparison]) -> str:
    head = ["layer", "size", "filters", "σ", "likeness", "rank", "centred", "mean"]
    rows = [
        [
            _link(layer),
            layer.size,
            str(layer.statistics.count),
            _grey(show(layer.sigma), unless=layer.above_chance),
            _grey(f"{show(layer.likeness)} ({show(layer.chance_likeness)})", unless=layer.above_chance),
            _beside_chance(layer.structure.effective_rank, digits=1),
            show(layer.centredness),
            show(layer.mean_share),
        ]
        for layer in inspection.layers
    ]
    if comparisons:
        head += ["cosine", "scale"]
        rows = [[*row, show(each.cosine), show(each.scale)] for row, each in zip(rows, comparisons, strict=True)]
    more = [
        [
            _link(layer),
            *(_beside_chance(layer.structure.numbers()[name]) for name in MORE),
            show(layer.kronecker_residual),
            text(_types(layer)),
        ]
        for layer in inspection.layers
    ]
    meanings = {**{name: MEANINGS[name] for name in head if name in MEANINGS}, **dict(MORE.values())}
    meanings["Kronecker"] = "residual of the nearest A⊗A, as a share of the covariance's size"
    meanings["types"] = "the kinds of Gaussian derivatives, where there are more than chance has"
    listed = "".join(f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning in meanings.items())
    rest = table(["layer", *(name for name, _ in MORE.values()), "Kronecker", "types"], more)
    return (
        f'<h2>In numbers</h2><div id="numbers">{table(head, rows)}</div>'
        f'<div id="more">{folded("More numbers, in brackets what independent filters show", rest)}</div>'
        f"{folded('What the numbers mean', f'<dl>{listed}</dl>')}"
    )


def _types(layer: LayerNumbers) -> str:
    structure = layer.structure
    if not structure.types or not structure.gaussian_derivatives.beyond_chance:
        return ""
    found = sorted(((share, kind) for kind, share in structure.types.items() if share >= 0.005), reverse=True)
    return ", ".join(f"{kind} {share:.0%}" for share, kind in found)


def _fields(fields: Sequence[tuple[str, ReceptiveField | None]]) -> str:
    shown = [_field(name, field) for name, field in fields if field is not None]
    if not shown:
        return ""
    how = (
        "Which pixels of an example input the centre of the last feature map depends on: its squared gradient, as a "
        "root so that faint parts show. The radius is the root-mean-square distance from the field's own centre."
    )
    return f'<h2>Effective receptive field</h2><p>{how}</p><div class="pictures" id="field">{"".join(shown)}</div>'


def _field(name: str, field: ReceptiveField) -> str:
    drawn = np.sqrt(field.shares)
    if drawn.ndim == 1:
        drawn = np.repeat(drawn[None], max(1, len(drawn) // 8), axis=0)
    picture = variance_picture(drawn, size=LARGE).html(f"effective receptive field of {name}")
    radius = field.radius
    words = f"{text(name)}: radius {show(radius.value, digits=1)} of at most {show(field.widest, digits=1)} pixels"
    if radius.chance is not None:
        beside = "against the" if radius.beyond_chance else "no other than the"
        words += f", {beside} {show(radius.chance, digits=1)} of independent filters"
    elif radius.reason:
        words += f"; {text(radius.reason)}"
    return figure(picture, words)


def _card(
    layer: LayerNumbers, other: LayerComparison | None, targets: Sequence[Target], rng: np.random.Generator
) -> str:
    """Return a layer in pictures: with closed form and spectrum, or beside the layer of the other target."""
    closed = _covariance(layer.closed_form, layer, f"closed form, σ = {show(layer.sigma)}")
    variance = figure(
        variance_picture(layer.pixel_variance, size=LARGE // 2).html(f"variance by pixel, {layer.name}"),
        "variance by pixel",
    )
    spectra = [spectrum(layer.statistics.covariance), spectrum(layer.closed_form)]
    keys = [("layer", key(0)), ("closed form", key(1))]
    if other is not None:
        spectra.append(spectrum(other.other.statistics.covariance))
        keys.append((targets[1].label, key(2)))
    shown = figure(spectrum_chart(spectra) + legend(keys), "spectra, each over its largest eigenvalue")
    own = _pictures(layer, targets[0], rng)
    if other is None:
        body = f'<div class="quarters">{own}{closed}{shown}</div>'
        rest = variance
    else:
        resized = " (resized)" if other.resized else ""
        named = f"<h4>{text(targets[1].label)}{resized}: {text(other.other.name)}</h4>"
        theirs = f'{named}<div class="pair">{_pictures(other.other, targets[1], rng)}</div>'
        body = (
            f'<div class="pairs"><div><h4>{text(targets[0].label)}</h4><div class="pair">{own}</div></div>'
            f"<div>{theirs}</div></div>"
        )
        rest = closed + shown + variance
    if not math.isnan(layer.sigma):
        drawn = filters_picture(sampled(layer.closed_form, layer.kernel_size, rng), size=LARGE)
        rest += figure(drawn.html(f"drawn from the closed form, {layer.name}"), "filters drawn from the closed form")
    facts = [("σ", layer.sigma), ("likeness", layer.likeness), ("by chance", layer.chance_likeness)]
    facts += [] if other is None else [("cosine", other.cosine), ("scale", other.scale)]
    listed = "".join(f"<span>{name} <b>{show(value)}</b></span>" for name, value in facts)
    more = f'<div class="pictures">{rest}</div>'
    about = f"{layer.size} · {counted(layer.statistics.count, 'filter')} · depth {layer.depth:.2f}"
    return (
        f'<section class="card" id="layer-{layer.index}"><h3>{layer.index + 1}. {text(layer.name)} '
        f'<span class="quiet">{about}</span></h3>{body}<p class="facts">{listed}</p>'
        f"{folded('More pictures', more)}</section>"
    )


def _pictures(layer: LayerNumbers, target: Target, rng: np.random.Generator) -> str:
    caption, filters = shown_filters(layer, target, rng)
    drawn = filters_picture(filters, size=LARGE).html(f"{caption}, {layer.name}, {target.label}")
    return _covariance(layer.statistics.covariance, layer, "covariance") + figure(drawn, text(caption))


def _covariance(cov: Array, layer: LayerNumbers, caption: str) -> str:
    picture = covariance_picture(cov, layer.kernel_size, size=LARGE)
    cut = f"; {picture.cut}" if picture.cut else ""
    return figure(picture.html(f"{caption}, {layer.name}"), f"{text(caption)}{cut}")


def _beside_chance(number: Number, *, digits: int = 2) -> str:
    if number.value is None:
        return f'<span class="quiet" title="{text(number.reason)}">–</span>'
    shown = f"{show(number.value, digits=digits)} ({show(number.chance, digits=digits)})"
    return _grey(shown, unless=number.beyond_chance)


def _grey(shown: str, *, unless: bool) -> str:
    return shown if unless else f'<span class="quiet">{shown}</span>'


def _link(layer: LayerNumbers) -> str:
    return f'<a href="#layer-{layer.index}">{layer.index + 1}. {text(layer.name)}</a>'


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'} {round(abs(value), 4):.3g}"
