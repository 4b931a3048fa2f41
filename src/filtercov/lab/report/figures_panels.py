"""The panels that figures are made of, each drawn into one axes of matplotlib, and how figures become files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from filtercov.covariance.forms import Array, KernelSize
from filtercov.lab.report import style
from filtercov.lab.report.inspect_pictures import Picture, covariance_picture, filters_picture, variance_picture
from filtercov.schedule import FittedSchedule, QuadraticSchedule

FINE = 500  # pixels across a panel, more than a printed column resolves


def show_covariance(
    axes: Axes, cov: Array, kernel_size: KernelSize, title: str = "", *, limit: float | None = None
) -> None:
    """Draw a flat covariance in block form, by default on its own symmetric scale."""
    scale = style.covariance_limit(cov) if limit is None else limit
    show_picture(axes, covariance_picture(cov, kernel_size, limit=scale, size=FINE), title)


def show_filters(axes: Axes, filters: Array, title: str = "") -> None:
    """Draw filters (count, *kernel_size) side by side, each on its own symmetric scale."""
    show_picture(axes, filters_picture(filters, size=FINE), title)


def show_variance(axes: Axes, variance: Array, title: str = "") -> None:
    """Draw the variance by pixel."""
    show_picture(axes, variance_picture(variance, size=FINE), title)


def show_picture(axes: Axes, picture: Picture, title: str = "") -> None:
    """Draw a picture without axes; its gaps are grey."""
    axes.set_facecolor("#cfd4da")
    axes.imshow(picture.rgba(), interpolation="auto")
    axes.set(xticks=[], yticks=[], title=title)
    for spine in axes.spines.values():
        spine.set_visible(False)


def show_scale(figure: Figure, axes: NDArray[Any]) -> None:
    """Draw the colour scale beside panels that each have their own limit."""
    bar = figure.colorbar(ScalarMappable(Normalize(-1, 1), style.DIVERGING), ax=axes, aspect=14, shrink=0.62, pad=0.01)
    bar.set_ticks([-1, 0, 1], labels=["−", "0", "+"])
    bar.outline.set_visible(False)


def save_figure(figure: Figure, kind: Literal["svg", "png"], *, dpi: int = 300) -> bytes:
    """Return a figure as a file: in SVG pictures keep their own pixels, in PNG they are resampled smoothly."""
    for axes in figure.get_axes():
        for shown in axes.get_images():
            shown.set_interpolation("none" if kind == "svg" else "auto")
    stream = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    with warnings.catch_warnings():  # names may be in any script; what the font lacks is an empty box
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        figure.savefig(stream, format=kind, metadata=metadata, dpi=dpi, bbox_inches="tight", pad_inches=0.03)
    return stream.getvalue()


def show_schedule(
    axes: Axes, schedule: QuadraticSchedule | None, depths: Sequence[float] = (), sigmas: Sequence[float] = ()
) -> None:
    """Draw a schedule as a line over depth, and σ of layers as dots, where they have one."""
    if schedule is not None:
        d = np.linspace(0, 1, 101)
        numbers = f"{schedule.sigma0:.3g}, {schedule.v:.3g}, {schedule.a:.3g}"
        quality = f", likeness {schedule.fit.likeness:.2f}" if isinstance(schedule, FittedSchedule) else ""
        axes.plot(d, [schedule(float(x)) for x in d], label=f"schedule ({numbers}){quality}")
    if np.isfinite(sigmas).any():
        axes.plot(depths, sigmas, "o", markersize=4, label="layers", color=style.LINES[1])
    axes.set(xlabel="relative depth $d$", ylabel="σ", xlim=(-0.02, 1.02))
    if axes.lines:
        axes.legend()
    else:
        axes.set(title="σ of no layer is determined", yticks=[])
