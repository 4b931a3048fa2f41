"""A run directory that is incomplete, changed or another run's is reported and done again, never averaged in."""

import json
import shutil

import pytest

from filtercov.errors import DamagedRunError, StorageError
from filtercov.lab.experiments import attempt as attempting
from filtercov.lab.experiments.attempt import attempt
from filtercov.lab.experiments.builder import Options
from filtercov.lab.experiments.graph import Run
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from tests.lab.experiments.tiny import read_journal, spec, table


@pytest.fixture
def runs(undisturbed, tmp_path):
    """A copy of the tiny table to break."""
    return Runs(shutil.copytree(undisturbed, tmp_path / "runs"))


def _flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


DAMAGE = {
    "result cut short": lambda d: _halve(d / "result.json"),
    "result empty": lambda d: (d / "result.json").write_bytes(b""),
    "result of other fields": lambda d: (d / "result.json").write_text("{}"),
    "accuracy changed": lambda d: _change(d / "result.json", test_accuracy=99.9),
    "accuracy not a number": lambda d: _change(d / "result.json", test_accuracy="high"),
    "checksum changed": lambda d: _change(d / "result.json", weights_sha256="0" * 64),
    "weights changed": lambda d: _flip(d / "checkpoint.safetensors"),
    "weights cut short": lambda d: _halve(d / "checkpoint.safetensors"),
    "weights missing": lambda d: (d / "checkpoint.safetensors").unlink(),
    "statistics changed": lambda d: _flip(d / "statistics.safetensors"),
    "statistics missing": lambda d: (d / "statistics.safetensors").unlink(),
    "metrics cut short": lambda d: _halve(d / "metrics.jsonl"),
    "metrics not JSON": lambda d: (d / "metrics.jsonl").write_text("nonsense\n"),
    "another run's config": lambda d: _change(d / "config.json", model="convmixer_8_2_k3_p14"),
    "config missing": lambda d: (d / "config.json").unlink(),
    "config unknown": lambda d: _change(d / "config.json", surprise=1),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_run_is_reported_set_aside_and_done_again(runs, kind):
    run = table().cells[0].runs[0]
    before = runs.result(run)
    DAMAGE[kind](runs.directory(run).path)
    with pytest.raises(DamagedRunError, match=f"run {run.key} is damaged"):
        runs.result(run)
    said = []
    assert attempt(run, runs, say=said.append).status == "done"
    assert f"run {run.key} is damaged" in said[0]
    assert (runs.root / "damaged" / f"{run.key}-1").is_dir()
    after = runs.result(run)
    assert (after.weights_sha256, after.test_accuracy) == (before.weights_sha256, before.test_accuracy)


def test_a_damaged_run_is_not_averaged_in_but_named(runs):
    cell = table().cells[0]
    DAMAGE["weights changed"](runs.directory(cell.runs[1]).path)
    record = collect(table(), runs, Options())
    assert record.cells[0].accuracies == ()
    assert record.missing == (str(cell.runs[1]),)
    assert cell.runs[1].key in record.damaged[0]
    assert all(other.accuracies for other in record.cells[1:])


def test_a_run_that_cannot_be_continued_is_begun_again(runs):
    run = Run(spec(seed=7))
    directory = runs.root / run.key
    directory.mkdir()
    (directory / "config.json").write_text("{")
    said = []
    assert attempt(run, runs, say=said.append).status == "done"
    assert "cannot be continued" in said[0]


def test_a_reference_that_was_lost_fails_the_run_with_a_sentence(runs):
    run = Run(spec(seed=8, init=f"filters-of:{(lost := Run(spec(seed=9))).key}"), lost)
    outcome = attempt(run, runs)
    assert outcome.status == "failed"
    assert "is not finished; finish it first" in outcome.detail


def test_a_full_disk_stops_the_sweep_instead_of_failing_every_run(tmp_path, monkeypatch):
    def full(*_, **__):
        raise StorageError("cannot write: No space left on device")

    monkeypatch.setattr(attempting, "execute", full)
    with pytest.raises(StorageError):
        attempt(Run(spec()), Runs(tmp_path))


def test_verified_runs_are_not_done_again(runs):
    began = len(read_journal(runs))
    for run in table().runs:
        assert attempt(run, runs).status == "done"
    assert len(read_journal(runs)) == began
