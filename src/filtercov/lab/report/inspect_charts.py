"""Two small charts as inline SVG that take their colours from the page: σ by depth, and a spectrum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.lab.report.page import text
from filtercov.schedule.schedules import QuadraticSchedule

LEFT, RIGHT, TOP, BOTTOM = 44, 8, 24, 34  # room for the labels around the plot


def sigma_chart(
    depths: Sequence[float],
    sigmas: Sequence[float],
    schedule: QuadraticSchedule | None,
    *,
    others: Sequence[float] = (),
    names: Sequence[str] = (),
) -> str:
    """Return σ of each layer over depth as dots, and the fitted schedule as a line; `others` are a second target's."""
    width, height = 620, 260
    curve = [(d, schedule(float(d))) for d in np.linspace(0, 1, 101)] if schedule else []
    finite = [s for s in (*sigmas, *others, *(s for _, s in curve)) if math.isfinite(s)]
    low, high = _decades(finite or [0.1, 1.0])

    def at(d: float, s: float) -> tuple[float, float]:
        x = LEFT + d * (width - LEFT - RIGHT)
        return x, _log_position(s, low, high, height)

    parts = _log_axis(low, high, width, height, "σ")
    parts += [
        f'<text x="{at(d, 1.0)[0]:.1f}" y="{height - 18}" text-anchor="middle">{d:g}</text>'
        for d in (0, 0.25, 0.5, 0.75, 1)
    ]
    parts.append(f'<text x="{(LEFT + width) / 2}" y="{height - 3}" text-anchor="middle">relative depth d</text>')
    if curve:
        parts.append(_line([at(d, s) for d, s in curve], "first"))
    for kind, values in (("dot", sigmas), ("dot2", others)):
        for d, s, name in zip(depths, values, names or [""] * len(depths), strict=False):
            if math.isfinite(s):
                x, y = at(d, s)
                title = f"<title>{text(name)}: σ = {s:.3g}</title>"
                parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>')
    return _svg(parts, width, height, "σ of each layer over relative depth, with the fitted schedule")


def spectrum_chart(eigenvalues: Array, closed: Array) -> str:
    """Return both spectra over the largest learned eigenvalue, on a logarithmic scale of four decades."""
    width, height = 260, 190
    top = float(eigenvalues[0]) if len(eigenvalues) and eigenvalues[0] > 0 else 1.0
    low, high = -4, 0
    parts = _log_axis(low, high, width, height, "λ / λ₁")
    n = len(eigenvalues)
    for kind, values in (("second", closed), ("first", eigenvalues)):
        shown = [(i, float(v) / top) for i, v in enumerate(values) if v > top * 10.0**low]
        points = [
            (LEFT + i / max(n - 1, 1) * (width - LEFT - RIGHT), _log_position(min(v, 1.0), low, high, height))
            for i, v in shown
        ]
        parts.append(_line(points, kind))
    parts.append(f'<text x="{LEFT}" y="{height - 18}">1</text>')
    parts.append(f'<text x="{width - RIGHT}" y="{height - 18}" text-anchor="end">{n}</text>')
    parts.append(f'<text x="{(LEFT + width) / 2}" y="{height - 3}" text-anchor="middle">eigenvalue</text>')
    return _svg(parts, width, height, "spectrum of the covariance and of the closed form")


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low = math.floor(math.log10(min(values)))
    return low, max(math.ceil(math.log10(max(values))), low + 1)


def _log_position(value: float, low: int, high: int, height: int) -> float:
    share = (math.log10(value) - low) / (high - low)
    return height - BOTTOM - share * (height - TOP - BOTTOM)


def _log_axis(low: int, high: int, width: int, height: int, label: str) -> list[str]:
    parts = [f'<text x="4" y="10">{label}</text>']
    for exponent in range(low, high + 1):
        y = _log_position(10.0**exponent, low, high, height)
        parts.append(f'<path class="axis" d="M{LEFT} {y:.1f}H{width - RIGHT}"/>')
        parts.append(
            f'<text x="{LEFT - 5}" y="{y:.1f}" text-anchor="end" dominant-baseline="middle">{10.0**exponent:g}</text>'
        )
    return parts


def _line(points: Sequence[tuple[float, float]], kind: str) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{kind}" d="M{path}"/>' if points else ""


def _svg(parts: Sequence[str], width: int, height: int, label: str) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg role="img" aria-label="{text(label)}" {size}>{"".join(parts)}</svg>'
