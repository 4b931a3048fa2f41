"""A table of the paper from Python, with one's own initialisation as a column."""

import csv
import re
from dataclasses import replace

import pytest
import torch

import filtercov
from filtercov.errors import ConfigError, RunError
from filtercov.lab import reproduce, reproduction
from filtercov.lab.bench import describe_machine
from filtercov.lab.experiments import initialisations, register
from filtercov.lab.experiments.timings import SpeedRecord, Timings, measure_speeds


def constant(model, _context):
    """The same filter everywhere."""
    with torch.no_grad():
        for layer in filtercov.depthwise_layers(model):
            layer.weight.fill_(0.1)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(initialisations, "_table", dict(initialisations._table))
        register("constant", constant)
        found = reproduce("kronecker", scale="smoke", seeds=2, also=["kaiming"], runs=root)
        done = {path: path.stat().st_mtime_ns for path in root.glob("*/result.json")}
        again = reproduce("kronecker", scale="smoke", seeds=2, also=["kaiming"], runs=root)
    assert done == {path: path.stat().st_mtime_ns for path in root.glob("*/result.json")}  # nothing is trained again
    assert list(again) == list(found)
    return root, found


def test_the_table_has_the_papers_columns_and_ones_own(table):
    root, found = table
    columns = ["uniform", "covariance", "kronecker", "kaiming", "constant"]
    assert [cell["initialisation"] for cell in found if cell["filters"] == "frozen"] == columns
    assert len(found) == 10
    assert all(cell["n"] == 2 and 0 <= cell["mean"] <= 100 for cell in found)
    started = [p.parent for p in root.glob("*/config.json") if '"init": "constant"' in p.read_text()]
    assert len(started) == 4
    for directory in (p for p in started if '"freeze_filters": true' in (p / "config.json").read_text()):
        for layer in filtercov.FilterStatistics.from_checkpoint(directory / "checkpoint.safetensors").layers:
            assert layer.mean == pytest.approx(0.1)


def test_it_prints_shows_itself_in_a_notebook_and_writes_its_report(table, tmp_path):
    _, found = table
    assert re.search(r"\nfrozen +constant +\d+\.\d\d ± \d+\.\d\d .*2\n", str(found))
    html = found._repr_html_()
    assert html.count("<tr>") == 11
    assert "constant" in html
    found.write(tmp_path / "report.html")
    rows = list(csv.DictReader((tmp_path / "report.csv").read_text().splitlines()))
    assert [float(row["mean"]) for row in rows] == [cell["mean"] for cell in found]


def test_a_step_is_timed_thawed_and_frozen_in_each_repeat():
    found = measure_speeds(["convmixer_8_2_k5_p4"], repeats=2)
    (step,) = found.steps
    assert (step.model, step.kernel_size, found.repeats) == ("convmixer_8_2_k5_p4", 5, 2)
    assert step.thawed > 0
    assert step.frozen > 0
    assert all(-1000 < share < 100 for share in step.saved)


def test_steps_are_timed_again_where_timings_are_of_another_machine_or_of_fewer_repeats(tmp_path, monkeypatch):
    timed = []

    def measure(names, *, repeats, device):
        timed.append(repeats)
        steps = tuple(SpeedRecord(name, 3, 0.2, 0.1, (50.0,) * repeats) for name in names)
        return Timings(describe_machine(device), steps)

    def again():
        return reproduce("frozen-speed", scale="smoke", runs=tmp_path).record

    monkeypatch.setattr(reproduction, "measure_speeds", measure)
    first = again()
    assert again().speeds == first.speeds
    assert timed == [2]
    (path,) = (tmp_path / "speeds").iterdir()
    path.write_text(path.read_text().replace(first.versions["timed on"], "a machine with 96 threads"))
    assert again().versions == first.versions
    fewer = tuple(replace(step, saved=step.saved[:1]) for step in first.speeds)
    Timings(first.versions["timed on"], fewer).write(path)
    assert again().speeds == first.speeds
    assert timed == [2, 2, 2]
    path.write_text("[{")
    with pytest.raises(RunError, match=path.name):
        again()


@pytest.mark.parametrize(("name", "also"), [("cifar-convnext-*", []), ("grid-cifar-p2", ["kaiming"])])
def test_mistakes_are_refused_before_anything_is_written(tmp_path, name, also):
    with pytest.raises(ConfigError):
        reproduce(name, scale="smoke", runs=tmp_path, also=also)
    assert list(tmp_path.iterdir()) == []


def test_an_initialisation_that_fails_is_named(tmp_path):
    with pytest.raises(RunError, match=r"1 of 3 runs failed: .*/nowhere: cannot be read"):
        reproduce("claim-c13", scale="smoke", seeds=1, runs=tmp_path, also=["stats:nowhere"])
