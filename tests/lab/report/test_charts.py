"""Charts: every mark is where the axes say, every label can be read on a phone, and the paper's values are there."""

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from filtercov.lab.report.charts import Axis, Dot, Plot, Series, dot_chart, line_chart, log_axis, round_axis
from filtercov.lab.report.explore import explore_page
from filtercov.lab.report.page import page, write_output
from filtercov.lab.report.results import results_page
from tests.lab.report.results_records import TABLE, record

LINES = [
    Series("first <of two>", [(1, 50.2), (2, 53.3), (50, 56.1)], [0.5, None, 1.0]),
    Series("second", [(1, 49.0), (2, 48.0), (50, 47.5)], kind="line dashed", colour=1),
]
LONG = "gain at k15 above gain at k3, by the line through k3, k7, k9, k15, and some more"
DOTS = [
    Dot("closed-form .15 .5 .25", "thawed", 52.0, "52.00", (51.5, 52.5), 67.4),
    Dot("covariance-eighth from ImageNet", "thawed", -3.0, "-3.00", paper=2.0),
    Dot("closed-form .15 .5 .25", "frozen", 49.0, "so so"),
    Dot(LONG, "thawed", 5.0, "5.00", least=-1.0),
]
RANKS, DECADES = Axis(1.0, 49.0, (1, 49)), log_axis([1e-6, 1.0])
EVERY = {
    "lines": line_chart(LINES, label="lines", x_label="epochs", y_label="test accuracy"),
    "dots": dot_chart(DOTS, label="dots"),
    "decades": Plot(RANKS, DECADES, label="decades", x_label="eigenvalue", y_label="|λ| / λ₁").html(),
}


def parsed(html):
    return ElementTree.fromstring(html[: html.index("</svg>") + 6])


def numbered(svg, anchor, along):
    """The numbers written along an axis, and where."""
    found = [t for t in svg.iter("text") if t.get("text-anchor") == anchor and re.fullmatch(r"[-+\d.e]+", t.text or "")]
    return [float(t.text) for t in found], [float(t.get(along)) for t in found]


def paths(svg, kind):
    return [path.get("d") for path in svg.iter("path") if path.get("class") == kind]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (49.9, 50.1), (10.0, 10.0), (-3.0, 97.0), (89.99, 93.01)])
def test_marks_enclose_what_they_measure(low, high):
    marks = round_axis(low, high).marks
    assert marks[0] <= low <= high <= marks[-1]
    assert 2 <= len(marks) <= 8


@pytest.mark.parametrize("log", [False, True])
def test_marks_lie_where_the_numbers_on_the_axes_say(log):
    y = log_axis([0.02, 3.0]) if log else round_axis(0.02, 3.0)
    plot = Plot(Axis(0.0, 1.0, (0.0, 0.25, 0.5, 1.0)), y, label="c", x_label="d", y_label="σ")
    values = [(0.0, 0.02), (0.3, 0.5), (0.75, 2.9)]
    for x, value in values:
        plot.dot(x, value, "a dot")
    plot.line(values)
    svg = parsed(plot.html())
    assert len(paths(svg, "line s0")) == 1
    marks, places = numbered(svg, "end", "y")
    xs, across = numbered(svg, "middle", "x")
    turn = np.log if log else np.asarray
    slope, offset = np.polyfit(turn(marks), np.array(places) - 4, 1)  # labels hang 4 below their line
    for circle, (x, value) in zip(svg.iter("circle"), values, strict=True):
        assert float(circle.get("cy")) == pytest.approx(slope * turn(value) + offset, abs=0.11)
        assert float(circle.get("cx")) == pytest.approx(np.interp(x, xs, across), abs=0.11)


def test_dots_intervals_and_the_papers_rings_lie_where_the_numbers_on_the_axis_say():
    svg = parsed(EVERY["dots"])
    xs, across = numbered(svg, "middle", "x")

    def at(value):
        return pytest.approx(np.interp(value, xs, across), abs=0.11)

    found = [(circle.get("class"), float(circle.get("cx"))) for circle in svg.iter("circle")]
    marks = [("mark s0", 52.0), ("ring s0", 67.4), ("mark s1", 49.0), ("mark s0", -3.0), ("ring s0", 2.0)]
    assert found == [(kind, at(value)) for kind, value in [*marks, ("mark s0", 5.0)]]
    titles = [circle.find("title").text.rpartition(": ")[2] for circle in svg.iter("circle")]
    assert titles[:3] == ["52.00", "67.40 in the paper", "so so"]
    names = [float(name.get("y")) for name in svg.iter("text") if name.get("class") == "name"]
    first, _, second, *_ = (float(circle.get("cy")) for circle in svg.iter("circle"))
    assert names[0] < first < second < names[1] - 11  # below their name and above the next
    (interval,), (least,) = paths(svg, "line s0"), paths(svg, "least")
    left, _, right = map(float, re.findall(r"[\d.]+", interval))
    assert (left, right, float(least.split()[0][1:])) == (at(51.5), at(52.5), at(-1.0))
    keys = [re.findall(r"key [^>]*></span>([^<]*)", chart) for chart in (EVERY["dots"], dot_chart(DOTS[2:3], label=""))]
    assert keys == [["thawed", "frozen", "the paper&#x27;s", "must lie above"], []]


@pytest.mark.parametrize("steps", [(2, 5, 10, 20, 35, 50, 100), [1_000_000 * i + 23_456 for i in range(8)]])
def test_numbers_along_x_that_would_touch_are_left_out_and_those_of_many_decades_are_powers_of_ten(steps):
    words = [t.text for t in parsed(EVERY["decades"]).iter("text") if t.get("text-anchor") == "end"]
    assert words == ["10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1"]
    chart = line_chart([Series("a", [(float(x), 1.0) for x in steps])], label="", x_label="", y_label="")
    marks, across = numbered(parsed(chart), "middle", "x")
    assert marks[0] == float(f"{steps[0]:g}")
    assert 2 <= len(marks) < len(steps)
    assert all(b - a >= 20 for a, b in pairwise(across))


def test_a_band_is_as_wide_as_the_spread():
    svg = parsed(EVERY["lines"])
    marks, places = numbered(svg, "end", "y")
    slope, offset = np.polyfit(marks, np.array(places) - 4, 1)
    (band,) = paths(svg, "band s0")
    heights = [(float(y) - offset) / slope for y in re.findall(r" ([\d.]+)", band)]
    assert heights == pytest.approx([50.7, 53.3, 57.1, 55.1, 53.3, 49.7], abs=0.05)


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_the_papers_values_are_beside_ours_at_every_scale(scale):
    figures = results_page(record(*TABLE.cells, scale=scale)).partition("<h2>Figures</h2>")[2]
    shown = [re.findall(r"<title>[^<]*: ([-\d.]+) in the paper", chart) for chart in figures.split("</svg>")[:2]]
    assert shown == [["89.26", "84.97", "90.85", "90.56"], ["1.59", "5.59"]]


LABELS = """[...document.querySelectorAll('svg')].map(svg => {
    const box = e => { const { left, right, top, bottom } = e.getBoundingClientRect();
        return [left, right, top, bottom] };
    return [...svg.querySelectorAll('text')].filter(t => t.getClientRects().length).map(t => ({ words: t.textContent,
        size: parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a, place: box(t), chart: box(svg) }));
})"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["charts", "explore"])
def test_labels_are_legible_inside_their_chart_and_apart(browser, tmp_path, kind, width):
    cards = "".join(f'<div class="card">{chart}</div>' for chart in EVERY.values())
    html = explore_page() if kind == "explore" else page("charts", cards)
    tab = browser.open(write_output(tmp_path / "p.html", html), width=width)
    if kind == "explore":
        tab.wait_for("finished === drawing")
    charts = [labels for labels in tab.evaluate(LABELS) if labels]
    assert len(charts) >= 2
    for labels in charts:
        for label in labels:
            (left, right, top, bottom), (x0, x1, y0, y1) = label["place"], label["chart"]
            assert label["size"] >= 11, label
            assert min(left - x0, x1 - right, top - y0, y1 - bottom) > -1, label
        for one, other in combinations(labels, 2):
            (left, right, top, bottom), (l2, r2, t2, b2) = one["place"], other["place"]
            # Boxes of text have room above and below the letters.
            assert not (left < r2 and l2 < right and top < b2 - 4 and t2 < bottom - 4), (one["words"], other["words"])
