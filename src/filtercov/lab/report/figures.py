"""The paper's illustrations: the construction, the schedule, covariances by depth, example filters.

They need no training; given a target, the learned covariances and filters are set beside the constructed ones.
"""

from __future__ import annotations

import math
import os
import textwrap
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.covariance.forms import Array
from filtercov.covariance.likeness import chance_likeness, likeness
from filtercov.covariance.transfer import LayerStatistics
from filtercov.lab.report import style
from filtercov.lab.report.figures_construction import construction_figure
from filtercov.lab.report.figures_panels import save_figure, show_covariance, show_filters, show_scale
from filtercov.lab.report.inspect_numbers import show
from filtercov.lab.report.inspect_pictures import sampled
from filtercov.lab.report.inspect_target import Target
from filtercov.lab.report.page import write_output
from filtercov.schedule import PRESETS, FittedSchedule, fit_schedule, relative_depth

KINDS: tuple[Literal["svg", "png"], ...] = ("svg", "png")
SMALL = 6.5  # points, of what stands under a panel
KERNEL, LAYERS = 9, 8  # what is drawn where there is no target: the paper's ConvMixer-256/8 with 9×9 filters


def write_figures(directory: str | os.PathLike[str], target: Target | None = None, *, seed: int = 0) -> list[Path]:
    """Draw every figure into a directory, as SVG and as PNG, and return the paths."""
    with style.styled():
        figures = {
            "construction": construction_figure(7, math.pi / 2),
            "schedule": schedule_figure(),
            "covariances": covariances_figure(target),
            "filters": filters_figure(target, seed=seed),
        }
        return [
            write_output(Path(directory) / f"{name}.{kind}", save_figure(figure, kind))
            for name, figure in figures.items()
            for kind in KINDS
        ]


def schedule_figure() -> Figure:
    """Return σ over depth for each setting of the paper, on a logarithmic scale, named at the end of its line."""
    figure = style.new_figure(style.COLUMN_WIDTH, 2.6)
    axes = figure.subplots()
    d = np.linspace(0, 1, 101)
    styles = ["-", "--", "-.", ":"]
    ends = sorted((schedule(1.0), name) for name, schedule in PRESETS.items())
    heights = _apart([math.log(end) for end, _ in ends], least=0.22)
    for i, ((_, name), height) in enumerate(zip(ends, heights, strict=True)):
        schedule = PRESETS[name]
        colour = style.LINES[i % len(style.LINES)]
        axes.semilogy(d, [schedule(float(x)) for x in d], styles[i % len(styles)], color=colour)
        numbers = f"{schedule.sigma0:g}, {schedule.v:g}, {schedule.a:g}"
        axes.text(1.03, math.exp(height), f"{name} ({numbers})", color=colour, fontsize=7, va="center")
    axes.set(xlabel="relative depth $d$", ylabel=r"$\sigma(d) = \sigma_0 + v d + \frac{1}{2} a d^2$", xlim=(0, 1))
    axes.set_yticks([0.1, 0.3, 1.0, 3.0], labels=["0.1", "0.3", "1", "3"])
    axes.minorticks_off()
    return figure


def covariances_figure(target: Target | None) -> Figure:
    """Return covariances by depth: the closed form's, and above them the learned ones of a target."""
    if target is None:
        schedule = PRESETS["figure"]
        figure = style.new_figure(style.COLUMN_WIDTH, 1.05)
        axes = figure.subplots(1, LAYERS)
        for i, panel in enumerate(axes):
            sigma = schedule(relative_depth(i, LAYERS))
            show_covariance(panel, gaussian_covariance(KERNEL, sigma), KERNEL, f"σ = {sigma:.2g}")
        show_scale(figure, axes)
        return figure
    layers, schedule = target.statistics.layers, fitted_to(target)
    chosen = _chosen(target, LAYERS)
    judged = bool(schedule.fit.layers)
    figure = style.new_figure(style.COLUMN_WIDTH, 2.5 if judged else 1.4)
    rows = figure.subplots(2 if judged else 1, len(chosen), squeeze=False)
    rows[0, 0].set_ylabel("learned")
    for axes, i in zip(rows[0], chosen, strict=True):
        show_covariance(axes, layers[i].covariance, layers[i].kernel_size, f"layer {i + 1}")
    words = textwrap.wrap(f"The schedule: {schedule.fit}.", 110)
    if judged:
        rows[1, 0].set_ylabel("closed form")
        for axes, i in zip(rows[1], chosen, strict=True):
            layer, sigma = layers[i], schedule(relative_depth(i, len(layers)))
            show_covariance(axes, gaussian_covariance(layer.kernel_size, sigma), layer.kernel_size, f"σ = {sigma:.2g}")
            axes.set_xlabel("{}\n({})".format(*_quality(layer, sigma)), fontsize=SMALL)
        meaning = "Under each σ the likeness of its closed form to the layer's covariance, in brackets that of chance."
        words = [meaning, *words]
    figure.supxlabel("\n".join(words), fontsize=SMALL)
    show_scale(figure, rows)
    return figure


def filters_figure(target: Target | None, *, seed: int = 0) -> Figure:
    """Return example filters in rows by depth: learned, drawn from their covariance, drawn from the closed form.

    Where there is no target, or only its statistics, the columns that would need learned filters are left out and
    standard uniform filters stand in for the first; where no layer has filters that vary, there is no closed form.
    """
    rng = np.random.default_rng(seed)
    rows = [_uniform_and_closed(d, rng) for d in (0.0, 0.5, 1.0)] if target is None else _learned(target, rng)
    columns = len(rows[0][1])
    figure = style.new_figure(style.COLUMN_WIDTH, len(rows) * (1.22 if columns == 3 else 1.85))
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for (label, panels, fit), axes in zip(rows, grid, strict=True):
        for (title, filters), panel in zip(panels, axes, strict=True):
            show_filters(panel, filters, title if panel in grid[0] else "")
        axes[0].set_ylabel(label)
        axes[-1].set_xlabel(fit, fontsize=SMALL)
    return figure


Panels = list[tuple[str, Array]]
Row = tuple[str, Panels, str]  # its label, its panels, and what stands under the last of them


def _quality(layer: LayerStatistics, sigma: float) -> tuple[str, str]:
    """Return how like the closed form at `sigma` a layer is, and how like independent filters would be by chance."""
    if not layer.covariance.any():
        return show(math.nan), show(math.nan)
    found = float(likeness(layer.covariance, layer.kernel_size, sigma)[0])
    chance, _ = chance_likeness(layer.kernel_size, layer.count)
    return show(found, digits=2), show(chance, digits=2)


def _uniform_and_closed(d: float, rng: np.random.Generator) -> Row:
    sigma = PRESETS["cifar-p2"](d)
    uniform = rng.uniform(-1, 1, size=(24, KERNEL, KERNEL))
    drawn = sampled(gaussian_covariance(KERNEL, sigma), (KERNEL, KERNEL), rng)
    return f"$d$ = {d:g}, σ = {sigma:.2g}", [("uniform initialisation", uniform), ("closed form", drawn)], ""


def _learned(target: Target, rng: np.random.Generator) -> list[Row]:
    layers, schedule = target.statistics.layers, fitted_to(target)
    rows = []
    for i in _chosen(target, 3):
        layer, fit = layers[i], ""
        size = layer.kernel_size
        panels: Panels = [("drawn from their covariance", sampled(layer.covariance, size, rng, mean=layer.mean))]
        if schedule.fit.layers:
            sigma = schedule(relative_depth(i, len(layers)))
            panels.append(("closed form", sampled(gaussian_covariance(size, sigma), size, rng)))
            fit = "σ = {:.2g}, likeness {}, by chance {}".format(sigma, *_quality(layer, sigma))
        filters = target.filters.get(layer.name)
        if filters is not None:
            panels.insert(0, ("learned", filters[np.sort(rng.permutation(len(filters))[:24])]))
        rows.append((f"layer {i + 1}", panels, fit))
    return rows


def _chosen(target: Target, count: int) -> list[int]:
    """Return `count` layers spread over depth, of those large enough to have structure if there are any."""
    sizes = [max(layer.kernel_size) for layer in target.statistics.layers]
    candidates = [i for i, size in enumerate(sizes) if size >= min(5, max(sizes))]
    return [candidates[i] for i in sorted({round(x) for x in np.linspace(0, len(candidates) - 1, count)})]


def fitted_to(target: Target) -> FittedSchedule:
    """Return the schedule that is nearest to a target's layers, with how near it is."""
    largest = max(max(layer.kernel_size) for layer in target.statistics.layers)
    return fit_schedule(target.statistics, min_kernel_size=min(5, largest))


def _apart(heights: list[float], *, least: float) -> list[float]:
    """Return ascending heights moved up as little as needs be to keep labels from touching."""
    moved = heights[:1]
    for height in heights[1:]:
        moved.append(max(height, moved[-1] + least))
    return moved
