"""The report's numbers: right, beside the paper's, and silent about nothing."""

import csv
import html
import io
import re
from dataclasses import replace

import numpy as np
import pytest

from filtercov.errors import ExperimentError
from filtercov.lab.experiments.records import Trained
from filtercov.lab.report.results import results_page, write_reports
from filtercov.lab.report.results_lines import lines, tally
from filtercov.lab.report.results_text import notes, notes_once, to_csv, to_latex, to_markdown, to_terminal
from filtercov.lab.report.results_words import METHOD
from tests.lab.report.results_records import TABLE, cell, record


def test_differences_are_from_uniform_in_the_same_row_and_compared_with_the_papers():
    found = {(line.filters, line.init): line for line in lines(TABLE)}
    thawed = found["thawed", "closed-form"]
    assert thawed.difference.mean == pytest.approx(4.0)
    assert thawed.paper_difference == pytest.approx(1.59)
    assert thawed.verdict == "holds"
    assert found["frozen", "closed-form"].difference.mean == pytest.approx(-0.25)
    assert found["frozen", "closed-form"].verdict == "open"
    assert found["thawed", "uniform"].difference is None
    assert found["frozen", "filters"].difference is None
    assert tally(lines(TABLE)) == {"holds": 1, "open": 1}


def test_columns_with_other_seeds_are_compared_over_those_they_share_and_the_number_is_said():
    uniform = cell("thawed/uniform", 50.0, 51.0, 52.0, paper=89.0)
    ours = cell("thawed/closed-form", 56.0, 54.0, 99.0, seeds=(1, 0, 7), paper=90.0)
    stranger = cell("thawed/kaiming", 54.0, 55.0, seeds=(8, 9), paper=90.0)
    _, shared, unpaired = lines(record(uniform, ours, stranger))
    assert (shared.difference.mean, shared.difference.n) == (4.5, 2)
    assert (unpaired.difference, unpaired.verdict) == (None, None)
    text = to_markdown(record(uniform, ours, stranger))
    assert "\n\n\n" not in text
    assert "| +4.50 [-1.85, +10.85], n = 2 | +1.00 | open |" in text
    assert "| no seed in common | +1.00 |  |" in text


def test_names_with_signs_of_latex_or_markdown_are_shown_as_they_are():
    strange = record(cell("thawed/uniform", 50.0, 51.0), cell(r"thawed/a\b^2~c|d_e", 52.0, 53.0))
    assert r"a\textbackslash{}b\textasciicircum{}2\textasciitilde{}c|d\_e" in to_latex(strange)
    rows = [line for line in to_markdown(strange).splitlines() if line.startswith("| ")]
    assert r"a\b^2~c\|d_e" in rows[-1]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_a_paper_without_a_difference_makes_no_claim():
    found = lines(record(cell("thawed/uniform", 50.0, 51.0, paper=89.0), cell("thawed/dog", 52.0, 54.0, paper=89.0)))
    assert (found[1].paper_difference, found[1].verdict) == (0.0, None)


@pytest.mark.parametrize("make", [to_markdown, to_terminal, to_latex, results_page])
def test_every_text_says_what_its_intervals_and_verdicts_mean(make):
    text = html.unescape(make(TABLE))
    assert "over the n seeds that both columns have, in brackets the 95% interval: Student's" in text
    assert "Of 2 signs of the paper's differences from uniform 1 hold, 0 are contradicted and 1 are open." in text
    assert "Each verdict is for itself, without correction" in text


@pytest.mark.parametrize("chart", ["bars", "lines", "grid"])
@pytest.mark.parametrize("make", [to_markdown, to_terminal, to_latex, results_page])
def test_one_run_is_never_shown_with_a_spread_an_interval_or_a_decided_sign(make, chart):
    cells = cell("thawed/uniform", 50.0, paper=89.0), cell("thawed/closed-form 1 2 3", 54.0, paper=90.0)
    text = html.unescape(make(record(*cells, chart=chart)))
    assert "54.00 ±" not in text
    assert "± 0.00" not in text
    assert "Where n is 1 the spread is not measured" in text
    assert "signs of the paper's differences" not in text
    assert lines(record(*cells))[1].verdict is None
    if make is not to_latex:  # which has no differences
        assert "+4.00 [not measured], n = 1" in text
    if make is results_page:
        assert "one run each, spread not measured" in text


def test_a_scale_whose_accuracies_mean_nothing_decides_no_sign():
    cells = cell("thawed/uniform", 50.0, 51.0, paper=89.0), cell("thawed/closed-form", 60.0, 61.1, paper=90.0)
    assert lines(record(*cells))[1].verdict == "holds"
    smoke = record(*cells, scale="smoke")
    assert lines(smoke)[1].verdict is None
    for make in (to_markdown, to_terminal, to_latex, results_page):
        assert "signs of the paper's differences" not in html.unescape(make(smoke))
        assert "holds" not in re.sub("<style>.*?</style>", "", make(smoke), flags=re.DOTALL)


@pytest.mark.parametrize("make", [to_markdown, to_terminal, to_latex, results_page])
def test_a_reduced_scale_says_what_was_trained_beside_what_it_stands_for(make):
    text = html.unescape(make(TABLE))
    assert "net_k9 on 10,000 images of toys, 5 epochs, standing for: Made up <for tests>" in text
    assert "k9: net_k9" in text.replace("\\_", "_")
    whole = html.unescape(make(record(*TABLE.cells, scale="paper", reduced="")))
    assert "Made up <for tests>" in whole
    assert "standing for" not in whole
    assert "net_k9" not in whole


def test_networks_and_epochs_of_a_whole_table_are_counted():
    cells = [
        cell("thawed/uniform", 50.0, trained=Trained(f"net_k{k}", "toys", epochs))
        for k, epochs in ((3, 1), (5, 9), (7, 2))
    ]
    assert record(*cells[:2]).trained == "net_k3 and net_k5 on toys, 1 to 9 epochs"
    assert record(*cells).trained == "net_k3 and 2 more networks on toys, 1 to 9 epochs"


def test_missing_runs_are_named_everywhere_and_averaged_nowhere():
    for make in (to_markdown, to_terminal, to_latex):
        text = make(TABLE)
        assert "missing 1 run" in text
        assert "0123456789abcdef" in text
    row = list(csv.DictReader(io.StringIO(to_csv(TABLE))))[-1]
    assert (row["mean"], row["n"], row["missing_runs"], row["paper_mean"]) == ("", "", "1", "89.5")


def test_csv_holds_every_number_unrounded():
    rows = list(csv.DictReader(io.StringIO(to_csv(record(cell("frozen/uniform", 1 / 3, 2 / 3))))))
    assert float(rows[0]["mean"]) == 0.5
    assert float(rows[0]["std"]) == pytest.approx(np.std([1 / 3, 2 / 3], ddof=1), abs=1e-15)
    assert rows[0]["trained_epochs"] == "5"


def test_markdown_shows_measured_and_paper_side_by_side():
    lines_ = to_markdown(TABLE).splitlines()
    row = next(line for line in lines_ if "closed-form" in line and "thawed" in line)
    assert "| 55.00 ± 0.87 | 3 | 90.85 ± 0.10 | +4.00 [+2.76, +5.24], n = 3 | +1.59 | holds |" in row
    assert any("Smaller than in the paper: everything & more." in line for line in lines_)


def test_columns_that_say_nothing_are_left_out():
    head = to_terminal(record(cell("frozen/uniform", 1.0))).splitlines()[1]
    assert "paper  " not in head
    assert "sign" not in head


def test_latex_compiles_in_principle():
    text = to_latex(record(cell("frozen/closed-form 0.1 0.2 0.3", 50.0, row="a_b&c")))
    assert "a\\_b\\&c" in text
    begin = text.index("\\begin{tabular}{llr}")
    rows = [line for line in text[begin:].splitlines() if line.endswith("\\\\")]
    assert {line.count(" & ") for line in rows} == {2}
    assert text.count("{") == text.count("}")


def test_a_report_of_nothing_is_refused(tmp_path):
    with pytest.raises(ExperimentError, match="nothing to report"):
        write_reports([], tmp_path / "report.html")


def test_notes_that_tables_share_are_said_once() -> None:
    lone = replace(TABLE, name="alone", reduced="the data")
    other = replace(TABLE, name="other", damaged=("run 0 is damaged",))
    own, shared = notes_once([TABLE, other, lone])
    everything = [note for record in (TABLE, other, lone) for note in notes(record, lines(record))]
    said = [note for notes_of_one in own for note in notes_of_one] + shared
    assert [sum(note in one for one in said) for note in everything] == [1] * len(everything)
    assert own[0] == []
    assert own[1] == ["Run 0 is damaged."]
    assert own[2] == ["Smaller than in the paper: the data."]
    assert "made-up, other: Smaller than in the paper: everything & more." in shared
    assert METHOD in shared
    assert notes_once([TABLE]) == ([notes(TABLE, lines(TABLE))], [])
