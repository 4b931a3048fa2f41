"""The report of an experiment: right numbers beside the paper's, silent about nothing, on a page that fits."""

import csv
import html
import io
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from filtercov.errors import StorageError
from filtercov.lab.experiments.records import DrawingRecord
from filtercov.lab.report import page
from filtercov.lab.report.results import results_page, write_reports
from filtercov.lab.report.results_table import lines, ranked, standings, table, to_csv, to_markdown, to_terminal
from tests.lab.report.results_records import SPEEDS, TABLE, TRAINED, cell, record


def test_each_cell_is_compared_with_uniform_of_its_own_row_epochs_and_filters():
    places = [{"row": row, "epochs": epochs} for row in ("k9", "k15") for epochs in (20, 50)]
    cells = [
        cell(f"{filters}/{init}", 50.0 + gain * place, row=where["row"], epochs=where["epochs"])
        for place, (where, filters) in enumerate(product(places, ("thawed", "frozen")), start=1)
        for init, gain in (("closed-form", 2), ("uniform", 1))
    ]
    found = lines(record(*cells))
    assert [line.difference.mean for line in found if line.cell.init != "uniform"] == list(range(1, 9))
    assert {line.difference for line in found if line.cell.init == "uniform"} == {None}
    assert [row[:3] for row in table(found)[:2]] == [
        ["row", "epochs (the paper's)", "filters"],
        ["k9", "5 (20)", "thawed"],
    ]
    assert table(found[:1])[0][0] == "filters"  # where all have one row and length


@pytest.mark.parametrize("make", [to_markdown, to_terminal, results_page])
def test_every_text_says_what_its_numbers_mean_and_what_is_missing(make):
    text = html.unescape(make(replace(TABLE, damaged=("run 0 is damaged",))))
    for said in (
        "in brackets Student's 95% interval",
        "Smaller than in the paper: everything & more.",
        "net_k9",
        "missing 1 run",
        "0123456789abcdef",
        "Run 0 is damaged.",
    ):
        assert said in text
    alone = html.unescape(make(record(cell("thawed/uniform", 50.0, paper=89.0), cell("thawed/dog", 54.0, paper=90.0))))
    assert "54.00 ±" not in alone
    assert "+4.00 (one seed)" in alone


def test_a_page_begins_with_the_largest_gain_beside_the_papers_where_accuracies_mean_something():
    cells = [cell("thawed/uniform", 50.0, 51.0, paper=89.0), cell("thawed/dog", 53.0, 54.5, paper=90.5)]
    cells.append(cell("thawed/cat", 51.5, 52.0, paper=88.0))
    said = (
        "The largest gain over uniform, k9: net_k9: dog, thawed ends 3.25 points above uniform, thawed, [+0.07, +6.43]"
    )
    assert f'<p class="lead">{said}, n = 2, in the paper +1.50' in results_page(record(*cells))
    assert "The largest gain" not in results_page(record(*cells, scale="smoke"))


def test_csv_holds_every_number_unrounded_and_nothing_of_what_is_missing():
    (row,) = csv.DictReader(io.StringIO(to_csv(record(cell("frozen/uniform", 1 / 3, 2 / 3)))))
    assert float(row["mean"]) == 0.5
    assert float(row["std"]) == pytest.approx(np.std([1 / 3, 2 / 3], ddof=1), abs=1e-15)
    *_, row = csv.DictReader(io.StringIO(to_csv(TABLE)))
    assert (row["mean"], row["n"], row["missing_runs"], row["paper_mean"]) == ("", "", "1", "89.5")


def test_a_ranking_is_told_in_sentences_where_accuracies_mean_something():
    noise = (0.3, -0.2, 0.1, -0.4, 0.2, 0.0) * 2
    gains = {"uniform": 0, "closed-form": 3, "dog": 5, "box": -2, "like": 3.1, "half": 1.5}
    levels = enumerate(gains.items())
    cells = [cell(f"frozen/{x}", *(50 + gain + n for n in noise[i : i + 6])) for i, (x, gain) in levels]
    cells += [cell("thawed/uniform", 50.0, 51.0), cell("thawed/closed-form", 52.0, 53.5)]  # nothing to rank
    cells += [cell(f"frozen/{x}", 50.0, 51.0, row="k3") for x in ("uniform", "dog", "box")]  # nothing to rank it by
    ranking = record(*cells, chart="ranking")
    (found,) = ranked(ranking).values()
    assert [line.cell.init for line in found] == ["dog", "like", "closed-form", "half", "box"]
    (said,) = standings(ranking)
    assert said.startswith("k9 frozen: the closed form gains +3.00 [")
    kinds = ("better: dog", "not told apart from it: like", "between it and uniform: half")
    assert said.endswith("; ".join(["", *kinds, "no better than uniform: box."]))
    assert all("better: dog; not told apart" in make(ranking) for make in (to_markdown, to_terminal, results_page))
    assert standings(replace(ranking, scale="smoke")) == standings(replace(ranking, chart="bars")) == []


def test_on_a_phone_numbers_are_in_sight_and_what_is_missing_is_a_warning(browser, tmp_path):
    tab = browser.open(write_reports([TABLE], tmp_path / "report.html")[0], width=390)
    number = "[...document.querySelectorAll('.sortable td')].find(e => e.textContent.startsWith('51.00'))"
    assert tab.evaluate(f"{number}.getBoundingClientRect().right") < 390
    assert tab.evaluate("document.querySelector('h1').textContent") == "Made up <for tests>"
    assert "Missing" in tab.evaluate("document.querySelector('.warning').textContent")
    assert "Smaller" in tab.evaluate("document.querySelector('.note').textContent")
    gone = record(drawings=(DrawingRecord("filters", "Learned filters", trained=TRAINED),))
    assert "The run this shows is missing." in results_page(gone)


@pytest.mark.parametrize(
    "ascending",
    [["claim-c1", "claim-c2", "claim-c10"], ["300 runs", "1,200 runs", "complete"], ["−3.5", "-0.25 ± 0.1", "+4.00"]],
)
def test_tables_sort_by_what_cells_mean_both_ways_with_what_is_empty_last(browser, tmp_path, ascending):
    shuffled = ["", *sorted(ascending, key=lambda cell: cell[::-1])]
    table = page.text_table([["a", "b"], *(["row", cell] for cell in shuffled)])
    tab = browser.open(page.write_output(tmp_path / "p.html", page.page("sorted", table)))
    button = ".sortable th[scope=col]:nth-child(2) button"
    cells = "[...document.querySelectorAll('.sortable tbody tr')].map(row => row.cells[1].textContent)"
    tab.click(button)
    assert tab.evaluate(cells) == [*ascending, ""]
    tab.evaluate(f"document.querySelector('{button}').focus()")
    tab.press("Enter")
    assert tab.evaluate(cells) == [*reversed(ascending), ""]
    assert tab.evaluate(f"document.querySelector('{button}').parentElement.ariaSort") == "descending"


def test_a_report_to_nowhere_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="choose another place"):
        page.write_output(tmp_path / "file" / "page.html", "x")
    for place, advice in ((tmp_path, "name the page in it"), (tmp_path / "table.csv", "call it table.html")):
        with pytest.raises(StorageError, match=advice):
            write_reports([TABLE], place)


def test_a_claims_page_has_its_comparisons_and_timings_are_drawn_in_milliseconds():
    cells = cell("thawed/uniform", 50.0, 51.0), cell("frozen/closed-form", 53.0, 54.5)
    claimed = results_page(record(*cells, name="claim-c4"))
    assert "<h1>C4: With 2x2 patches" in claimed
    assert 'aria-label="comparisons of C4"' in claimed
    assert "comparisons of C4" not in results_page(record(cells[0], name="claim-c4"))
    timed = results_page(SPEEDS)
    assert "<title>thawed: 300.00 at 3</title>" in timed
    assert "<title>frozen: 240.00 at 3</title>" in timed
    assert "| net_k3 | 3 | 300.0 | 240.0 | 20% |" in to_markdown(SPEEDS)
