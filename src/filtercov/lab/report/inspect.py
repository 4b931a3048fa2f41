"""`filtercov inspect` as functions: look at anything with depthwise filters, and write down what is seen.

The page has the network at a glance, a few numbers a layer, then every layer in pictures.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from filtercov.covariance.forms import Array
from filtercov.errors import SourceError
from filtercov.files import Source, files_sha256
from filtercov.lab.report.charts import SHARES, Axis, Plot, key, legend, log_axis
from filtercov.lab.report.inspect_numbers import (
    Inspection,
    LayerComparison,
    LayerNumbers,
    measure_target,
    show,
    shown_filters,
)
from filtercov.lab.report.inspect_target import (
    RUN_FILES,
    Target,
    find_target,
    load_watched,
    model_target,
    run_label,
    watched_path,
)
from filtercov.lab.report.page import (
    Origin,
    copyable,
    figure,
    folded,
    heading,
    note,
    numbered,
    page,
    table,
    text,
    write_output,
)
from filtercov.lab.report.pictures import BLOCKS, covariance_picture, filters_picture, sampled
from filtercov.lab.report.sheets import animation, layer_sheets
from filtercov.lab.report.watched import History, measure_run, most_moments, watched_page
from filtercov.printable import counted
from filtercov.statistics.watched import START, Watched
from filtercov.structure import spectrum

THUMB, LARGE = 160, 380  # widths of pictures


@dataclass(frozen=True, eq=False)
class Report:
    """A measured target, alone or beside another, ready to be written as a page, as pictures or as numbers."""

    inspection: Inspection

    def __repr__(self) -> str:
        return f"<Report of {self.inspection.target.statistics!r}>"

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the target, and on the one it is compared with."""
        return self.inspection.notes

    def page(self, *, command: str = "") -> str:
        """The HTML page, which ends with its sources and the `command` that made it."""
        sources = tuple(source for target in self.inspection.targets for source in target.sources)
        return _page(self.inspection, Origin(sources, command))

    def as_json(self) -> dict[str, Any]:
        """Every number of the page."""
        return self.inspection.as_json()

    def write_pngs(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write overview.png and a sheet per layer, layer-01.png and so on; return their paths."""
        sheets = layer_sheets(self.inspection)
        return [write_output(Path(directory) / name, png) for name, png in sheets.items()]


@dataclass(frozen=True, eq=False)
class WatchedReport:
    """A watched run, ready to be written as a page, an animation, numbers or a table."""

    label: str
    watched: Watched
    source: Source

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the files."""
        return self.watched.notes

    @cached_property
    def history(self) -> History:
        """The run at as many of its moments as fit on a page, evenly spaced."""
        watched = self.watched
        places = np.linspace(0, len(watched) - 1, min(len(watched), most_moments(watched))).round().astype(int)
        return measure_run(self.label, watched, [watched[int(place)] for place in places])

    def page(self, *, command: str = "") -> str:
        """The HTML page, which ends with its source and the `command` that made it."""
        return watched_page(self.history, origin=Origin((self.source,), command))

    def as_json(self) -> dict[str, Any]:
        """Every number at every moment, also of those that a page has no room for."""
        return measure_run(self.label, self.watched, list(self.watched)).as_json()

    def table(self) -> tuple[list[list[str]], list[str]]:
        """A row for each layer, below a heading, and sentences to stand under them."""
        return self.history.table(), self.history.findings()

    def write_animation(self, path: str | os.PathLike[str]) -> Path:
        """Write the moments one after another: a GIF if the path ends in .gif, else an animated PNG."""
        return write_output(path, animation(self.history, gif=Path(path).suffix.lower() == ".gif"))


def look(
    target: str, *, against: str | None = None, untrained: bool = False, animate: bool = False
) -> Report | WatchedReport:
    """Measure a target, and compare it with another, each a path or the name of a model.

    A watched run is shown over time; with `against` the ends of the two are compared. A run's directory stands for its
    weights where it has some, or for what was watched of it if it is to `animate`.

    >>> report = look("convmixer_16_2_k5_p2")
    >>> [layer["kernel_size"] for layer in report.as_json()["layers"]]
    [[5, 5], [5, 5]]
    """
    path = Path(target)
    folder = watched_path(path)
    has_weights = any((path / name).exists() for name in RUN_FILES)
    if folder is not None and against is None and (animate or not has_weights):
        watched = load_watched(folder)
        checksum = files_sha256(folder, [folder / START, *(moment.path for moment in watched)])
        return WatchedReport(run_label(folder), watched, Source(str(folder), checksum))
    if animate:
        raise SourceError(f"{target}: needed one watched run to animate, or a run that has filters.watched in it")
    own = find_target(target, untrained=untrained)
    other = None if against is None else find_target(against, untrained=untrained)
    if other is not None and own.label == other.label:  # files of one name are told apart as they were typed
        own, other = replace(own, label=target), replace(other, label=str(against))
    return Report(measure_target(own, other))


def inspect(
    model: nn.Module,
    *,
    label: str = "",
    against: nn.Module | None = None,
    example_input: Any = None,
    out: str | os.PathLike[str] | None = None,
) -> Report:
    """Look at the depthwise filters of a model in memory; with `out`, also write the page there.

    `against` is another model to set beside it. `example_input` traces the order in which layers run.

    >>> report = inspect(nn.Sequential(nn.Conv2d(16, 16, 7, groups=16)), label="mine")
    >>> "mine" in report.page()
    True
    """
    name = label or type(model).__name__
    own, other = model_target(model, name, example_input=example_input), None
    if against is not None:
        theirs = type(against).__name__
        other = model_target(against, f"{theirs} beside" if theirs == name else theirs, example_input=example_input)
    report = Report(measure_target(own, other))
    if out is not None:
        write_output(out, report.page())
    return report


def _page(inspection: Inspection, origin: Origin) -> str:
    """The page of a target, with the target `against` beside it where there is one."""
    title = " against ".join(target.label for target in inspection.targets)
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


def _overview(inspection: Inspection) -> str:
    rows = [inspection.layers, tuple(each.other for each in inspection.comparisons)]
    strips = []
    for target, layers in zip(inspection.targets, rows, strict=False):
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


COLUMNS: Mapping[str, Callable[[LayerNumbers], str]] = {
    "size": lambda layer: layer.size,
    "filters": lambda layer: str(layer.statistics.count),
    "σ": lambda layer: _grey(show(layer.sigma), unless=layer.above_chance),
    "likeness": lambda layer: _grey(
        f"{show(layer.likeness)} ({show(layer.chance_likeness)})", unless=layer.above_chance
    ),
    "rank": lambda layer: _grey(
        f"{show(layer.effective_rank.value, digits=1)} ({show(layer.effective_rank.chance, digits=1)})",
        unless=layer.effective_rank.beyond_chance,
    ),
    "centred": lambda layer: show(layer.centredness),
    "Kronecker": lambda layer: show(layer.kronecker_residual),
    "mean": lambda layer: show(layer.mean_share),
}
MEANINGS = {
    "σ": "of the closed form most like the layer's covariance",
    "likeness": "cosine between that closed form and the covariance, 1 if they are the same up to scale",
    "rank": "e to the power of the entropy of the spectrum: the number of directions in which filters vary",
    "centred": "1 if all variance is in the central pixel, 0 if every pixel varies alike, below 0 if the rim does more",
    "Kronecker": "residual of the nearest A⊗A, as a share of the covariance's size",
    "mean": "share of the filters' power that is in their mean",
    "cosine": "between the covariances of two targets at the same depth, resized where kernels differ",
    "scale": "size of the second target's weights over these, without their means",
    "(…)": "the same of as many independent filters; a number is grey if it is no more than that",
}


def _numbers(inspection: Inspection) -> str:
    rows = [
        [numbered(layer.index, layer.name, f"#layer-{layer.index}"), *(cell(layer) for cell in COLUMNS.values())]
        for layer in inspection.layers
    ]
    for row, other in zip(rows, inspection.comparisons, strict=False):
        row += [show(other.cosine), show(other.scale)]
    main = table(["layer", *COLUMNS, *(["cosine", "scale"] if inspection.against else [])], rows)
    listed = "".join(f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning in MEANINGS.items())
    meanings = folded("What the numbers mean", f"<dl>{listed}</dl>")
    return f'<h2>In numbers</h2><div id="numbers">{main}</div>{meanings}'


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


def _grey(shown: str, *, unless: bool) -> str:
    return shown if unless else f'<span class="quiet">{shown}</span>'


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'} {round(abs(value), 4):.3g}"
