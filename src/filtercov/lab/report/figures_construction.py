"""The construction as an equation of pictures: Σ = ½ [M ⊙ (C − S) + C ⊙ S]."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from filtercov.covariance.closed_form import axis_gaussians, gaussian_covariance
from filtercov.covariance.forms import Array
from filtercov.lab.report import style
from filtercov.lab.report.figures_panels import show_covariance

# The equation as it is read, and how wide each item is beside a picture.
ROW = (
    ("Σ", 1.0), ("= ½ [", 0.76), ("M", 1.0), ("⊙ (", 0.42), ("C", 1.0), ("−", 0.26), ("S", 1.0), (") +", 0.42),
    ("C", 1.0), ("⊙", 0.28), ("S", 1.0), ("]", 0.2),
)  # fmt: skip


def construction_parts(kernel_size: int, sigma: float) -> dict[str, Array]:
    """Return the mask M, the dynamic C and the static S of the paper in flat form, and Σ made of them.

    >>> p = construction_parts(5, 1.0)
    >>> bool(np.allclose(p["Σ"], 0.5 * (p["M"] * (p["C"] - p["S"]) + p["C"] * p["S"])))
    True
    """
    g, G = axis_gaussians(kernel_size, sigma)
    z, ones = np.kron(g, g), np.ones(kernel_size**2)
    return {
        "Σ": gaussian_covariance(kernel_size, sigma),
        "M": np.outer(z, ones),
        "C": np.kron(G, G),
        "S": np.outer(ones, z),
    }


def construction_figure(kernel_size: int, sigma: float) -> Figure:
    """Return the equation in one line, all parts but Σ on the scale from -1 to 1."""
    parts = construction_parts(kernel_size, sigma)
    roles = {"Σ": "covariance", "M": "mask", "C": "dynamic", "S": "static"}
    total = sum(width for _, width in ROW)
    side = style.COLUMN_WIDTH / total  # of a picture, in inches
    above, below = 0.22, 0.2
    whole = side + above + below
    figure = Figure(figsize=(style.COLUMN_WIDTH, whole))
    left = 0.0
    for name, width in ROW:
        if name in parts:
            axes = figure.add_axes((left / total, below / whole, width / total, side / whole))
            show_covariance(axes, parts[name], kernel_size, name, limit=None if name == "Σ" else 1.0)
            axes.set_xlabel(roles[name], labelpad=3)
        else:
            middle = (left + width / 2) / total, (below + side / 2) / whole
            figure.text(*middle, name, ha="center", va="center", fontsize=11)
        left += width
    return figure
