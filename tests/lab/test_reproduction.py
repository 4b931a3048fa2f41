"""A table of the paper from Python, with one's own initialisation as a column."""

import csv
import re
import shutil
from dataclasses import replace

import pytest
import torch

import filtercov
from filtercov.errors import ConfigError, RunError
from filtercov.lab import reproduce
from filtercov.lab.experiments import initialisations
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.timings import Timings, write_speeds
from tests.lab.experiments.tiny import read_journal


def constant(model, _context):
    """The same filter everywhere."""
    with torch.no_grad():
        for layer in filtercov.depthwise_layers(model):
            layer.weight.fill_(0.1)


def broken(_model, _context):
    raise RuntimeError("it is broken")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return root, reproduce("kronecker", scale="smoke", seeds=2, also=[constant, "kaiming"], runs=root)


def test_the_table_has_the_papers_columns_and_ones_own(table):
    _, found = table
    columns = ["uniform", "covariance", "kronecker", "kaiming", "constant"]
    assert [cell["initialisation"] for cell in found if cell["filters"] == "frozen"] == columns
    assert len(found) == 10
    assert all(cell["n"] == 2 and 0 <= cell["mean"] <= 100 for cell in found)


def test_the_function_is_what_the_runs_start_from_and_is_forgotten_after(table):
    root, _ = table
    started = [p.parent for p in root.glob("*/config.json") if '"init": "constant"' in p.read_text()]
    assert len(started) == 4
    frozen = [p for p in started if '"freeze_filters": true' in (p / "config.json").read_text()]
    for directory in frozen:
        for layer in filtercov.FilterStatistics.from_checkpoint(directory / "checkpoint.safetensors").layers:
            assert layer.mean == pytest.approx(0.1)
    assert "constant" not in initialisations.names()


def test_the_same_call_trains_nothing_again(table):
    root, found = table
    before = read_journal(Runs(root))
    again = reproduce("kronecker", scale="smoke", seeds=2, also=[constant, "kaiming"], runs=root)
    assert read_journal(Runs(root)) == before
    assert list(again) == list(found)


def test_it_prints_shows_itself_in_a_notebook_and_writes_its_report(table, tmp_path):
    _, found = table
    assert re.search(r"k9: convmixer_8_2_k9_p7 +1 \(20\) +frozen +constant +\d+\.\d\d ± \d+\.\d\d .*2\n", str(found))
    html = found._repr_html_()
    assert html.count("<tr>") == 11
    assert "constant" in html
    found.write(tmp_path / "report.html")
    rows = list(csv.DictReader((tmp_path / "report.csv").read_text().splitlines()))
    assert [float(row["mean"]) for row in rows] == [cell["mean"] for cell in found]
    again = "filtercov.lab.reproduce('kronecker', scale='smoke', also=['kaiming', constant])"
    assert again in (tmp_path / "report.md").read_text()


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A directory with timings of one thread, which tests have, and what was made of them."""
    root, threads = tmp_path_factory.mktemp("timed"), torch.get_num_threads()
    torch.set_num_threads(1)
    record = reproduce("frozen-speed", scale="smoke", runs=root).record
    torch.set_num_threads(threads)
    return root, record


@pytest.fixture
def timings(timed, tmp_path):
    """The file of such timings, in a directory that may be changed."""
    (path,) = (shutil.copytree(timed[0], tmp_path / "runs") / "speeds").iterdir()
    return path


def timed_again(timings):
    return reproduce("frozen-speed", scale="smoke", runs=timings.parents[1]).record


def test_steps_are_timed_again_where_others_were_timed_on_something_else(timed, timings):
    first = timed[1]
    assert timed_again(timings).speeds == first.speeds
    timings.write_text(timings.read_text().replace(first.versions["timed on"], "a machine with 96 threads"))
    again = timed_again(timings)
    assert again.speeds != first.speeds
    assert again.versions == first.versions


def test_steps_are_timed_again_where_they_were_repeated_less_often(timed, timings):
    first = timed[1]
    assert {len(step.saved) for step in first.speeds} == {2}
    fewer = tuple(replace(step, saved=step.saved[:1]) for step in first.speeds)
    write_speeds(timings, Timings(first.versions["timed on"], fewer))
    assert {len(step.saved) for step in timed_again(timings).speeds} == {2}


@pytest.mark.parametrize("damaged", ["[{", "[]", '{"machine": "one"}', '{"machine": "one", "steps": [{"model": 3}]}'])
def test_damaged_timings_are_named(timings, damaged):
    timings.write_text(damaged)
    with pytest.raises(RunError, match=rf"{timings.name}.*delete it to have"):
        timed_again(timings)


def test_mistakes_are_answered_with_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"needed one experiment, 'cifar-convnext-\*' matches"):
        reproduce("cifar-convnext-*", scale="smoke", runs=tmp_path)
    with pytest.raises(ConfigError, match="functions in also are known to this process alone"):
        reproduce("kronecker", scale="smoke", runs=tmp_path, also=[constant], workers=2)
    with pytest.raises(ConfigError, match="needed names of initialisations or functions with a name"):
        reproduce("kronecker", scale="smoke", runs=tmp_path, also=[lambda _model, _context: None])
    with pytest.raises(ConfigError, match="grid-cifar-p2 has no column for constant"):
        reproduce("grid-cifar-p2", scale="smoke", runs=tmp_path, also=[constant])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RunError, match=r"1 of 3 runs failed: RuntimeError: it is broken"):
        reproduce("claim-c13", scale="smoke", seeds=1, runs=tmp_path, also=[broken])
    assert "broken" not in initialisations.names()
