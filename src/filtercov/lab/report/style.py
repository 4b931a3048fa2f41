"""How every figure looks: one diverging colour map with white at zero, and one matplotlib style.

The map is ColorBrewer's red and blue, which readers with any common colour blindness can tell apart. Its scale is
always symmetric: white is zero, equal depths of red and blue are equal sizes of plus and minus.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from filtercov.printable import shortened

DIVERGING = "RdBu_r"
LEVELS = 255  # odd, so that zero has a colour of its own

# Wong's palette, made for colour-blind readers, without its yellow, which is too pale for lines.
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")

COLUMN_WIDTH = 5.5  # inches, the text width of the paper

STYLE: Any = {
    "axes.prop_cycle": cycler(color=LINES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "image.cmap": DIVERGING,
    "image.interpolation": "nearest",
    "legend.frameon": False,
    "legend.fontsize": 7,
    "lines.linewidth": 1.5,
    "mathtext.fontset": "dejavusans",
    "savefig.dpi": 300,
    "svg.fonttype": "path",
    "svg.hashsalt": "filtercov",  # the same figure is the same file
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the house style inside this context."""
    with mpl.rc_context(STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of that size in inches; it needs no display and no clean-up."""
    return Figure(figsize=(width, height), layout="constrained")


def show_heading(figure: Figure, text: str) -> None:
    """Put text from a file above a figure as it is: dollar signs in it are no formula, and one line is enough."""
    figure.suptitle(shortened(text, 120), parse_math=False)


def palette() -> NDArray[np.uint8]:
    """Return the colours of the diverging map from most negative to most positive: (255, 3).

    >>> palette()[127].tolist()  # zero is nearly white
    [247, 246, 246]
    """
    colours = mpl.colormaps[DIVERGING](np.linspace(0, 1, LEVELS))[:, :3]
    rounded: NDArray[np.uint8] = np.round(colours * 255).astype(np.uint8)
    return rounded


def symmetric_limit(values: ArrayLike) -> float:
    """Return the size that the ends of the colour scale stand for; 1 where there is nothing but zeros."""
    return float(np.abs(np.asarray(values, dtype=np.float64)).max(initial=0.0)) or 1.0


def covariance_limit(cov: ArrayLike) -> float:
    """Return the size that the ends of the scale stand for in a picture of a covariance (n, n).

    It is the largest covariance between two pixels, so that those show; variances beyond it have the deepest red, and
    are drawn in a picture of their own. It is at least a quarter of the largest variance, lest noise fill the picture.

    >>> covariance_limit([[4.0, -2.0], [-2.0, 3.0]]), covariance_limit(np.eye(2))
    (2.0, 0.25)
    """
    sizes = np.abs(np.asarray(cov, dtype=np.float64))
    largest = float(sizes.max(initial=0.0))
    between = float((sizes - np.diag(np.diagonal(sizes))).max(initial=0.0))
    return max(between, largest / 4) or 1.0


def levels(values: ArrayLike, limit: float) -> NDArray[np.uint8]:
    """Return which of the palette's colours each value takes on a scale from -limit to limit.

    >>> levels([-2.0, 0.0, 0.5, 1.0], 1.0).tolist()
    [0, 127, 190, 254]
    """
    middle = LEVELS // 2
    scaled = np.clip(np.asarray(values, dtype=np.float64) / limit, -1.0, 1.0)
    indices: NDArray[np.uint8] = np.round(middle + middle * scaled).astype(np.uint8)
    return indices
