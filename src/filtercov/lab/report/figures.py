"""The paper's illustrations as SVG files: the construction, the schedule, covariances by depth, example filters.

They need no training; `filtercov inspect` shows learned filters. A file has its pictures and colours inside it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.lab.report.charts import COLOURS, SHARES, Plot, log_axis, standalone, svg, svg_text
from filtercov.lab.report.page import write_output
from filtercov.lab.report.pictures import Picture, construction_parts, covariance_picture, filters_picture, sampled
from filtercov.schedule import PRESETS, relative_depth

KERNEL, LAYERS = 9, 8  # the paper's ConvMixer-256/8 with 9×9 filters
FILTERS = 24  # in a panel
WIDE = 660  # units across a figure; letters are 11.5 high
INK = ' class="name"'  # of words, rather than grey
# The equation of the construction as it is read, and how wide each item is beside a picture.
EQUATION = (
    ("Σ", 1.0), ("= ½ [", 0.8), ("M", 1.0), ("⊙ (", 0.46), ("C", 1.0), ("−", 0.3), ("S", 1.0), (") +", 0.46),
    ("C", 1.0), ("⊙", 0.32), ("S", 1.0), ("]", 0.2),
)  # fmt: skip
ROLES = {"Σ": "covariance", "M": "mask", "C": "dynamic", "S": "static"}


def write_figures(directory: str | os.PathLike[str]) -> list[Path]:
    """Draw every figure into a directory as SVG, and return the paths."""
    figures = {
        "construction": construction_figure(),
        "schedule": schedule_figure(),
        "covariances": sheet({"": [*by_depth().values()]}, [*by_depth()], label="covariances by depth"),
        "filters": filters_figure(),
    }
    return [write_output(Path(directory) / f"{name}.svg", figure) for name, figure in figures.items()]


def construction() -> dict[str, Picture]:
    """The parts of a covariance by name, all but Σ on the scale from -1 to 1."""
    parts = construction_parts(7, math.pi / 2)
    return {name: covariance_picture(part, 7, limit=None if name == "Σ" else 1.0) for name, part in parts.items()}


def by_depth() -> dict[str, Picture]:
    """The closed form's covariances by depth, each on its own scale, by their σ."""
    sigmas = [PRESETS["figure"](relative_depth(i, LAYERS)) for i in range(LAYERS)]
    return {f"σ = {sigma:.2g}": covariance_picture(gaussian_covariance(KERNEL, sigma), KERNEL) for sigma in sigmas}


def construction_figure() -> str:
    """The construction as an equation of pictures."""
    parts = construction()
    side = WIDE / sum(width for _, width in EQUATION)
    drawn, left, top = [], 0.0, 18
    for name, width in EQUATION:
        middle = left + width * side / 2
        if name in parts:
            drawn += [parts[name].svg(left, top, side), svg_text(middle, 12, name, attributes=INK)]
            drawn.append(svg_text(middle, top + side + 15, ROLES[name], attributes=INK))
        else:
            drawn.append(svg_text(middle, top + side / 2 + 6, name, attributes=f'{INK} style="font-size: 18px"'))
        left += width * side
    return standalone(svg(drawn, top + side + 22, "the covariance as an equation of pictures", width=WIDE))


def schedule_figure() -> str:
    """σ over depth for each setting of the paper, on a logarithmic scale, named at the end of its line."""
    ends = sorted(((schedule(1.0), name) for name, schedule in PRESETS.items()), reverse=True)
    sigmas = [schedule(d) for schedule in PRESETS.values() for d in (0.0, 1.0)]
    formula = "σ(d) = σ₀ + v d + ½ a d²"
    plot = Plot(SHARES, log_axis(sigmas), label=formula, x_label="relative depth d", y_label=formula)
    names, free = [], 0.0
    for number, (end, name) in enumerate(ends):
        schedule = PRESETS[name]
        dashed = (number + number // COLOURS) % 2  # two of one colour differ in this
        points = [(float(d), schedule(float(d))) for d in np.linspace(0, 1, 101)]
        plot.line(points, "line dashed" if dashed else "line", colour=number)
        across, down = plot.at(1.0, end)
        free = max(down + 4, free + 13)  # names must not touch
        words = f"{name} ({schedule.sigma0:g}, {schedule.v:g}, {schedule.a:g})"
        look = f' class="s{number % COLOURS}" style="fill: currentColor"'
        names.append(svg_text(across + 6, free, words, "start", attributes=look))
    return standalone(svg([plot.html(), *names], 220, "σ over depth for each setting of the paper", width=520))


def filters_figure() -> str:
    """Example filters in rows by depth: PyTorch's uniform ones, and those drawn from the closed form."""
    rng, rows = np.random.default_rng(0), {}
    for d in (0.0, 0.5, 1.0):
        sigma = PRESETS["cifar-p2"](d)
        uniform = rng.uniform(-1, 1, size=(FILTERS, KERNEL, KERNEL))
        drawn = sampled(gaussian_covariance(KERNEL, sigma), (KERNEL, KERNEL), rng, count=FILTERS)
        rows[f"d = {d:g}, σ = {sigma:.2g}"] = [filters_picture(f, columns=6) for f in (uniform, drawn)]
    return sheet(rows, ["uniform initialisation", "closed form"], label="uniform and closed-form filters by depth")


def sheet(rows: Mapping[str, Sequence[Picture]], above: Sequence[str], *, label: str) -> str:
    """Pictures in rows, each with its name beside it, as an SVG file; `above` are the titles of the columns.

    `label` says in words what they show.
    """
    left, gap, top = 20 if any(rows) else 0, 8, 18.0
    side = (WIDE - left + gap) / len(above) - gap
    drawn = [svg_text(left + (side + gap) * n + side / 2, 12, words, attributes=INK) for n, words in enumerate(above)]
    for name, row in rows.items():
        height = max(picture.height(side) for picture in row)
        drawn += [picture.svg(left + (side + gap) * n, top, side) for n, picture in enumerate(row)]
        turned = f' transform="translate(12 {top + height / 2:.1f}) rotate(-90)"'
        drawn.append(svg_text(0, 0, name, attributes=INK + turned))
        top += height + gap
    return standalone(svg(drawn, top - gap, label, width=WIDE))
