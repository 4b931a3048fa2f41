"""`filtercov inspect` as functions: look at anything with depthwise filters, and write down what is seen.

The page has the network at a glance, a few numbers a layer, then every layer in pictures.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import SourceError
from filtercov.lab.report import page
from filtercov.lab.report.charts import SHARES, Plot, legend, log_axis
from filtercov.lab.report.inspect_target import Target, find_target, model_target, read_watched
from filtercov.lab.report.pictures import BLOCKS, SHOWN, covariance_picture, filters_picture, sampled, shown_size
from filtercov.lab.report.watched import WatchedReport, show_alike
from filtercov.printable import counted
from filtercov.schedule import FittedSchedule, fit_schedule, relative_depth
from filtercov.statistics.filter_statistics import FilterStatistics
from filtercov.structure import centredness, kronecker_residual, spectrum

Record = dict[str, Any]  # the numbers of a layer; None stands for what its covariance does not determine


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """A target, measured, ready to be written as a page or as numbers.

    `layers` are the numbers of its layers in forward order, also those of the comparison with the target `against` if
    there is one, which has the depths and kernels of these layers. `schedule` is None where none can be fitted.
    """

    target: Target
    layers: list[Record]
    schedule: FittedSchedule | None
    against: Target | None = None

    @property
    def targets(self) -> list[Target]:
        """The target, and the one it is compared with."""
        return [self.target, self.against] if self.against else [self.target]

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the target, and on the one it is compared with."""
        theirs = () if self.against is None else (f"{self.against.label}: {note}" for note in self.against.notes)
        return (*self.target.notes, *theirs)

    @property
    def unusable(self) -> str:
        """Why the fitted schedule should not start another network; empty if it may."""
        if self.schedule is None:
            return "no layer has five pixels along a side or more and filters that vary: there is no schedule to fit"
        if not self.schedule.fit.usable:
            return "it says too little of these layers"
        sides = [max(layer.kernel_size) for layer in self.target.statistics]
        flat = any(self.schedule(layer["depth"]) > side for layer, side in zip(self.layers, sides, strict=True))
        return "its σ exceeds the side of a kernel, so filters would be nearly flat" if flat else ""

    def paste_line(self) -> str:
        """Python that initialises another model with the fitted schedule, empty where that is not sane."""
        if self.schedule is None or self.unusable:
            return ""
        s = self.schedule.short()
        return f"filtercov.init_(model, filtercov.QuadraticSchedule({s.sigma0!r}, {s.v!r}, {s.a!r}))"

    def as_json(self) -> dict[str, Any]:
        """Every number of the page."""
        about = {"target": self.target.label, "kind": self.target.kind, "notes": list(self.notes)}
        schedule: dict[str, Any] | None = None
        if s := self.schedule:
            schedule = {"sigma0": s.sigma0, "v": s.v, "a": s.a, "likeness": s.fit.likeness}
            schedule |= {"usable": not self.unusable, "finding": str(s.fit)}
        against = {"against": self.against.label} if self.against else {}
        return about | {"schedule": schedule, "layers": self.layers} | against

    def page(self, *, command: str = "") -> str:
        """The HTML page, which ends with the `command` that made it."""
        title, rng = " against ".join(target.label for target in self.targets), np.random.default_rng(0)
        sizes = " and ".join(dict.fromkeys(shown_size(layer.kernel_size) for layer in self.target.statistics))
        return page.page(
            title,
            f"<p>A {self.target.kind} with {counted(len(self.layers), 'depthwise layer')} of {sizes} filters.</p>",
            *map(page.note, self.notes),
            _overview(self),
            _schedule(self),
            _numbers(self),
            "<h2>Layer by layer</h2>",
            *(_card(self, index, rng) for index in range(len(self.layers))),
            lead=_finding(self),
            command=command,
        )


def measure_target(target: Target, against: Target | None = None) -> Report:
    """Measure every depthwise layer of a target, and compare each with the layer of `against` at its depth."""
    try:
        schedule = fit_schedule(target.statistics)
    except SourceError:  # no kernel is large enough to tell a σ
        schedule = None
    if schedule is not None and not schedule.fit.layers:  # to filters that do not vary any schedule is as near
        schedule = None
    other = None if against is None else carried_over(against, target)
    return Report(target, measure(target, other), schedule, other)


def measure(target: Target, against: Target | None = None) -> list[Record]:
    """The numbers of every layer: those of `FilterStatistics.to_records`, a few more, and the spectrum.

    Beside a target that was carried over to these layers, `cosine` is that between the two covariances as vectors, 1 if
    one is a multiple of the other, and `scale` the root-mean-square size of the other's weights over this one's, their
    means left out; `resized` tells whether the other had kernels of another size.
    """
    records = []
    for layer, record in zip(target.statistics, target.statistics.to_records(), strict=True):
        mean, spread = float(layer.mean @ layer.mean), float(np.trace(layer.covariance))
        more = {
            "centredness": centredness(layer.covariance, layer.kernel_size),
            "kronecker_residual": kronecker_residual(layer.covariance, layer.kernel_size),
            "mean_share": mean / (mean + spread) if mean + spread else math.nan,
        }
        known = {name: None if math.isnan(value) else value for name, value in more.items()}
        records.append({**record, **known, "eigenvalues": spectrum(layer.covariance).tolist()})
    if against is None:
        return records
    pairs = zip(target.statistics, against.statistics, against.statistics.to_records(), strict=True)
    for record, (layer, other, theirs) in zip(records, pairs, strict=True):
        own, cov = layer.covariance, other.covariance
        norms, spread = float(np.linalg.norm(own) * np.linalg.norm(cov)), float(np.trace(own))
        record["cosine"] = float(np.vdot(own, cov)) / norms if norms else None
        record["scale"] = math.sqrt(max(float(np.trace(cov)), 0.0) / spread) if spread else None
        record |= {"other": other.name, "other_sigma": theirs["sigma"], "resized": other.resized is not None}
    return records


def carried_over(other: Target, target: Target) -> Target:
    """The other target at the depths of this one's layers, resized to their kernels."""
    count = len(target.statistics)
    found = (
        other.statistics.at(relative_depth(index, count), layer.kernel_size)
        for index, layer in enumerate(target.statistics)
    )
    return replace(other, statistics=FilterStatistics(tuple(found)))


def look(target: str, *, against: str | None = None, untrained: bool = False) -> Report | WatchedReport:
    """Measure a target, and compare it with another, each a path or the name of a model.

    A watched run is shown over time; with `against` the ends of the two are compared. A run's directory stands for its
    weights where it has some, else for what was watched of it.

    >>> report = look("convmixer_16_2_k5_p2")
    >>> [layer["kernel_size"] for layer in report.as_json()["layers"]]
    ['5x5', '5x5']
    """
    if against is None and (run := read_watched(Path(target))):
        return WatchedReport(*run)
    own = find_target(target, untrained=untrained)
    other = None if against is None else find_target(against, untrained=untrained)
    if other is not None and own.label == other.label:  # files of one name are told apart as they were typed
        own, other = replace(own, label=target), replace(other, label=str(against))
    return measure_target(own, other)


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
    report = measure_target(own, other)
    if out is not None:
        page.write_output(out, report.page())
    return report


def _finding(report: Report) -> str:
    """The result in a sentence, or two of two targets."""
    layers = report.layers
    alike = [layer["sigma"] for layer in layers if layer["likeness_beyond_chance"]]
    spread = f", with σ from {min(alike):.2g} to {max(alike):.2g}" if alike else ""
    words = f"{show_alike(len(alike), len(layers))}{spread}."
    cosines = [x for layer in layers if (x := layer.get("cosine")) is not None]
    if cosines:
        mean = page.number(sum(cosines) / len(cosines))
        words = f"The covariances of the two have a cosine of {mean} on average; 1 is the same up to scale. {words}"
    return words


def _overview(report: Report) -> str:
    strips = []
    for target in report.targets:
        label = page.text(target.label)
        thumbs = ""
        for index, layer in enumerate(target.statistics):
            picture = covariance_picture(layer.covariance, layer.kernel_size)
            drawn = f"{picture.html(f'covariance of {layer.name}')}<span>{index + 1}</span>"
            thumbs += f'<a href="#layer-{index}" title="{page.text(layer.name)}">{drawn}</a>'
        named = f"<h3>{label}</h3>" if report.against else ""
        strips.append(f'{named}<nav class="strip" aria-label="layers of {label}">{thumbs}</nav>')
    return f'<h2>Covariances by depth</h2>{"".join(strips)}<p class="quiet">{BLOCKS}</p>'


def _schedule(report: Report) -> str:
    schedule = report.schedule
    curve = [(float(d), schedule(float(d))) for d in np.linspace(0, 1, 101)] if schedule else []
    dots = [
        (colour, layer["depth"], sigma, layer[name])
        for colour, (name, number) in enumerate((("name", "sigma"), ("other", "other_sigma")))
        for layer in report.layers
        if (sigma := layer.get(number)) is not None
    ]
    sigmas = [*(sigma for _, _, sigma, _ in dots), *(sigma for _, sigma in curve)]
    label = "σ of each layer over relative depth, with the fitted schedule"
    plot = Plot(SHARES, log_axis(sigmas), label=label, x_label="relative depth d", y_label="σ")
    plot.line(curve)
    for colour, depth, sigma, name in dots:
        plot.dot(depth, sigma, f"{name}: σ = {sigma:.3g}", colour=colour, radius=3.5)
    keys = [("σ of each layer", "mark s0")]
    keys += [(report.against.label, "mark s1")] if report.against else []
    words = ""
    if schedule:
        keys.append(("nearest schedule", "line s0"))
        s = schedule.short()
        fitted = f"σ(d) = {s.sigma0:.3g} {s.v:+.3g} d {s.a / 2:+.3g} d²".replace("+", "+ ").replace("-", "− ")
        words = f"<p>The nearest schedule is {page.text(fitted)}.</p><p>The finding: {page.text(schedule.fit)}.</p>"
    if report.unusable:
        words += page.note(f"It is not offered as a start for another network: {report.unusable}.")
    else:
        words += f"<p>To start another network with filters like these:</p>{page.copyable(report.paste_line())}"
    chart = page.figure(plot.html() + legend(keys), "")
    return f'<h2>σ across depth</h2><div class="pairs">{chart}<div>{words}</div></div>'


MEANINGS = {
    "σ": "of the closed form most like the layer's covariance",
    "likeness": "cosine between that closed form and the covariance, 1 if they are the same up to scale",
    "rank": "e to the power of the entropy of the spectrum: the number of directions in which filters vary",
    "centred": "1 if all variance is in the central pixel, 0 if every pixel varies alike, below 0 if the rim does more",
    "Kronecker": "residual of the nearest A⊗A, as a share of the covariance's size",
    "mean": "share of the filters' power that is in their mean",
    "cosine": "between the covariances of two targets at the same depth, resized where kernels differ",
    "scale": "size of the second target's weights over these, without their means",
    "(…)": "the same number for as many independent filters; grey if no more than that",
}


def _numbers(report: Report) -> str:
    others = {"centred": "centredness", "Kronecker": "kronecker_residual", "mean": "mean_share"}
    others |= {"cosine": "cosine", "scale": "scale"} if report.against else {}
    rows = []
    for index, n in enumerate(report.layers):
        alike, ranked = n["likeness_beyond_chance"], n["effective_rank_beyond_chance"]
        likeness = f"{page.number(n['likeness'])} ({page.number(n['likeness_chance'])})"
        rank, by_chance = (page.number(n[f"effective_rank{end}"], digits=1) for end in ("", "_chance"))
        named, size = page.numbered(index, n["name"], f"#layer-{index}"), n["kernel_size"].replace("x", "×")
        cells = [_grey(page.number(n["sigma"]), unless=alike), _grey(likeness, unless=alike)]
        cells.append(_grey(f"{rank} ({by_chance})", unless=ranked))
        rows.append([named, size, n["filters"], *cells, *(page.number(n[number]) for number in others.values())])
    main = page.table(["layer", "size", "filters", "σ", "likeness", "rank", *others], rows)
    listed = "".join(f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning in MEANINGS.items())
    meanings = page.folded("What the numbers mean", f"<dl>{listed}</dl>")
    return f'<h2>In numbers</h2><div id="numbers">{main}</div>{meanings}'


def _grey(shown: str, *, unless: bool | None) -> str:
    return shown if unless else f'<span class="quiet">{shown}</span>'


def _card(report: Report, index: int, rng: np.random.Generator) -> str:
    """A layer in pictures: beside its closed form, or beside the layer of the other target."""
    n, layer = report.layers[index], report.target.statistics[index]
    sigma, size = n["sigma"], layer.kernel_size
    nearest = np.zeros_like(layer.covariance) if sigma is None else gaussian_covariance(size, sigma)
    closed = _covariance(replace(layer, covariance=nearest), f"closed form, σ = {page.number(sigma)}")
    body = f'<div class="thirds">{_pictures(report.target, index, rng)}{closed}</div>'
    if report.against:
        named = f"{report.against.label}{' (resized)' if n['resized'] else ''}: {n['other']}"
        body = f"<h4>{page.text(report.target.label)}</h4>{body}<h4>{page.text(named)}</h4>"
        body += f'<div class="thirds">{_pictures(report.against, index, rng)}</div>'
    names = {"σ": "sigma", "likeness": "likeness", "by chance": "likeness_chance", "cosine": "cosine", "scale": "scale"}
    facts = {name: n[number] for name, number in names.items() if number in n}
    listed = "".join(f"<span>{name} <b>{page.number(value)}</b></span>" for name, value in facts.items())
    about = f"{shown_size(size)} · {counted(layer.count, 'filter')} · depth {n['depth']:.2f}"
    return (
        f'<section class="card" id="layer-{index}"><h3>{index + 1}. {page.text(layer.name)} '
        f'<span class="quiet">{about}</span></h3><p class="facts">{listed}</p>{body}</section>'
    )


def _pictures(target: Target, index: int, rng: np.random.Generator) -> str:
    """The covariance of a layer, and its strongest filters, or drawn ones where there are statistics alone."""
    layer = target.statistics[index]
    filters = target.filters.get(layer.name)
    if filters is None:
        caption = "filters drawn from the statistics, which hold none"
        filters = sampled(layer.covariance, layer.kernel_size, rng, mean=layer.mean)
    else:
        power = np.square(filters).sum(axis=tuple(range(1, filters.ndim)))
        filters = filters[np.argsort(-power, kind="stable")[:SHOWN]]
        caption = f"strongest {counted(len(filters), 'filter')}, each on its own scale"
    drawn = filters_picture(filters).figure(caption, of=f"{caption}, {layer.name}, {target.label}")
    return _covariance(layer, "covariance") + drawn


def _covariance(layer: LayerStatistics, caption: str) -> str:
    return covariance_picture(layer.covariance, layer.kernel_size).figure(caption, of=f"{caption}, {layer.name}")
