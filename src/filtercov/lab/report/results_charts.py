"""Charts of accuracies as inline SVG that follow the page's colours, light and dark, and need no script."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from filtercov.lab.report.page import text
from filtercov.lab.report.results_words import show_mean

WIDTH = 460
MOST_MARKS = 20  # on one line
COLOURS = 6  # classes s0 to s5 of the style sheet
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A line: points, half the height of its band at each (None: not measured), and whether it is dashed."""

    name: str
    points: Sequence[Point]
    spread: Sequence[float | None] = ()
    dashed: bool = False
    colour: int = 0


@dataclass(frozen=True)
class Dot:
    """A row of a dot chart: a value with its spread, where measured, and the paper's value, where shown."""

    value: float
    spread: float | None
    paper: float | None = None


def ticks(low: float, high: float) -> list[float]:
    """Return a handful of round numbers that enclose [low, high].

    >>> ticks(50.2, 56.1)
    [50.0, 52.0, 54.0, 56.0, 58.0]
    """
    rough = (high - low) / 4 or 1.0
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(step * i, 10) for i in range(first, max(last, first + 1) + 1)]


def line_chart(series: Sequence[Series], *, label: str, x_label: str, y_label: str) -> str:
    """Return lines over a common scale with a legend below."""
    height, left, right, top, bottom = 270, 46, 12, 14, 40
    points = [point for line in series for point in line.points]
    marks = ticks(min(y for _, y in points), max(y for _, y in points))
    first, last = min(x for x, _ in points), max(x for x, _ in points)

    def at(x: float, y: float) -> Point:
        across = (x - first) / ((last - first) or 1)
        up = (y - marks[0]) / (marks[-1] - marks[0])
        return left + across * (WIDTH - left - right), height - bottom - up * (height - top - bottom)

    parts = [_horizontal(at(first, mark)[1], left, WIDTH - right, mark) for mark in marks]
    for x in sorted({x for x, _ in points}, key=float)[:: max(1, len({x for x, _ in points}) // 8)]:
        parts.append(f'<text x="{at(x, marks[0])[0]:.1f}" y="{height - 22}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<text x="{(left + WIDTH) / 2}" y="{height - 5}" text-anchor="middle">{text(x_label)}</text>')
    for line in series:
        parts += _line(line, at)
    return _svg(height, f"{label}: {y_label} over {x_label}", parts) + legend(
        [(line.name, line.colour, line.dashed) for line in series]
    )


def _line(line: Series, at: Callable[[float, float], Point]) -> list[str]:
    kind = f"s{line.colour % COLOURS}"
    parts = []
    if any(line.spread):
        upper = [at(x, y + (spread or 0)) for (x, y), spread in zip(line.points, line.spread, strict=True)]
        lower = [at(x, y - (spread or 0)) for (x, y), spread in zip(line.points, line.spread, strict=True)]
        parts.append(f'<path class="band {kind}" d="M{_path([*upper, *reversed(lower)])}Z"/>')
    dashes = " dashed" if line.dashed else ""
    placed = [at(*point) for point in line.points]
    parts.append(f'<path class="line {kind}{dashes}" d="M{_path(placed)}"/>')
    for (x, y), (left, top) in zip(line.points, placed, strict=True) if len(placed) <= MOST_MARKS else ():
        title = f"<title>{text(line.name)}: {y:.2f} at {x:g}</title>"
        parts.append(f'<circle class="mark {kind}" cx="{left:.1f}" cy="{top:.1f}" r="3">{title}</circle>')
    return parts


def dot_chart(rows: Mapping[str, Mapping[str, Dot]], *, label: str) -> str:
    """Return a row per name with a dot per series (thawed, frozen), its spread, and the paper's value as a ring."""
    line_height, left, right, top = 24, 150, 14, 8
    height = top + line_height * len(rows) + 34
    dots = [dot for row in rows.values() for dot in row.values()]
    marks = ticks(
        min(min(d.value - (d.spread or 0), d.paper or math.inf) for d in dots),
        max(max(d.value + (d.spread or 0), d.paper or -math.inf) for d in dots),
    )

    def across(value: float) -> float:
        return left + (value - marks[0]) / (marks[-1] - marks[0]) * (WIDTH - left - right)

    bottom = top + line_height * len(rows)
    parts = []
    for mark in marks:
        parts.append(f'<path class="axis" d="M{across(mark):.1f} {top}V{bottom}"/>')
        parts.append(f'<text x="{across(mark):.1f}" y="{bottom + 16}" text-anchor="middle">{mark:g}</text>')
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    for index, (name, row) in enumerate(rows.items()):
        middle = top + line_height * (index + 0.5)
        parts.append(f'<text x="{left - 8}" y="{middle + 4:.1f}" text-anchor="end">{text(_short(name))}</text>')
        for series_name, dot in row.items():
            number = series.index(series_name)
            y = middle + (number - (len(series) - 1) / 2) * 8
            parts += _dot(dot, across, y, number, f"{name}, {series_name}: {show_mean(dot.value, dot.spread)}")
    return _svg(height, label, parts) + legend([(name, i, False) for i, name in enumerate(series)])


def _dot(dot: Dot, across: Callable[[float], float], y: float, number: int, title: str) -> list[str]:
    kind = f"s{number % COLOURS}"
    low, middle, high = (across(dot.value + side * (dot.spread or 0)) for side in (-1, 0, 1))
    name = f"<title>{text(title)}</title>"
    parts = [
        f'<path class="line {kind}" d="M{low:.1f} {y:.1f}H{high:.1f}"/>',
        f'<circle class="mark {kind}" cx="{middle:.1f}" cy="{y:.1f}" r="4">{name}</circle>',
    ]
    if dot.paper is not None:
        ring = f"<title>the paper: {dot.paper:.2f}</title>"
        parts.append(f'<circle class="ring {kind}" cx="{across(dot.paper):.1f}" cy="{y:.1f}" r="5">{ring}</circle>')
    return parts


def heat_map(values: Mapping[tuple[str, str], float], *, label: str, x_label: str, y_label: str, limits: Point) -> str:
    """Return a grid of numbers on a scale of one colour, by (x, y)."""
    columns, rows = (list(dict.fromkeys(key[axis] for key in values)) for axis in (0, 1))
    cell_width, cell_height, left, top = 66, 30, 60, 10
    height = top + cell_height * len(rows) + 40
    span = (limits[1] - limits[0]) or 1.0
    parts = []
    for (x, y), value in values.items():
        share = (value - limits[0]) / span
        place = f'x="{left + cell_width * columns.index(x)}" y="{top + cell_height * rows.index(y)}"'
        size = f'width="{cell_width - 2}" height="{cell_height - 2}"'
        parts.append(f'<rect class="s0 heat" {place} {size} fill-opacity="{0.05 + 0.6 * share:.2f}"/>')
        middle = left + cell_width * (columns.index(x) + 0.5)
        baseline = top + cell_height * (rows.index(y) + 0.5) + 4
        parts.append(
            f'<text class="strong" x="{middle:.1f}" y="{baseline:.1f}" text-anchor="middle">{value:.2f}</text>'
        )
    for i, name in enumerate(columns):
        middle = left + cell_width * (i + 0.5)
        parts.append(f'<text x="{middle:.1f}" y="{height - 24}" text-anchor="middle">{text(name)}</text>')
    for i, name in enumerate(rows):
        baseline = top + cell_height * (i + 0.5) + 4
        parts.append(f'<text x="{left - 8}" y="{baseline:.1f}" text-anchor="end">{text(name)}</text>')
    parts.append(f'<text x="{left}" y="{height - 6}">{text(f"{x_label} across, {y_label} down")}</text>')
    return _svg(height, label, parts)


def legend(entries: Sequence[tuple[str, int, bool]]) -> str:
    """Return the names of lines beside their colours."""
    keys = (
        f'<span class="key s{colour % COLOURS}{" dashed" if dashed else ""}"></span>{text(name)}'
        for name, colour, dashed in entries
    )
    return f'<p class="legend">{" ".join(f"<span>{key}</span>" for key in keys)}</p>'


def _horizontal(y: float, left: float, right: float, mark: float) -> str:
    return (
        f'<path class="axis" d="M{left} {y:.1f}H{right}"/>'
        f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>'
    )


def _path(points: Sequence[Point]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return f'<svg role="img" aria-label="{text(label)}" {size}>{"".join(parts)}</svg>'
