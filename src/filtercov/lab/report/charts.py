"""The one chart writer: lines, bands, dots and intervals, as inline SVG that needs no script.

A chart is drawn at the width of a phone, with text of a phone's smallest legible size; wider windows enlarge it or lay
several side by side. Colours are classes of page.css (s0 to s5), so charts follow light, dark and paper.

Two pages redraw while a slider moves: explore and watched. There `stage` draws the axes, once for every range that may
be needed, and the page's script chooses one and puts marks into it. It has no ticks, labels or scales of its own.
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from textwrap import wrap

from filtercov.lab.report.page import asset, text

WIDTH, HEIGHT = 330, 220  # units, which are pixels on a phone
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 38  # room for labels around the plot
MOST_MARKS = 20  # dots on one line
COLOURS = 6  # classes s0 to s5 of the style sheet
NAME_LETTERS = 52  # of a name above its dots that fit on one line
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
APART, LETTER = 24, 8  # units along x: least distance of two numbers, and width of a letter
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """A scale from `low` to `high`, linear or logarithmic, and the numbers written along it."""

    low: float
    high: float
    marks: Sequence[float]
    log: bool = False

    def share(self, value: float) -> float:
        """The position of a value along the axis, from 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / ((self.high - self.low) or 1.0)


SHARES = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))  # relative depth, cosines


def round_axis(low: float, high: float) -> Axis:
    """A linear axis between a handful of round numbers that enclose [low, high].

    >>> round_axis(50.2, 56.1).marks
    [50.0, 52.0, 54.0, 56.0, 58.0]
    """
    rough = (high - low) / 4 or 1.0
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    marks = [round(step * i, 10) for i in range(first, max(last, first + 1) + 1)]
    return Axis(marks[0], marks[-1], marks)


def log_axis(values: Collection[float]) -> Axis:
    """A logarithmic axis that encloses the values: marks 1, 2 and 5, or powers of ten where those would crowd.

    >>> log_axis([0.03, 0.4]).marks, log_axis([0.001, 2.0]).marks
    ([0.02, 0.05, 0.1, 0.2, 0.5], [0.001, 0.01, 0.1, 1.0, 10.0])
    """
    low, high = min(values, default=0.1), max(values, default=1.0)
    steps = (1,) if high / low > 300 else (1, 2, 5)
    decades = range(math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9) + 1)
    marks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    first = max(i for i, mark in enumerate(marks) if mark <= low * 1.000001)
    last = next(i for i, mark in enumerate(marks) if mark >= high * 0.999999)
    marks = marks[first : max(last, first + 1) + 1]
    return Axis(marks[0], marks[-1], marks, log=True)


def over(values: Collection[float]) -> Axis:
    """An axis from the first value to the last, which names the values themselves where they are few."""
    first, last = min(values), max(values)
    rounded = [mark for mark in round_axis(first, last).marks if first <= mark <= last]
    return Axis(first, last, sorted(set(values)) if len(values) <= 8 else rounded)


@dataclass(frozen=True)
class Series:
    """A line: its points and half the height of its band at each (None: not measured)."""

    name: str
    points: Sequence[Point]
    spread: Sequence[float | None] = ()
    kind: str = "line"  # or "line dashed": its classes in the style sheet, but for the colour
    colour: int = 0

    def edge(self, side: int) -> list[Point]:
        """The lower (side -1) or upper (+1) edge of the band."""
        halves = self.spread or [None] * len(self.points)
        return [(x, y + side * (half or 0.0)) for (x, y), half in zip(self.points, halves, strict=True)]


@dataclass(frozen=True)
class Dot:
    """A value, its interval and the paper's value where there are any; `least` is what it must lie above."""

    row: str
    series: str
    value: float
    shown: str  # the value in words
    ends: tuple[float, float] | None = None  # of its interval
    paper: float | None = None
    least: float | None = None


class Plot:
    """A pair of axes to draw into; `html` returns the chart."""

    def __init__(self, x: Axis, y: Axis, *, label: str, x_label: str, y_label: str) -> None:
        self.x, self.y, self.label = x, y, label
        self._parts = [*_frame(x, y), *_titles(x_label, y_label)]

    def at(self, x: float, y: float) -> Point:
        """The positions of values in the chart."""
        return _across(self.x.share(x)), _down(self.y.share(y))

    def line(self, points: Sequence[Point], kind: str = "line", *, colour: int = 0, attributes: str = "") -> None:
        """Draw a line through points, or fill the area inside them if its `kind` is "band".

        `attributes` are further ones of the SVG element.
        """
        if points:
            path = "L".join("{:.1f} {:.1f}".format(*self.at(*point)) for point in points)
            self._parts.append(f'<path class="{kind} {_colour(colour)}"{attributes} d="M{path}"/>')

    def dot(self, x: float, y: float, title: str, *, colour: int = 0, radius: float = 3) -> None:
        """Draw a dot with a tooltip."""
        self._parts.append(_circle("mark", self.at(x, y), title, colour=colour, radius=radius))

    def cursor(self) -> None:
        """Draw an upright line at the beginning, for a script to move along x."""
        carried = f'data-low="{self.x.low:g}" data-high="{self.x.high:g}" data-width="{_across(1) - _across(0):g}"'
        self._parts.append(f'<path class="cursor" {carried} d="M{LEFT} {TOP}V{_down(0):g}"/>')

    def html(self) -> str:
        """The chart as SVG."""
        return svg(self._parts, HEIGHT, self.label)


def line_chart(series: Sequence[Series], *, label: str, x_label: str, y_label: str, low: float | None = None) -> str:
    """Lines with bands over a common scale, which begins at `low` if that is given, above their legend."""
    heights = [y for line in series for side in (-1, 1) for _, y in line.edge(side)]
    x_axis = over({x for line in series for x, _ in line.points})
    y_axis = round_axis(min(heights) if low is None else low, max(heights))
    plot = Plot(x_axis, y_axis, label=label, x_label=x_label, y_label=y_label)
    for line in series:
        if any(line.spread):
            plot.line([*line.edge(1), *reversed(line.edge(-1))], "band", colour=line.colour)
        plot.line(line.points, line.kind, colour=line.colour)
        for x, y in line.points if len(line.points) <= MOST_MARKS else ():
            plot.dot(x, y, f"{line.name}: {y:.2f} at {x:g}", colour=line.colour)
    return plot.html() + legend([(line.name, f"{line.kind} {_colour(line.colour)}") for line in series])


def dot_chart(dots: Sequence[Dot], *, label: str, shows: Sequence[float] = ()) -> str:
    """A row per name with a dot per series, its interval, and the paper's value as a ring.

    The axis has room for what it `shows` besides. Names stand above their dots: a phone has no room for both beside.
    """
    series = list(dict.fromkeys(dot.series for dot in dots))
    drawn = [number for dot in dots for number in (dot.value, *(dot.ends or ()), dot.paper, dot.least)]
    numbers = [*shows, *(number for number in drawn if number is not None)]
    x = round_axis(min(numbers), max(numbers))
    step, line, left = 10, 15, 12

    def across(value: float) -> float:
        return left + x.share(value) * (WIDTH - 2 * left)

    parts, top = [], 4
    for name in dict.fromkeys(dot.row for dot in dots):
        for words in wrap(name, NAME_LETTERS):
            parts.append(f'<text class="name" x="0" y="{top + 11}">{text(words)}</text>')
            top += line
        for dot in (dot for dot in dots if dot.row == name):
            colour = series.index(dot.series)
            y, who = top + step * (colour + 0.5), f"{name}, {dot.series}"
            if dot.ends:
                left_end, right_end = map(across, dot.ends)
                parts.append(f'<path class="line {_colour(colour)}" d="M{left_end:.1f} {y:.1f}H{right_end:.1f}"/>')
            parts.append(_circle("mark", (across(dot.value), y), f"{who}: {dot.shown}", colour=colour, radius=4))
            if dot.least is not None:
                title = f"<title>{text(name)}: above {dot.least:g}</title>"
                parts.append(f'<path class="least" d="M{across(dot.least):.1f} {y - 6:.1f}v12">{title}</path>')
            if dot.paper is not None:
                said = f"{who}: {dot.paper:.2f} in the paper"
                parts.append(_circle("ring", (across(dot.paper), y), said, colour=colour, radius=4.5))
        top += step * len(series) + 3
    axis = []
    for mark in x.marks:
        axis.append(f'<path class="{"axis zero" if mark == 0 else "axis"}" d="M{across(mark):.1f} 4V{top}"/>')
        axis.append(svg_text(across(mark), top + 15, f"{mark:g}"))
    keys = [(name, f"mark {_colour(i)}") for i, name in enumerate(series)] if len(series) > 1 else []
    keys += [("the paper's", "ring s0")] if any(dot.paper is not None for dot in dots) else []
    keys += [("must lie above", "least")] if any(dot.least is not None for dot in dots) else []
    return svg([*axis, *parts], top + 22, label) + legend(keys)


def stage(name: str, ranges: Sequence[Axis], *, x_label: str, y_label: str) -> str:
    """An empty chart, the element `name`, for a script to fill: along x shares, a frame for each range of y.

    The frames go from the smallest range to the largest. The script shows one of them, reads its `data-low`,
    `data-high` and, where it is logarithmic, `data-log`, and the edges of the plot in `data-box` (left, right, top,
    bottom), and writes marks into the group of class `marks`.
    """
    box = f"{_across(0):g} {_across(1):g} {_down(1):g} {_down(0):g}"
    frames = (
        f'<g class="frame" data-low="{y.low:g}" data-high="{y.high:g}"{" data-log" if y.log else ""}>'
        f"{''.join(_frame(SHARES, y))}</g>"
        for y in ranges
    )
    parts = [*_titles(x_label, y_label), *frames, '<g class="marks"></g>']
    return svg(parts, HEIGHT, y_label, attributes=f' id="{text(name)}" data-box="{box}"')


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Names beside samples of what they name, given by classes of the style sheet: `line s0`, `mark s1`, `ring s1`."""
    if not entries:
        return ""
    shown = (f'<span><span class="key {kind}"></span>{text(name)}</span>' for name, kind in entries)
    return f'<p class="legend">{" ".join(shown)}</p>'


def _frame(x: Axis, y: Axis) -> list[str]:
    """The lines and numbers of both axes; of numbers along x that would touch only the first."""
    parts = []
    powers = y.log and y.low < 1e-4
    for mark in y.marks:
        down = _down(y.share(mark))
        shown = f"10{str(round(math.log10(mark))).translate(RAISED)}" if powers and mark != 1 else f"{mark:g}"
        parts.append(f'<path class="axis" d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(svg_text(LEFT - 6, down + 4, shown, "end"))
    free = -math.inf
    for mark in x.marks:
        words, across = f"{mark:g}", _across(x.share(mark))
        half = max(APART, LETTER * len(words)) / 2
        if across - half >= free:
            parts.append(svg_text(across, HEIGHT - 22, words))
            free = across + half
    return parts


def _titles(x_label: str, y_label: str) -> list[str]:
    return [svg_text(0, 12, y_label, "start"), svg_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, x_label)]


def _across(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _down(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _colour(number: int) -> str:
    return f"s{number % COLOURS}"


def _circle(kind: str, at: Point, title: str, *, colour: int, radius: float) -> str:
    place = f'cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:g}"'
    return f'<circle class="{kind} {_colour(colour)}" {place}><title>{text(title)}</title></circle>'


def svg_text(x: float, y: float, words: str, anchor: str = "middle", *, attributes: str = "") -> str:
    """Text at a point; `attributes` are added to the SVG element."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{text(words)}</text>'


def svg(parts: Sequence[str], height: float, label: str, *, width: float = WIDTH, attributes: str = "") -> str:
    """A whole SVG of these parts, which `label` says in words."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg class="chart" role="img" aria-label="{text(label)}" {size}{attributes}>{"".join(parts)}</svg>'


def standalone(chart: str, *, dark: bool = False) -> str:
    """A chart as an SVG file of its own, in the light or dark colours of pages; a legend below it is left out.

    Colours are written out, because programs that print or convert SVG files know no variables.
    """
    light, night, *_ = asset("page.css").split("@media")
    rules = re.findall(r"^\.(?:s\d|chart [.t]).*$", night, re.MULTILINE)
    style = "\n".join([*rules, "svg { font-family: sans-serif; }"])
    tag, _, inside = chart.partition("<svg ")[2].rpartition("</svg>")[0].partition(">")
    paper = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    whole = f'<svg xmlns="http://www.w3.org/2000/svg" {tag}><style>\n{style}\n</style>{paper}{inside}</svg>\n'
    colours = dict(re.findall(r"(--\w+): ([^;]+);", night if dark else light))
    return re.sub(r"var\((--\w+)\)", lambda variable: colours[variable[1]], whole)
