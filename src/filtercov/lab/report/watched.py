"""A watched run: every layer at every moment in numbers and words, and its page with a player of the moments.

What the player draws takes a byte a number: a covariance is symmetric and drawn in 255 colours, so its upper triangle
is kept as colours on its own scale, 3.3 kB for 9x9 filters. Filters and spectra take a byte a number as well. A run of
more moments than fit is thinned out.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, takewhile
from typing import Any

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.lab.report import page, pictures
from filtercov.lab.report.charts import Plot, legend, log_axis, over, round_axis, stage
from filtercov.lab.report.pictures import Levels
from filtercov.printable import counted
from filtercov.statistics.watched import FOLLOWED, Moment, Watched
from filtercov.structure import spectrum

MOST_BYTES = 8_000_000  # of all moments on a page, before base64
MOST_MOMENTS = 200  # more cannot be told apart on a slider
DECADES = 4  # of a spectrum
DRIFT = "relative_distance"
NUMBERS = ("sigma", "likeness", "likeness_chance", "likeness_beyond_chance", DRIFT)  # that are shown
Record = dict[str, Any]  # of a layer at a moment: see `Watched.to_records`


def _beyond(record: Record) -> bool:
    return bool(record["likeness_beyond_chance"])


def show_alike(count: int, layers: int) -> str:
    """How many of the layers have structure, in words."""
    beginning = f"{count or 'None'} of {counted(layers, 'layer')} {'is' if count == 1 else 'are'}"
    return f"{beginning} more like the closed form than independent filters are"


@dataclass(frozen=True, eq=False)
class WatchedReport:
    """A watched run, measured, ready to be written as a page, numbers or a table."""

    label: str
    watched: Watched

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the files."""
        return self.watched.notes

    @cached_property
    def moments(self) -> list[Moment]:
        """As many moments as fit on a page, evenly spaced."""
        last = len(self.watched) - 1
        places = np.linspace(0, last, min(last + 1, most_moments(self.watched))).round().astype(int)
        return [self.watched[int(place)] for place in places]

    @cached_property
    def layers(self) -> list[list[Record]]:
        """The records of every layer at these moments."""
        return [list(records) for records in zip(*(moment.to_records() for moment in self.moments), strict=True)]

    @property
    def steps(self) -> list[int]:
        """The steps of the moments."""
        return [moment.step for moment in self.moments]

    def as_json(self) -> dict[str, Any]:
        """A record of every layer at every moment, also of those that a page has no room for."""
        about = {"target": self.label, "kind": "watched run", "model": self.watched.source, "notes": list(self.notes)}
        return about | {"began": self.watched.began, "records": self.watched.to_records()}

    def table(self) -> list[list[str]]:
        """A row for each layer, below a heading: σ and likeness at both ends, drift, since when there is structure.

        σ is in brackets where it says nothing: chance would have one too.
        """
        rows = [["layer", "size", "filters", "σ", "likeness", "by chance", "moved", "structure since"]]
        for number, records in enumerate(self.layers, start=1):
            first, last = records[0], records[-1]
            # Beyond chance at every moment to the last: among many moments some always stray.
            since = min((int(record["step"]) for record in takewhile(_beyond, reversed(records))), default=None)
            sigmas = []
            for record in (first, last):
                sigma = page.number(record["sigma"])
                sigmas.append(sigma if _beyond(record) or record["sigma"] is None else f"({sigma})")
            likeness = f"{page.number(first['likeness'])} → {page.number(last['likeness'])}"
            size = pictures.shown_size(self.watched.start[first["name"]].shape[1:])
            row = [f"{number}. {first['name']}", size, str(first["filters"]), " → ".join(sigmas), likeness]
            shown = "–" if since is None else "start" if since == first["step"] else str(since)
            rows.append([*row, page.number(last["likeness_chance"]), page.number(last[DRIFT]), shown])
        return rows

    @property
    def finding(self) -> str:
        """How many layers are like the closed form at both ends, in a sentence."""
        early, late = (sum(_beyond(layer[i]) for layer in self.layers) for i in (0, -1))
        words = f"{show_alike(late, len(self.layers))} at step {self.steps[-1]}"
        return f"{words}, {early or 'none'} at step {self.steps[0]}." if len(self.steps) > 1 else f"{words}."

    def page(self, *, command: str = "") -> str:
        """The HTML page, which ends with the `command` that made it."""
        watched, layers = self.watched, self.layers
        head, *rows = self.table()
        sizes = " and ".join(dict.fromkeys(row[1] for row in rows))
        what = f"{watched.source} while it trained: {counted(len(layers), 'depthwise layer')} of {sizes} filters, "
        what += f"{counted(len(watched), 'moment')} from step {watched.steps[0]} to {watched.steps[-1]}"
        what += f"; here are {len(self.moments)}, evenly spaced." if len(self.moments) < len(watched) else "."
        cells = [[page.numbered(i, layers[i][0]["name"]), *row[1:]] for i, row in enumerate(rows)]
        meaning = "In brackets: no more than chance. Moved: distance over size at the start."
        data = [_layer_data(records, self.moments) for records in layers]
        settings = {"palette": pictures.palette().tolist(), "decades": DECADES, "steps": self.steps, "layers": data}
        return page.page(
            self.label,
            f"<p>{page.text(what)}</p>",
            *map(page.note, watched.notes),
            _player(self),
            _over_time(self),
            f'<h2>In numbers</h2><p class="quiet">{meaning}</p>{page.table(head, cells)}',
            page.embedded_json("settings", settings),
            lead=self.finding,
            command=command,
            scripts=["drawing.js", "watched.js"],
        )


def most_moments(watched: Watched) -> int:
    """How many moments fit on a page: 150 of twelve layers of 9x9 filters."""
    each = 0
    for filters in watched.start.values():
        size = filters.shape[1:]
        kept = len(pictures.shown_pixels(size, 0)[1])
        each += kept * (kept + 1) // 2 + (FOLLOWED + 1) * math.prod(size)
    return int(min(max(MOST_BYTES // each, 3), MOST_MOMENTS))


def _player(run: WatchedReport) -> str:
    last = len(run.moments) - 1
    buttons = ""
    for number, layer in enumerate(run.layers, start=1):
        name = page.text(layer[0]["name"])
        named = f'aria-pressed="false" aria-label="layer {number}, {name}" title="{name}"'
        buttons += f'<button type="button" {named}><canvas class="pixels"></canvas><span>{number}</span></button>'
    most = max(len(filters) for filters in run.moments[0].filters.values())
    sigmas = [s for layer in run.layers for record in layer if (s := record["sigma"]) is not None]
    by_depth = stage("depths", [log_axis(sigmas)], x_label="relative depth d", y_label="σ")
    decades = log_axis([10.0**-DECADES, 1.0])
    spectra = stage("spectrum", [decades], x_label="rank / number of pixels", y_label="eigenvalue, λ / λ₁")
    marks = [("more like a closed form than chance", "mark s0"), ("no more than chance", "ring s0")]
    views = [
        page.figure(
            '<canvas class="pixels" id="covariance" role="img"></canvas>', 'covariance<span id="limit"></span>'
        ),
        page.figure(
            '<canvas class="pixels" id="filters" role="img"></canvas>',
            f"the same {counted(most, 'filter')} at every moment, each on its own scale",
        ),
        page.figure(spectra + legend([("now", "line s0"), ("at the first moment", "line dashed s0")]), "spectrum"),
    ]
    return f"""<section class="player" id="player" aria-label="player">
<div class="bar"><button type="button" id="play">Play</button>
<input type="range" id="moment" min="0" max="{last}" step="1" value="{last}" aria-label="moment of {last + 1}">
<output id="now" for="moment">step {run.steps[-1]}</output></div>
<div class="wide"><div><div class="strip" id="strip" role="group" aria-label="layers">{buttons}</div>
<p class="quiet">Choose a layer. Arrow keys go from moment to moment, space plays. {pictures.BLOCKS}</p></div>
{page.figure(by_depth + legend(marks), "")}</div>
<h2 id="layer-title">Layer 1</h2><p id="facts"></p>
{page.grid(views)}</section>
<noscript>{page.note("Without scripts the player stays empty; what is below needs none.")}</noscript>"""


def _over_time(run: WatchedReport) -> str:
    """σ, likeness and drift: a line for each layer, coloured by depth; a script marks one and moves the cursors."""
    drawn = {
        "σ": ("sigma", "σ of the closed form most like each layer, where it is more like it than chance"),
        "likeness": ("likeness", "likeness to that closed form, where it is more than chance"),
        "‖W − W₀‖ / ‖W₀‖": (DRIFT, "distance of the filters from the first moment; 1.41 is that of unrelated filters"),
    }
    figures = []
    for name, (number, caption) in drawn.items():
        lines: list[list[tuple[float, Any]]] = [  # None where a number says no more than chance
            [(record["step"], record[number] if number == DRIFT or _beyond(record) else None) for record in records]
            for records in run.layers
        ]
        found = [value for line in lines for _, value in line if value is not None]
        y = log_axis(found) if name == "σ" else round_axis(0.0, max(found, default=1.0) or 1.0)
        plot = Plot(over(run.steps), y, label=f"{name} of each layer over time", x_label="step", y_label=name)
        for index, line in enumerate(lines):
            marked = f' data-layer="{index}" style="--depth:{run.layers[index][0]["depth"]:.0%}"'
            for there, group in groupby(line, lambda point: point[1] is not None):
                piece = list(group) if there else []
                plot.line(piece if len(piece) > 1 else 2 * piece, attributes=marked)  # one point has round ends
        plot.cursor()
        figures.append(page.figure(plot.html(), caption))
    depths = '<p class="legend"><span><span class="depths key"></span>from the first layer to the last</span></p>'
    return f"<h2>Over time</h2>{depths}{page.grid(figures)}"


def _layer_data(records: Sequence[Record], moments: Sequence[Moment]) -> dict[str, Any]:
    name = records[0]["name"]
    covariances = [moment.statistics[name].covariance for moment in moments]
    limits = [pictures.covariance_limit(cov) for cov in covariances]
    size = moments[0].statistics[name].kernel_size
    # One for all moments; gaps are as wide as a number, too wide for blocks of three.
    margin = max(0, min(*(pictures.blank_margin(cov, size) for cov in covariances), (min(size) - 5) // 2))
    kept, pixels = pictures.shown_pixels(size, margin)
    upper = np.triu_indices(len(pixels))
    drawn = [
        pictures.levels(c[np.ix_(pixels, pixels)], limit)[upper] for c, limit in zip(covariances, limits, strict=True)
    ]
    filters = [
        pictures.levels(f, pictures.symmetric_limit(f)).ravel() for moment in moments for f in moment.filters[name]
    ]
    return {
        "name": name,
        "depth": records[0]["depth"],
        "size": size,
        "kept": [len(k) for k in kept],
        "covariances": _text(drawn),
        "limits": [float(f"{limit:.2g}") for limit in limits],
        "filters": _text(filters),
        "spectra": _text([spectrum_levels(spectrum(cov)) for cov in covariances]),
        **{number: [record[number] for record in records] for number in NUMBERS},
    }


def spectrum_levels(eigenvalues: Array) -> Levels:
    """The height of eigenvalues on a logarithmic scale that ends at the largest; 0 for those below it.

    >>> spectrum_levels(np.array([2.0, 0.02, 0.0])).tolist()
    [255, 128, 0]
    """
    top = max(float(eigenvalues.max(initial=0.0)), np.finfo(float).tiny)
    shares = np.log10(np.maximum(eigenvalues / top, 10.0**-DECADES)) / DECADES + 1
    heights: Levels = np.round(255 * shares).astype(np.uint8)
    return heights


def _text(data: Sequence[Levels]) -> str:
    return base64.b64encode(np.concatenate(data).tobytes()).decode()
