"""The paper's illustrations for print, as SVG and PNG: the construction, the schedule, covariances, example filters.

They need no training; `filtercov inspect` shows learned filters. This is the one place that draws with matplotlib:
pages have charts.py, which follows the reader's window and colours.
"""

from __future__ import annotations

import io
import math
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.covariance.forms import Array, KernelSize
from filtercov.lab.report import pictures
from filtercov.lab.report.page import write_output
from filtercov.schedule import PRESETS, relative_depth

KINDS: tuple[Literal["svg", "png"], ...] = ("svg", "png")
KERNEL, LAYERS = 9, 8  # the paper's ConvMixer-256/8 with 9×9 filters
FILTERS = 24  # in a panel
FINE = 500  # pixels across a panel, more than a printed column resolves
COLUMN_WIDTH = 5.5  # inches, the text width of the paper
# Wong's palette, made for colour-blind readers, without its yellow, which is too pale for lines.
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# The equation of the construction as it is read, and how wide each item is beside a picture.
EQUATION = (
    ("Σ", 1.0), ("= ½ [", 0.76), ("M", 1.0), ("⊙ (", 0.42), ("C", 1.0), ("−", 0.26), ("S", 1.0), (") +", 0.42),
    ("C", 1.0), ("⊙", 0.28), ("S", 1.0), ("]", 0.2),
)  # fmt: skip
STYLE: Any = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "lines.linewidth": 1.5,
    "mathtext.fontset": "dejavusans",
    "svg.fonttype": "path",
    "svg.hashsalt": "filtercov",  # the same figure is the same file
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}


def styled() -> AbstractContextManager[None]:
    """Draw in the house style inside this context."""
    return mpl.rc_context(STYLE)


def write_figures(directory: str | os.PathLike[str]) -> list[Path]:
    """Draw every figure into a directory, as SVG and as PNG, and return the paths."""
    with styled():
        figures = {
            "construction": construction_figure(7, math.pi / 2),
            "schedule": schedule_figure(),
            "covariances": covariances_figure(),
            "filters": filters_figure(),
        }
        return [
            write_output(Path(directory) / f"{name}.{kind}", save_figure(figure, kind))
            for name, figure in figures.items()
            for kind in KINDS
        ]


def save_figure(figure: Figure, kind: Literal["svg", "png"], *, dpi: int = 300) -> bytes:
    """A figure as a file: in SVG pictures keep their own pixels, in PNG they are resampled smoothly."""
    for axes in figure.get_axes():
        for shown in axes.get_images():
            shown.set_interpolation("none" if kind == "svg" else "auto")
    stream = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    figure.savefig(stream, format=kind, metadata=metadata, dpi=dpi, bbox_inches="tight", pad_inches=0.03)
    return stream.getvalue()


def construction_figure(kernel_size: int, sigma: float) -> Figure:
    """The construction as an equation of pictures, all parts but Σ on the scale from -1 to 1."""
    parts = pictures.construction_parts(kernel_size, sigma)
    roles = {"Σ": "covariance", "M": "mask", "C": "dynamic", "S": "static"}
    total = sum(width for _, width in EQUATION)
    side = COLUMN_WIDTH / total  # of a picture, in inches
    above, below = 0.22, 0.2
    whole = side + above + below
    figure = Figure(figsize=(COLUMN_WIDTH, whole))
    left = 0.0
    for name, width in EQUATION:
        if name in parts:
            axes = figure.add_axes((left / total, below / whole, width / total, side / whole))
            show_covariance(axes, parts[name], kernel_size, name, limit=None if name == "Σ" else 1.0)
            axes.set_xlabel(roles[name], labelpad=3)
        else:
            middle = (left + width / 2) / total, (below + side / 2) / whole
            figure.text(*middle, name, ha="center", va="center", fontsize=11)
        left += width
    return figure


def schedule_figure() -> Figure:
    """σ over depth for each setting of the paper, on a logarithmic scale, named at the end of its line."""
    figure = new_figure(2.6)
    axes = figure.subplots()
    d = np.linspace(0, 1, 101)
    styles = ["-", "--", "-.", ":"]
    height = -math.inf
    for i, (end, name) in enumerate(sorted((schedule(1.0), name) for name, schedule in PRESETS.items())):
        schedule = PRESETS[name]
        colour = LINES[i % len(LINES)]
        axes.semilogy(d, [schedule(float(x)) for x in d], styles[i % len(styles)], color=colour)
        height = max(math.log(end), height + 0.22)  # names must not touch
        words = f"{name} ({schedule.sigma0:g}, {schedule.v:g}, {schedule.a:g})"
        axes.text(1.03, math.exp(height), words, color=colour, fontsize=7, va="center")
    axes.set(xlabel="relative depth $d$", ylabel=r"$\sigma(d) = \sigma_0 + v d + \frac{1}{2} a d^2$", xlim=(0, 1))
    axes.set_yticks([0.1, 0.3, 1.0, 3.0], labels=["0.1", "0.3", "1", "3"])
    axes.minorticks_off()
    return figure


def covariances_figure() -> Figure:
    """The closed form's covariances by depth."""
    figure = new_figure(1.05)
    panels = figure.subplots(1, LAYERS)
    for i, axes in enumerate(panels):
        sigma = PRESETS["figure"](relative_depth(i, LAYERS))
        show_covariance(axes, gaussian_covariance(KERNEL, sigma), KERNEL, f"σ = {sigma:.2g}")
    bar = figure.colorbar(
        ScalarMappable(Normalize(-1, 1), pictures.DIVERGING), ax=panels, aspect=14, shrink=0.62, pad=0.01
    )
    bar.set_ticks([-1, 0, 1], labels=["−", "0", "+"])  # panels have their own limits
    bar.outline.set_visible(False)
    return figure


def filters_figure(*, seed: int = 0) -> Figure:
    """Example filters in rows by depth: PyTorch's uniform ones, and those drawn from the closed form."""
    rng = np.random.default_rng(seed)
    depths = (0.0, 0.5, 1.0)
    figure = new_figure(len(depths) * 1.85)
    for d, (left, right) in zip(depths, figure.subplots(len(depths), 2), strict=True):
        sigma = PRESETS["cifar-p2"](d)
        uniform = rng.uniform(-1, 1, size=(FILTERS, KERNEL, KERNEL))
        drawn = pictures.sampled(gaussian_covariance(KERNEL, sigma), (KERNEL, KERNEL), rng, count=FILTERS)
        show_filters(left, uniform, "uniform initialisation" if d == 0 else "")
        show_filters(right, drawn, "closed form" if d == 0 else "")
        left.set_ylabel(f"$d$ = {d:g}, σ = {sigma:.2g}")
    return figure


def show_covariance(
    axes: Axes, cov: Array, kernel_size: KernelSize, title: str = "", *, limit: float | None = None
) -> None:
    """Draw a flat covariance in block form, by default on its own symmetric scale."""
    _show_picture(axes, pictures.covariance_picture(cov, kernel_size, limit=limit, size=FINE), title)


def show_filters(axes: Axes, filters: Array, title: str = "") -> None:
    """Draw filters (count, k, k) side by side, each on its own symmetric scale."""
    _show_picture(axes, pictures.filters_picture(filters, columns=6, size=FINE), title)


def _show_picture(axes: Axes, picture: pictures.Picture, title: str) -> None:
    axes.set_facecolor("#cfd4da")  # of the gaps
    axes.imshow(picture.rgba(), interpolation="auto")
    axes.set(xticks=[], yticks=[], title=title)
    for spine in axes.spines.values():
        spine.set_visible(False)


def new_figure(height: float) -> Figure:
    """An empty figure as wide as a column, `height` inches high; it needs no display and no clean-up."""
    return Figure(figsize=(COLUMN_WIDTH, height), layout="constrained")
