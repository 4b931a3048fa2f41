"""The charts of a watched run that need no script: numbers of every layer over the steps of training.

Lines are coloured by depth, and a script may mark one of them and move a cursor along the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from filtercov.lab.report.charts import Axis, Plot, Point, decades, over, round_axis, time_map
from filtercov.lab.report.watched_numbers import History, LayerHistory

LEGEND = '<span class="depths"></span> from the first layer to the last'


def sigma_over_time(history: History, *, together: Sequence[History]) -> str:
    """Return σ of each layer, where it is more like the closed form than chance would have it.

    Runs that are shown `together` have one scale.
    """
    found = [
        sigma
        for each in together
        for layer in each.layers
        for sigma in layer.values("sigma", beyond_chance=True)
        if math.isfinite(sigma)
    ] or [0.1, 1.0]
    lines = _lines(history, lambda layer: layer.values("sigma", beyond_chance=True))
    return _over_time(history, lines, decades(min(found), max(found)), label="σ of each layer over time", y_label="σ")


def drift_over_time(history: History, *, together: Sequence[History]) -> str:
    """Return how far the filters of each layer are from where they began."""
    moved = [
        distance
        for each in together
        for layer in each.layers
        for distance in layer.values("relative_distance")
        if math.isfinite(distance)
    ]
    axis = round_axis(0.0, max(moved, default=0.0) or 1.0)
    lines = _lines(history, lambda layer: layer.values("relative_distance"))
    label = f"distance of the filters of {history.run.label} from where they began"
    return _over_time(history, lines, axis, label=label, y_label="‖W − W₀‖ / ‖W₀‖")


def cosines_over_time(history: History, cosines: Sequence[Sequence[float]]) -> str:
    """Return how alike the covariances of two runs are, layer by layer."""
    values = dict(zip((layer.index for layer in history.layers), cosines, strict=True))
    lines = _lines(history, lambda layer: values[layer.index])
    axis = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))
    return _over_time(history, lines, axis, label="cosine between the two covariances of each layer", y_label="cosine")


def structure_map(history: History) -> str:
    """Return a band for each layer: likeness to the closed form wherever it is more than chance."""
    rows = {str(layer.index + 1): layer.values("likeness", beyond_chance=True) for layer in history.layers}
    label = "likeness of each layer to the closed form, over time, where it is more than chance"
    return time_map(rows, history.steps, label=label, x_label="step")


def _lines(history: History, values: Callable[[LayerHistory], Sequence[float]]) -> list[list[Point]]:
    return [list(zip(history.steps, values(layer), strict=True)) for layer in history.layers]


def _over_time(history: History, lines: list[list[Point]], y: Axis, *, label: str, y_label: str) -> str:
    plot = Plot(over(history.steps), y, label=label, x_label="step", y_label=y_label)
    for layer, line in zip(history.layers, lines, strict=True):
        marked = f' data-layer="{layer.index}" style="--depth:{layer.depth:.0%}"'
        for measured, points in groupby(line, lambda point: math.isfinite(point[1])):
            piece = [(x, min(max(value, y.low), y.high)) for x, value in points] if measured else []
            if len(piece) == 1:  # a line of one point would not be seen
                plot.dot(*piece[0], f"{layer.name}: {piece[0][1]:.3g} at step {piece[0][0]:g}", radius=2)
            plot.line(piece, attributes=marked)
    plot.cursor()
    return plot.html()
