"""The page of `filtercov inspect`: the network at a glance, a few numbers a layer, then every layer in pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.lab.report.charts import SHARES, Axis, Plot, key, legend, log_axis
from filtercov.lab.report.inspect_numbers import Inspection, LayerComparison, LayerNumbers, show
from filtercov.lab.report.inspect_target import Target
from filtercov.lab.report.page import Origin, copyable, figure, folded, heading, note, numbered, page, table, text
from filtercov.lab.report.pictures import BLOCKS, SHOWN, covariance_picture, filters_picture, sampled, variance_picture
from filtercov.printable import counted
from filtercov.structure import Number, spectrum

THUMB, LARGE = 160, 380  # widths of pictures


def inspection_page(inspection: Inspection, *, origin: Origin | None = None) -> str:
    """The page of a target, with the target `against` beside it where there is one."""
    title = " against ".join(target.label for target in _targets(inspection))
    layers, rng = inspection.layers, np.random.default_rng(0)
    sizes = " and ".join(dict.fromkeys(layer.size for layer in layers))
    comparisons: Sequence[LayerComparison | None] = inspection.comparisons or [None] * len(layers)
    sections = [
        heading(title, text(finding(inspection))),
        f"<p>A {inspection.target.kind} with {counted(len(layers), 'depthwise layer')} of {sizes} filters.</p>",
        *map(note, inspection.notes),
        _overview(inspection),
        _schedule(inspection),
        _numbers(inspection),
        _fields(inspection),
        "<h2>Layer by layer</h2>",
        *(_card(inspection, layer, other, rng) for layer, other in zip(layers, comparisons, strict=True)),
    ]
    return page(f"{title} · filtercov", "\n".join(sections), origin=origin)


def finding(inspection: Inspection) -> str:
    """The result in a sentence, or two of two targets."""
    layers = inspection.layers
    alike = [layer.sigma for layer in layers if layer.above_chance]
    words = "No layer is more like the closed form than independent filters are."
    if alike:
        words = f"{len(alike)} of {counted(len(layers), 'layer')} {'is' if len(alike) == 1 else 'are'} more like the "
        words += f"closed form than independent filters are, with σ from {min(alike):.2g} to {max(alike):.2g}."
    cosines = [each.cosine for each in inspection.comparisons if math.isfinite(each.cosine)]
    if cosines:
        mean = show(sum(cosines) / len(cosines))
        words = f"The covariances of the two have a cosine of {mean} on average; 1 is the same up to scale. {words}"
    return words


def shown_filters(layer: LayerNumbers, target: Target, rng: np.random.Generator) -> tuple[str, Array]:
    """The strongest filters of a layer with a caption, or drawn ones where there are statistics alone."""
    filters = target.filters.get(layer.name)
    if filters is None:
        drawn = sampled(layer.statistics.covariance, layer.kernel_size, rng, mean=layer.statistics.mean)
        return "filters drawn from the statistics, which hold none", drawn
    power = np.square(filters).sum(axis=tuple(range(1, filters.ndim)))
    strongest = filters[np.argsort(-power, kind="stable")[:SHOWN]]
    return f"strongest {counted(len(strongest), 'filter')}, each on its own scale", strongest


def _targets(inspection: Inspection) -> list[Target]:
    return [target for target in (inspection.target, inspection.against) if target is not None]


def _overview(inspection: Inspection) -> str:
    rows = [inspection.layers, tuple(each.other for each in inspection.comparisons)]
    strips = []
    for target, layers in zip(_targets(inspection), rows, strict=False):
        label = text(target.label)
        thumbs = "".join(
            f'<a href="#layer-{layer.index}" title="{text(layer.name)}">{_thumb(layer)}'
            f"<span>{layer.index + 1}</span></a>"
            for layer in layers
        )
        named = f"<h3>{label}</h3>" if inspection.against else ""
        strips.append(f'{named}<nav class="strip" aria-label="layers of {label}">{thumbs}</nav>')
    return f'<h2>Covariances by depth</h2>{"".join(strips)}<p class="quiet">{BLOCKS}</p>'


def _thumb(layer: LayerNumbers) -> str:
    picture = covariance_picture(layer.statistics.covariance, layer.kernel_size, size=THUMB)
    return picture.html(f"covariance of {layer.name}")


def _schedule(inspection: Inspection) -> str:
    layers, schedule, against = inspection.layers, inspection.schedule, inspection.against
    curve = [(float(d), schedule(float(d))) for d in np.linspace(0, 1, 101)] if schedule else []
    sigmas = [[layer.sigma for layer in layers], [each.other.sigma for each in inspection.comparisons]]
    finite = [s for s in (*sigmas[0], *sigmas[1], *(s for _, s in curve)) if math.isfinite(s)] or [0.1, 1.0]
    label = "σ of each layer over relative depth, with the fitted schedule"
    plot = Plot(SHARES, log_axis(min(finite), max(finite)), label=label, x_label="relative depth d", y_label="σ")
    plot.line(curve)
    for colour, values in enumerate(sigmas):
        for layer, sigma in zip(layers, values, strict=False):
            if math.isfinite(sigma):
                plot.dot(layer.depth, sigma, f"{layer.name}: σ = {sigma:.3g}", colour=colour, radius=3.5)
    keys = [("σ of each layer", key(0, "mark"))]
    keys += [(against.label, key(1, "mark"))] if against else []
    words = "<p>No layer has five pixels along a side or more and filters that vary: there is no schedule to fit.</p>"
    if schedule is not None:
        keys.append(("nearest schedule", key(0)))
        fitted = f"σ(d) = {schedule.sigma0:.3g} {_signed(schedule.v)} d {_signed(schedule.a / 2)} d²"
        words = f"<p>The nearest schedule is {text(fitted)}.</p><p>The finding: {text(schedule.fit)}.</p>"
        if line := inspection.paste_line():
            words += f"<p>To start another network with filters like these:</p>{copyable(line)}"
        else:
            flat = "its σ exceeds the side of a kernel, so filters would be nearly flat"
            why = flat if schedule.fit.usable else "it says too little of these layers"
            words += note(f"It is not offered as a start for another network: {why}.")
    chart = figure(plot.html() + legend(keys), "")
    return f'<h2>σ across depth</h2><div class="pairs">{chart}<div>{words}</div></div>'


Columns = Mapping[str, Callable[[LayerNumbers], str]]
COLUMNS: Columns = {
    "size": lambda layer: layer.size,
    "filters": lambda layer: str(layer.statistics.count),
    "σ": lambda layer: _grey(show(layer.sigma), unless=layer.above_chance),
    "likeness": lambda layer: _grey(
        f"{show(layer.likeness)} ({show(layer.chance_likeness)})", unless=layer.above_chance
    ),
    "rank": lambda layer: _beside_chance(layer.structure.effective_rank, digits=1),
    "centred": lambda layer: show(layer.centredness),
    "mean": lambda layer: show(layer.mean_share),
}
FOLDED: Columns = {
    "near zero": lambda layer: _beside_chance(layer.structure.sparsity),
    "even": lambda layer: _beside_chance(layer.structure.even),
    "Kronecker": lambda layer: show(layer.kronecker_residual),
}
MEANINGS = {
    "σ": "of the closed form most like the layer's covariance",
    "likeness": "cosine between that closed form and the covariance, 1 if they are the same up to scale",
    "rank": "e to the power of the entropy of the spectrum: the number of directions in which filters vary",
    "centred": "1 if all variance is in the central pixel, 0 if every pixel varies alike, below 0 if the rim does more",
    "mean": "share of the filters' power that is in their mean",
    "cosine": "between the covariances of two targets at the same depth, resized where kernels differ",
    "scale": "size of the second target's weights over these, without their means",
    "near zero": "share of filters none of whose weights exceeds 1 % of the layer's largest",
    "even": "share of the filters' power that half a turn leaves as it is; the rest is odd",
    "Kronecker": "residual of the nearest A⊗A, as a share of the covariance's size",
    "(…)": "the same of as many independent filters; a number is grey if it is no more than that",
}


def _numbers(inspection: Inspection) -> str:
    links = {numbered(layer.index, layer.name, f"#layer-{layer.index}"): layer for layer in inspection.layers}
    rows, more = (
        [[link, *(cell(layer) for cell in columns.values())] for link, layer in links.items()]
        for columns in (COLUMNS, FOLDED)
    )
    for row, other in zip(rows, inspection.comparisons, strict=False):
        row += [show(other.cosine), show(other.scale)]
    main = table(["layer", *COLUMNS, *(["cosine", "scale"] if inspection.against else [])], rows)
    listed = "".join(f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning in MEANINGS.items())
    return (
        f'<h2>In numbers</h2><div id="numbers">{main}</div>'
        f'<div id="more">{folded("More numbers", table(["layer", *FOLDED], more))}</div>'
        f"{folded('What the numbers mean', f'<dl>{listed}</dl>')}"
    )


def _fields(inspection: Inspection) -> str:
    shown = []
    for target in _targets(inspection):
        if (field := target.field) is not None:
            drawn, name = np.sqrt(field.shares), text(target.label)
            if drawn.ndim == 1:
                drawn = np.repeat(drawn[None], max(1, len(drawn) // 8), axis=0)
            radius, widest = field.radius, show(field.widest, digits=1)
            words = f"{name}: radius {show(radius.value, digits=1)} of at most {widest} pixels"
            if radius.chance is not None:
                beside = "against the" if radius.beyond_chance else "no other than the"
                words += f", {beside} {show(radius.chance, digits=1)} of independent filters"
            picture = variance_picture(drawn, size=LARGE)
            shown.append(figure(picture.html(f"effective receptive field of {target.label}"), words))
    how = (
        "Which pixels of an example input the centre of the last feature map depends on: its squared gradient, as a "
        "root so that faint parts show. The radius is the root-mean-square distance from the field's own centre."
    )
    section = f'<h2>Effective receptive field</h2><p>{how}</p><div class="pairs" id="field">{"".join(shown)}</div>'
    return section if shown else ""


def _card(inspection: Inspection, layer: LayerNumbers, other: LayerComparison | None, rng: np.random.Generator) -> str:
    """A layer in pictures: beside its closed form, or beside the layer of the other target."""
    closed = _covariance(layer.closed_form, layer, f"closed form, σ = {show(layer.sigma)}")
    spectra = {"layer": layer.statistics.covariance, "closed form": layer.closed_form}
    own = _pictures(layer, inspection.target, rng)
    body = f'<div class="thirds">{own}{closed}</div>'
    facts = {"σ": layer.sigma, "likeness": layer.likeness, "by chance": layer.chance_likeness}
    rest = ""
    if other is not None and inspection.against is not None:
        label = inspection.against.label
        spectra[label] = other.other.statistics.covariance
        named = f"<h4>{text(label)}{' (resized)' if other.resized else ''}: {text(other.other.name)}</h4>"
        theirs = f'{named}<div class="pair">{_pictures(other.other, inspection.against, rng)}</div>'
        body = (
            f'<div class="pairs"><div><h4>{text(inspection.target.label)}</h4><div class="pair">{own}</div></div>'
            f"<div>{theirs}</div></div>"
        )
        facts |= {"cosine": other.cosine, "scale": other.scale}
        rest = closed
    rest += figure(spectrum_chart(spectra), "spectra, each over its largest eigenvalue")
    drawn = filters_picture(sampled(layer.closed_form, layer.kernel_size, rng), size=LARGE)
    rest += figure(drawn.html(f"drawn from the closed form, {layer.name}"), "filters drawn from the closed form")
    more = f'<div class="thirds">{rest}</div>'
    listed = "".join(f"<span>{name} <b>{show(value)}</b></span>" for name, value in facts.items())
    about = f"{layer.size} · {counted(layer.statistics.count, 'filter')} · depth {layer.depth:.2f}"
    return (
        f'<section class="card" id="layer-{layer.index}"><h3>{layer.index + 1}. {text(layer.name)} '
        f'<span class="quiet">{about}</span></h3><p class="facts">{listed}</p>{body}'
        f"{folded('More pictures', more)}</section>"
    )


def spectrum_chart(covariances: Mapping[str, Array]) -> str:
    """Spectra by name, each over its largest eigenvalue, on a logarithmic scale of four decades, with a legend."""
    spectra = {name: spectrum(cov) for name, cov in covariances.items()}
    n, scale = len(next(iter(spectra.values()))), log_axis(1e-4, 1.0)
    ranks = sorted({1, *(max(2, round(n * quarter / 4)) for quarter in (1, 2, 3, 4))})
    axis = Axis(1.0, float(ranks[-1]), ranks)
    plot = Plot(axis, scale, label="spectrum of the covariance", x_label="rank", y_label="eigenvalue, λ / λ₁")
    for colour, eigenvalues in enumerate(spectra.values()):
        shares = eigenvalues / (max(float(eigenvalues[0]), 0.0) or 1.0)
        plot.line([(rank, float(x)) for rank, x in enumerate(shares, start=1) if x > scale.low], colour=colour)
    return plot.html() + legend([(name, key(colour)) for colour, name in enumerate(spectra)])


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


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'} {round(abs(value), 4):.3g}"
