"""The report's numbers: right, beside the paper's, and silent about nothing."""

import csv
import io
import itertools

import numpy as np
import pytest

from filtercov.errors import ExperimentError
from filtercov.report.results import write_reports
from filtercov.report.results_charts import ticks
from filtercov.report.results_lines import agreements, lines
from filtercov.report.results_statistics import bootstrap_difference, summarise
from filtercov.report.results_text import to_csv, to_latex, to_markdown, to_terminal
from tests.report.results_records import TABLE, cell, record


def test_mean_and_standard_deviation_are_those_of_a_sample():
    summary = summarise([50.0, 51.0, 53.0])
    assert summary.mean == pytest.approx(154 / 3)
    assert summary.std == pytest.approx(np.sqrt(((50 - 154 / 3) ** 2 + (51 - 154 / 3) ** 2 + (53 - 154 / 3) ** 2) / 2))
    assert summarise([50.0]).std is None


def test_the_bootstrap_interval_is_that_of_all_resamples():
    """With three seeds a side all 27 x 27 resamples can be listed; their quantiles are the exact answer."""
    ours, baseline = [54.0, 55.5, 57.0], [50.0, 51.0, 53.0]
    means = [[np.mean(choice) for choice in itertools.product(side, repeat=3)] for side in (ours, baseline)]
    exact = np.quantile([a - b for a in means[0] for b in means[1]], [0.025, 0.975])
    found = bootstrap_difference(ours, baseline)
    assert found.mean == pytest.approx(55.5 - 154 / 3)
    assert [found.low, found.high] == pytest.approx(exact, abs=0.35)  # a step of the exact distribution
    assert found.decided


def test_an_interval_needs_two_numbers_a_side_and_a_sign_needs_an_interval_without_zero():
    assert bootstrap_difference([50.0], [49.0, 48.0]).low is None
    assert not bootstrap_difference([50.0], [49.0, 48.0]).decided
    assert not bootstrap_difference([50.0, 40.0], [46.0, 44.0]).decided


def test_differences_are_from_uniform_in_the_same_row_and_compared_with_the_papers():
    found = {(line.filters, line.init): line for line in lines(TABLE)}
    thawed = found["thawed", "closed-form"]
    assert thawed.difference.mean == pytest.approx(4.0)
    assert thawed.paper_difference == pytest.approx(1.59)
    assert thawed.agreement == "agrees"
    assert found["frozen", "closed-form"].difference.mean == pytest.approx(-0.25)
    assert found["frozen", "closed-form"].agreement == "disagrees"
    assert found["thawed", "uniform"].difference is None
    assert found["frozen", "filters"].difference is None
    assert agreements(lines(TABLE)) == (1, 2)


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
    assert "| 55.00 ± 1.00 | 3 | 90.85 ± 0.10 | +4.00 [" in row
    assert "| agrees |" in row
    assert any("sign in 1 of 2 cells" in line for line in lines_)
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


def test_ticks_enclose_what_they_measure():
    for low, high in [(0.0, 1.0), (49.9, 50.1), (10.0, 10.0), (-3.0, 97.0), (89.99, 93.01)]:
        marks = ticks(low, high)
        assert marks[0] <= low <= high <= marks[-1]
        assert 2 <= len(marks) <= 8


def test_a_report_of_nothing_is_refused(tmp_path):
    with pytest.raises(ExperimentError, match="nothing to report"):
        write_reports([], tmp_path / "report.html")
