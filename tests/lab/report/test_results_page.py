"""The page in a real browser: it opens without errors or network, shows every figure, sorts, and fits a phone."""

from dataclasses import replace
from pathlib import Path

import pytest

from filtercov.lab.experiments.records import DrawingRecord, Trained
from filtercov.lab.experiments.timings import SpeedRecord
from filtercov.lab.report import page
from filtercov.lab.report.results import results_page, write_reports
from tests.lab.report.results_records import TABLE, cell, record

GRID = record(
    cell("frozen/uniform", 50.0),
    *(cell(f"frozen/closed-form {s} {v} {a}", 50 + s + v + a) for s in (0.1, 0.2) for v in (0.5, 1) for a in (2, 4)),
    chart="grid",
)
CURVES = record(
    *(
        cell(f"thawed/{init}", e + 1.0, e + 2.0, epochs=e, trained=Trained("net_k9", "toys", e))
        for init in ("uniform", "closed-form")
        for e in (2, 5, 9)
    ),
    chart="lines",
)
WIDE = record(
    *(
        cell(f"{filters}/{init}", 50.0, 51.0, paper=90.0)
        for filters in ("thawed", "frozen")
        for init in ("uniform", "covariance", "covariance-eighth", "filters", "closed-form")
    )
)
SPEEDS = record(speeds=tuple(SpeedRecord(f"net_k{k}", k, 0.1 * k, 0.08 * k) for k in (3, 9, 15)))
PICTURES = record(drawings=(DrawingRecord("sawtooth", "The sawtooth", False, None),))
GONE = record(drawings=(DrawingRecord("filters", "Learned filters", True, None),))


def sorted_column(tab, column: int) -> list[str]:
    return tab.evaluate(
        f"[...document.querySelectorAll('.sortable tbody tr')].map(row => row.cells[{column}].textContent)"
    )


@pytest.fixture
def open_report(browser, tmp_path):
    def open_(found, **emulated):
        path = write_reports([found], tmp_path / "report.html")[0]
        tab = browser.open(Path(path), **emulated)
        assert tab.errors == []
        assert tab.requests == []
        return tab

    return open_


@pytest.mark.parametrize(
    "found", [TABLE, GRID, CURVES, SPEEDS, PICTURES], ids=["table", "grid", "lines", "speed", "picture"]
)
def test_every_figure_is_rendered(open_report, found):
    tab = open_report(found)
    sizes = tab.evaluate(
        "[...document.querySelectorAll('figure svg, figure img')].map(e => [e.getBoundingClientRect().width, "
        "e.getBoundingClientRect().height, e.tagName !== 'IMG' || e.naturalWidth > 0])"
    )
    assert sizes
    assert all(width > 100 and height > 40 and drawn for width, height, drawn in sizes)
    text = tab.evaluate("document.body.innerText")
    assert "Made up <for tests>" in text
    assert "filtercov reproduce made-up --scale small" in text


def test_tables_sort_by_the_heading_pressed_with_what_is_empty_last(open_report):
    tab = open_report(TABLE)
    heads = tab.evaluate("[...document.querySelectorAll('.sortable th[scope=col]')].map(e => e.textContent)")
    column = heads.index("over uniform")
    button = f".sortable th[scope=col]:nth-child({column + 1}) button"
    tab.click(button)
    ascending = sorted_column(tab, column)
    tab.click(button)
    descending = sorted_column(tab, column)
    assert [text.split()[0] for text in ascending if text] == ["-0.25", "+4.00"]
    assert [text.split()[0] for text in descending if text] == ["+4.00", "-0.25"]
    assert ascending[2:] == descending[2:] == ["", "", ""]
    assert tab.evaluate(f"document.querySelector('{button}').parentElement.ariaSort") == "descending"


@pytest.mark.parametrize(
    "ascending",
    [
        ["0:45", "59:10", "1:01:11", "2:10:00", ""],
        ["1 min", "12 min", "2.3 h", "139 h", "none"],
        ["claim-c1", "claim-c2", "claim-c10"],
        ["300 runs missing", "1,200 runs missing", "complete"],
        ["k9", "10", "baseline"],
        ["−3.5", "-0.25 ± 0.1", "+4.00"],
    ],
    ids=["clock", "cost", "names", "counts", "letters", "signs"],
)
def test_times_counts_and_names_sort_by_what_they_mean(browser, tmp_path, ascending):
    shuffled = sorted(ascending, key=lambda cell: cell[::-1])
    table = page.table(["a", "b"], [["row", cell] for cell in shuffled])
    html = page.page("sorted", f'<div class="sortable">{table}</div>', scripts=[page.asset("results.js")])
    tab = browser.open(page.write_output(tmp_path / "p.html", html))
    button = ".sortable th[scope=col]:nth-child(2) button"
    tab.click(button)
    assert sorted_column(tab, 1) == ascending
    tab.click(button)
    full = [cell for cell in ascending if cell]
    assert sorted_column(tab, 1) == [*reversed(full), *ascending[len(full) :]]
    assert tab.errors == []


def test_tables_sort_by_keyboard(open_report):
    tab = open_report(TABLE)
    tab.evaluate("document.querySelector('.sortable th[scope=col]:nth-child(4) button').focus()")
    tab.press("Enter")
    assert sorted_column(tab, 3) == ["closed-form", "closed-form", "filters", "uniform", "uniform"]


def test_missing_runs_and_pictures_are_said_to_be_missing(open_report):
    assert "missing 1 run" in open_report(TABLE).evaluate("document.body.innerText")
    assert "The run this shows is missing." in open_report(GONE).evaluate("document.body.innerText")


@pytest.mark.parametrize("found", [WIDE, GRID, CURVES], ids=["wide", "grid", "lines"])
@pytest.mark.parametrize(
    "emulated",
    [{"width": 390, "touch": True}, {"dark": True}, {"paper": True, "width": 800}],
    ids=["phone", "dark", "print"],
)
def test_the_page_fits_phones_and_paper(open_report, found, emulated):
    tab = open_report(found, **emulated)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    paper, ink = tab.evaluate(
        "[getComputedStyle(document.documentElement).backgroundColor, getComputedStyle(document.body).color]"
    )
    dark = sum(int(part) for part in paper.strip("rgb()").split(",")) < 384
    assert dark == bool(emulated.get("dark"))
    assert paper != ink


def test_an_index_links_the_pages_of_several_experiments(browser, tmp_path):
    other = record(cell("frozen/uniform", 50.0), scale="smoke")
    paths = write_reports([TABLE, other], tmp_path / "report.html")
    tab = browser.open(paths[0])
    assert tab.errors == []
    links = tab.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert links == ["report-made-up-small.html", "report-made-up-smoke.html"]
    assert all((tmp_path / link).exists() for link in links)


def test_each_row_of_curves_is_named_by_its_own_network():
    other = [replace(one, row="k15", trained=replace(one.trained, model="net_k15")) for one in CURVES.cells]
    drawn = results_page(record(*CURVES.cells, *other, chart="lines"))
    assert "k9: net_k9: test accuracy" in drawn
    assert "k15: net_k15: test accuracy" in drawn
