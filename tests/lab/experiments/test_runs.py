"""A run that is damaged, or read something that has changed since, is reported and done again, never averaged in."""

import errno
import io
import json
import shutil
from dataclasses import replace

import pytest

import filtercov as fc
from filtercov.errors import DamagedRunError, RunError, StorageError
from filtercov.lab.data import load
from filtercov.lab.experiments import runspec
from filtercov.lab.experiments.catalogue import Cell
from filtercov.lab.experiments.execute import build_model, execute, run_one
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, read_inputs
from filtercov.lab.experiments.sweep import sweep
from filtercov.statistics import filter_statistics
from tests.lab.data.folders import write_folder
from tests.lab.experiments.tiny import CrashAt, spec, table


@pytest.fixture
def runs(undisturbed, tmp_path):
    """A copy of the tiny table to break."""
    return Runs(shutil.copytree(undisturbed, tmp_path / "runs"))


def _flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


DAMAGE = {
    "result cut short": lambda d: (d / "result.json").write_text('{"epochs": '),
    "accuracy changed": lambda d: _change(d / "result.json", test_accuracy=99.9),
    "weights changed": lambda d: _flip(d / "checkpoint.safetensors"),
    "statistics changed": lambda d: _flip(d / "statistics.safetensors"),
    "metrics not JSON": lambda d: (d / "metrics.jsonl").write_text("nonsense\n"),
    "another run's config": lambda d: _change(d / "config.json", model="convmixer_8_2_k3_p14"),
    "config unknown": lambda d: _change(d / "config.json", surprise=1),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_run_is_reported_set_aside_and_done_again(runs, kind):
    run = table().cells[0].runs[0]
    before = runs.finished(run.key).result
    DAMAGE[kind](runs.directory(run).path)
    with pytest.raises(DamagedRunError, match=f"run {run.key} is damaged"):
        runs.finished(run.key)
    outcome = run_one(run, runs)
    assert outcome.status == "done"
    assert f"run {run.key} is damaged" in outcome.detail
    assert (runs.root / "damaged" / f"{run.key}-1").is_dir()
    runs.set_aside(run)
    assert (runs.root / "damaged" / f"{run.key}-2").is_dir()
    assert run_one(run, runs).status == "done"
    after = runs.finished(run.key).result
    assert (after.weights_sha256, after.test_accuracy) == (before.weights_sha256, before.test_accuracy)


def test_what_is_damaged_or_missing_is_named_and_its_cell_left_empty(runs, tmp_path):
    first, second, *_ = table().cells
    DAMAGE["weights changed"](runs.directory(first.runs[1]).path)
    absent = Run(spec(seed=5, init="orthogonal"))
    extra = Cell("k3", "frozen/orthogonal", 20, (first.runs[0], absent))
    record = collect(replace(table(), cells=(*table().cells, extra)), runs)
    assert [bool(cell.curves) for cell in record.cells] == [False, True, True, True, True, False]
    assert record.missing == (str(first.runs[1]), str(absent))
    assert first.runs[1].key in record.damaged[0]
    nothing = collect(replace(table(), cells=(second,)), Runs(tmp_path / "empty"))
    assert nothing.missing == (str(second.runs[0].reference), *map(str, second.runs))  # and what they start from


def test_what_a_run_starts_from_may_be_away_without_harm_to_what_it_has_done(runs, tmp_path):
    lost = table().cells[1].runs[0].reference
    statistics = shutil.copy(runs.directory(lost).path / "statistics.safetensors", tmp_path / "source.stats")
    for seed, init, reference, away in (
        (8, f"stats:{statistics}", None, statistics),
        (8, f"filters-of:{lost.key}", lost, runs.directory(lost).checkpoint),
    ):
        run = Run(spec(seed=seed, init=init), reference)
        assert "crash" in run_one(run, runs, progress=CrashAt(5)).detail
        state = runs.directory(run).state.read_bytes()
        away.rename(tmp_path / "away")
        outcome = run_one(run, runs)
        assert outcome.status == "failed"
        assert away.name in outcome.detail
        assert runs.directory(run).state.read_bytes() == state
        (tmp_path / "away").rename(away)
        assert run_one(run, runs).status == "done"
    assert not (runs.root / "damaged").exists()


def test_a_disk_that_fills_up_as_statistics_are_written_stops_the_sweep_and_the_run_is_kept(runs, monkeypatch):
    run, write = Run(spec(seed=8)), filter_statistics.write_checksummed

    def full(path, *arguments):
        if path.name == "statistics.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(filter_statistics, "write_checksummed", full)
        with pytest.raises(StorageError, match=r"statistics.safetensors.*No space left.*run the same command again"):
            run_one(run, runs)
    assert runs.directory(run).state.exists()
    assert run_one(run, runs).status == "done"
    assert not (runs.root / "damaged").exists()


# --- What a run read ---


@pytest.fixture
def write_statistics(tmp_path):
    """Write statistics of a small network of a seed to a file, and return the initialisation by it."""

    def write(seed):
        network = build_model(spec(seed=seed), load("embedded", limit=512))
        fc.FilterStatistics.from_model(network).save(tmp_path / "s.safetensors")
        return f"stats:{tmp_path}/s.safetensors"

    return write


def swept(run, root):
    """Sweep one run, as a command does; return what was said."""
    words = io.StringIO()
    assert {outcome.status for outcome in sweep([run], root, stream=words).values()} == {"done"}
    return words.getvalue()


def test_overwritten_statistics_are_another_run_to_a_sweep_and_what_starts_from_it_and_an_error_to_train(
    tmp_path, write_statistics
):
    reference = Run(spec(seed=100, init=write_statistics(1)))
    run, runs = Run(spec(init=f"filters-of:{reference.key}", freeze_filters=True), reference), Runs(tmp_path / "runs")

    def weights():
        said = swept(run, runs.root)
        inputs = json.loads(runs.directory(run).config.read_text())["inputs"]
        found = [runs.finished(each.key).result.weights_sha256 for each in (reference, run)]
        assert inputs["init"] == found[0]
        return found, said

    before, _ = weights()
    execute(reference.spec, tmp_path / "mine")
    write_statistics(2)
    with pytest.raises(RunError, match=r"inputs\.init is '\w+' there and '\w+' here"):
        execute(reference.spec, tmp_path / "mine")
    after, said = weights()
    assert "what it read has changed since: init is" in said
    assert all(new != old for new, old in zip(after, before, strict=True))
    assert {path.name for path in (runs.root / "damaged").iterdir()} == {f"{reference.key}-1", f"{run.key}-1"}
    assert "changed" not in swept(run, runs.root)
    write_statistics(1)
    assert weights()[0] == before


def test_a_number_after_a_name_is_no_file_even_where_there_is_one(tmp_path):
    (tmp_path / "9").write_text("not a file of filters")
    assert read_inputs(spec(init="box:9"), "0123", init_root=tmp_path) == {"data": "0123"}
    (tmp_path / "f.pth").write_text("a file")
    assert "init" in read_inputs(spec(init="filters:f.pth"), "0123", init_root=tmp_path)


def test_other_images_in_the_same_folder_are_another_run_and_none_at_all_are_no_harm(tmp_path):
    folder = write_folder(tmp_path / "images", per_class=64, size=(28, 28))
    run = Run(replace(spec(), data=f"folder:{folder}", data_limit=None, augment="none"))
    runs = Runs(tmp_path / "runs")
    swept(run, runs.root)
    before = runs.finished(run.key).result
    assert "changed" not in swept(run, runs.root)
    shutil.copy(next((folder / "train").glob("*/*")), next((folder / "train").glob("*")) / "another.png")
    assert "has changed since: data is" in swept(run, runs.root)
    assert runs.finished(run.key).result.weights_sha256 != before.weights_sha256
    shutil.rmtree(folder)
    assert "changed" not in swept(run, runs.root)


def test_another_meaning_of_the_same_settings_is_another_run(tmp_path, monkeypatch):
    run, runs = Run(spec()), Runs(tmp_path)
    run_one(run, runs)
    path = runs.directory(run).config
    config = json.loads(path.read_text())
    for name in ("format", "version"):
        path.write_text(json.dumps({**config, name: config[name] - 1}))
        with pytest.raises(DamagedRunError, match="of format"):
            runs.finished(run.key)
        with pytest.raises(RunError, match=f"{name} is 1 there and 2 here"):
            execute(run.spec, runs.directory(run).path)
    for name in ("FORMAT", "VERSION"):
        monkeypatch.setattr(runspec, name, 0)
        assert spec().key != run.key
        monkeypatch.undo()
