"""The report of an experiment: right numbers beside the paper's, silent about nothing, on a page that fits."""

import csv
import html
import io
import re
from dataclasses import replace

import numpy as np
import pytest

from filtercov.errors import ConfigError, StorageError
from filtercov.lab.experiments.records import DrawingRecord, Trained
from filtercov.lab.experiments.timings import SpeedRecord
from filtercov.lab.report import page
from filtercov.lab.report.results import results_page, write_reports
from filtercov.lab.report.results_table import (
    lines,
    rank,
    rankings,
    to_csv,
    to_latex,
    to_markdown,
    to_terminal,
    verdict_counts,
)
from tests.lab.report.results_records import TABLE, TRAINED, cell, record

TEXTS = [to_markdown, to_terminal, to_latex, results_page]
SPEEDS = record(speeds=tuple(SpeedRecord(f"net_k{k}", k, 0.1 * k, 0.08 * k) for k in (3, 9, 15)))
GONE = record(drawings=(DrawingRecord("filters", "Learned filters", trained=TRAINED),))


def sorted_column(tab, column: int) -> list[str]:
    return tab.evaluate(
        f"[...document.querySelectorAll('.sortable tbody tr')].map(row => row.cells[{column}].textContent)"
    )


@pytest.fixture
def open_report(browser, tmp_path):
    def open_(found, **emulated):
        tab = browser.open(write_reports([found], tmp_path / "report.html")[0], **emulated)
        assert tab.errors == []
        assert tab.requests == []
        return tab

    return open_


def test_differences_are_from_uniform_in_the_same_row_and_compared_with_the_papers():
    found = {(line.cell.filters, line.cell.init): line for line in lines(TABLE)}
    thawed = found["thawed", "closed-form"]
    assert thawed.difference.mean == pytest.approx(4.0)
    assert (thawed.paper_difference, thawed.verdict) == (pytest.approx(1.59), "holds")
    assert found["frozen", "closed-form"].difference.mean == pytest.approx(-0.25)
    assert found["frozen", "closed-form"].verdict == "open"
    assert found["thawed", "uniform"].difference is found["frozen", "filters"].difference is None
    assert "1 hold, 0 are contradicted and 1 are open" in verdict_counts(lines(TABLE))


def test_what_was_trained_is_named_in_a_few_words():
    cells = [cell("thawed/uniform", 1.0, trained=Trained(f"net{i}", "toys", 5 * i + 5)) for i in range(3)]
    assert record(cells[0]).trained == "net0 on toys, 5 epochs"
    assert record(*cells[:2]).trained == "net0 and net1 on toys, 5 to 10 epochs"
    assert record(*cells).trained == "net0 and 2 more networks on toys, 5 to 15 epochs"
    assert SPEEDS.trained == "net_k3 and 2 more networks"


def test_names_with_signs_of_latex_or_markdown_are_shown_as_they_are():
    strange = record(cell("thawed/uniform", 50.0, 51.0), cell(r"thawed/a\b^2~c|d_e", 52.0, 53.0))
    latex = to_latex(strange)
    assert r"a\textbackslash{}b\textasciicircum{}2\textasciitilde{}c|d\_e" in latex
    assert latex.count("{") == latex.count("}")
    assert len({row.count(" & ") for row in latex.splitlines() if row.endswith(r"\\")}) == 1
    rows = [line for line in to_markdown(strange).splitlines() if line.startswith("| ")]
    assert r"a\b^2~c\|d_e" in rows[-1]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


@pytest.mark.parametrize("make", TEXTS)
def test_every_text_says_what_its_numbers_mean_and_what_is_missing(make):
    text = html.unescape(make(TABLE)).replace("\\", "")
    assert "in brackets Student's 95% interval" in text
    assert "Of 2 signs of the paper's differences from uniform 1 hold" in text
    assert "Smaller than in the paper: everything & more." in text
    assert "net_k9" in text
    assert "missing 1 run" in text
    assert "0123456789abcdef" in text
    assert "Run 0 is damaged." in html.unescape(make(replace(TABLE, damaged=("run 0 is damaged",))))


@pytest.mark.parametrize("make", TEXTS)
def test_one_seed_and_the_smoke_scale_decide_nothing(make):
    cells = cell("thawed/uniform", 50.0, paper=89.0), cell("thawed/closed-form 1 2 3", 54.0, paper=90.0)
    text = html.unescape(make(record(*cells)))
    assert "54.00 ±" not in text
    assert "signs of the paper's differences" not in text
    assert "+4.00 (one seed)" in text
    both = cell("thawed/uniform", 50.0, 51.0, paper=89.0), cell("thawed/closed-form", 60.0, 61.1, paper=90.0)
    assert lines(record(*both))[1].verdict == "holds"
    assert lines(record(*both, scale="smoke"))[1].verdict is None
    assert "signs of" not in html.unescape(make(record(*both, scale="smoke")))
    equal = lines(record(both[0], cell("thawed/dog", 52.0, 54.0, paper=89.0)))[1]
    assert (equal.paper_difference, equal.verdict) == (0.0, None)


def test_csv_holds_every_number_unrounded_and_nothing_of_what_is_missing():
    rows = list(csv.DictReader(io.StringIO(to_csv(record(cell("frozen/uniform", 1 / 3, 2 / 3))))))
    assert float(rows[0]["mean"]) == 0.5
    assert float(rows[0]["std"]) == pytest.approx(np.std([1 / 3, 2 / 3], ddof=1), abs=1e-15)
    row = list(csv.DictReader(io.StringIO(to_csv(TABLE))))[-1]
    assert (row["mean"], row["n"], row["missing_runs"], row["paper_mean"]) == ("", "", "1", "89.5")


def test_a_ranking_orders_by_mean_and_says_who_cannot_be_told_apart():
    found = rank("toys", {"b": {0: 50.5, 1: 51.0}, "a": {0: 50.0, 1: 52.0}, "c": {0: 40.0, 1: 42.1}})
    assert [row[:2] for row in found.table[1:]] == [["1", "a"], ["2", "b"], ["3", "c"]]
    assert [row[-1] for row in found.table[1:]] == ["2", "1, 3", "2"]
    assert str(found) == "toys: 1 of 3 pairs told apart"
    assert found.table[1][4] == ""
    assert found.table[3][4].startswith("-9.95 [")
    cells = [cell(f"frozen/{init}", 50.0 + i, 51.1 + i) for i, init in enumerate(("uniform", "dog"))]
    (ranking,) = rankings(record(*cells, chart="ranking"))
    assert str(ranking).startswith("k9: net_k9, frozen: ")
    assert rankings(record(*cells, chart="ranking", scale="smoke")) == rankings(record(*cells)) == []
    for make in (to_markdown, to_terminal, results_page):
        assert "pair told apart" in make(record(*cells, chart="ranking"))


def test_the_numbers_are_in_sight_on_a_phone(open_report):
    tab = open_report(TABLE, width=390)
    number = "[...document.querySelectorAll('.sortable td')].find(e => e.textContent.startsWith('51.00'))"
    assert tab.evaluate(f"{number}.getBoundingClientRect().right") < 390
    assert tab.evaluate("document.querySelector('h1').textContent") == "Made up <for tests>"


def test_tables_sort_by_the_heading_pressed_with_what_is_empty_last(open_report):
    tab = open_report(TABLE)
    heads = tab.evaluate("[...document.querySelectorAll('.sortable th[scope=col]')].map(e => e.textContent)")
    column = heads.index("over uniform")
    button = f".sortable th[scope=col]:nth-child({column + 1}) button"
    tab.click(button)
    ascending = sorted_column(tab, column)
    tab.evaluate(f"document.querySelector('{button}').focus()")
    tab.press("Enter")
    descending = sorted_column(tab, column)
    assert [text.split()[0] for text in ascending if text] == ["-0.25", "+4.00"]
    assert [text.split()[0] for text in descending if text] == ["+4.00", "-0.25"]
    assert ascending[2:] == descending[2:] == ["", "", ""]
    assert tab.evaluate(f"document.querySelector('{button}').parentElement.ariaSort") == "descending"


@pytest.mark.parametrize(
    "ascending",
    [["claim-c1", "claim-c2", "claim-c10"], ["300 runs", "1,200 runs", "complete"], ["−3.5", "-0.25 ± 0.1", "+4.00"]],
)
def test_counts_and_names_sort_by_what_they_mean(browser, tmp_path, ascending):
    shuffled = sorted(ascending, key=lambda cell: cell[::-1])
    table = page.text_table([["a", "b"], *(["row", cell] for cell in shuffled)])
    tab = browser.open(page.write_output(tmp_path / "p.html", page.page("sorted", table)))
    tab.click(".sortable th[scope=col]:nth-child(2) button")
    assert sorted_column(tab, 1) == ascending


def test_what_is_missing_is_a_warning_and_what_explains_is_not(open_report):
    tab = open_report(TABLE)
    assert "Missing" in tab.evaluate("document.querySelector('.warning').textContent")
    assert "Smaller" in tab.evaluate("document.querySelector('.note').textContent")
    assert "The run this shows is missing." in open_report(GONE).evaluate("document.body.innerText")


def test_an_index_links_the_pages_of_several_experiments(browser, tmp_path):
    other = record(cell("frozen/uniform", 50.0), scale="smoke")
    tab = browser.open(write_reports([TABLE, other], tmp_path / "report.html")[0])
    links = tab.evaluate("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert links == ["report-made-up-small.html", "report-made-up-smoke.html"]
    assert all(
        (tmp_path / link).with_suffix(kind).exists() for link in links for kind in (".html", ".md", ".csv", ".tex")
    )


def test_a_report_of_nothing_or_to_nowhere_is_refused(tmp_path):
    with pytest.raises(ConfigError):
        write_reports([], tmp_path / "report.html")
    for place in (tmp_path, tmp_path / "table.csv"):
        with pytest.raises(StorageError):
            write_reports([TABLE], place)


def test_a_claims_page_has_its_comparisons_and_timings_are_drawn_in_milliseconds():
    cells = cell("thawed/uniform", 50.0, 51.0), cell("frozen/closed-form", 53.0, 54.5)
    claimed = results_page(record(*cells, name="claim-c4"))
    assert "<h1>C4: With 2x2 patches" in claimed
    assert 'aria-label="comparisons of C4"' in claimed
    assert "comparisons of C4" not in results_page(record(cells[0], name="claim-c4"))
    timed = results_page(SPEEDS)
    assert "<title>thawed: 300.00 at 3</title>" in timed
    assert '<circle class="mark s1"' in timed
    assert "<title>frozen: 240.00 at 3</title>" in timed
