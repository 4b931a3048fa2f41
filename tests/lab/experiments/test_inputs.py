"""A run is known by the content of what it reads: what changed under an old name never gives the old result."""

import dataclasses
import io
import json
import shutil

import pytest

import filtercov as fc
from filtercov.errors import DamagedRunError, RunError
from filtercov.lab.data import load
from filtercov.lab.experiments import runspec
from filtercov.lab.experiments.execute import build_model, execute, run_one
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, read_inputs
from filtercov.lab.experiments.sweep import sweep
from tests.lab.data.folders import write_folder
from tests.lab.experiments.tiny import CrashAt, spec


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
    outcomes = sweep([run], root, stream=words)
    assert outcomes[run.key].status == "done"
    return words.getvalue()


def test_overwritten_statistics_are_another_run_to_a_sweep_and_an_error_to_train(tmp_path, write_statistics):
    run, runs = Run(spec(init=write_statistics(1))), Runs(tmp_path / "runs")
    swept(run, runs.root)
    before = runs.finished(run).result
    execute(run.spec, tmp_path / "mine")

    write_statistics(2)
    with pytest.raises(RunError, match=r"inputs\.init is '\w+' there and '\w+' here"):
        execute(run.spec, tmp_path / "mine")
    said = swept(run, runs.root)
    assert "what it read has changed since: init is" in said
    assert runs.finished(run).result.weights_sha256 != before.weights_sha256
    assert (runs.root / "damaged" / f"{run.key}-1" / "result.json").exists()
    assert "changed" not in swept(run, runs.root)

    write_statistics(1)
    swept(run, runs.root)
    assert runs.finished(run).result.weights_sha256 == before.weights_sha256


def test_a_number_after_a_name_is_no_file_even_where_there_is_one(tmp_path):
    (tmp_path / "9").write_text("not a file of filters")
    assert read_inputs(spec(init="box:9"), "0123", init_root=tmp_path) == {"data": "0123"}
    (tmp_path / "f.pth").write_text("a file")
    assert "init" in read_inputs(spec(init="filters:f.pth"), "0123", init_root=tmp_path)


def test_an_unfinished_run_whose_statistics_changed_is_begun_again(tmp_path, write_statistics):
    run, runs = Run(spec(init=write_statistics(1))), Runs(tmp_path / "runs")
    assert run_one(run, runs, progress=CrashAt(5)).status == "failed"
    write_statistics(2)
    said = []
    assert run_one(run, runs, say=said.append).status == "done"
    assert "inputs.init" in said[0]
    fresh = execute(run.spec, tmp_path / "fresh")
    assert runs.finished(run).result.weights_sha256 == fresh.weights_sha256


def test_other_images_in_the_same_folder_are_another_run_and_none_at_all_are_no_harm(tmp_path):
    folder = write_folder(tmp_path / "images", per_class=64, size=(28, 28))
    run = Run(dataclasses.replace(spec(), data=f"folder:{folder}", data_limit=None, augment="none"))
    runs = Runs(tmp_path / "runs")
    swept(run, runs.root)
    before = runs.finished(run).result
    assert "changed" not in swept(run, runs.root)
    shutil.copy(next((folder / "train").glob("*/*")), next((folder / "train").glob("*")) / "another.png")
    assert "has changed since: data is" in swept(run, runs.root)
    assert runs.finished(run).result.weights_sha256 != before.weights_sha256
    shutil.rmtree(folder)
    assert "changed" not in swept(run, runs.root)


def test_a_run_that_starts_from_a_run_follows_it(tmp_path, write_statistics):
    reference = Run(spec(seed=100, init=write_statistics(1)))
    run = Run(spec(init=f"filters-of:{reference.key}", freeze_filters=True), reference)
    runs = Runs(tmp_path / "runs")
    for seed in (1, 2):
        write_statistics(seed)
        outcomes = sweep([reference, run], runs.root, stream=io.StringIO())
        assert {outcome.status for outcome in outcomes.values()} == {"done"}
        inputs = json.loads(runs.directory(run).config.read_text())["inputs"]
        assert inputs["init"] == runs.finished(reference).result.weights_sha256
    assert {path.name for path in (runs.root / "damaged").iterdir()} == {f"{reference.key}-1", f"{run.key}-1"}


def test_another_meaning_of_the_same_settings_is_another_run(tmp_path, monkeypatch):
    run, runs = Run(spec()), Runs(tmp_path)
    run_one(run, runs)
    path = runs.directory(run).config
    config = json.loads(path.read_text())
    for name in ("format", "version"):
        path.write_text(json.dumps({**config, name: config[name] - 1}))
        with pytest.raises(DamagedRunError, match="of format"):
            runs.finished(run)
        with pytest.raises(RunError, match=f"{name} is 1 there and 2 here"):
            execute(run.spec, runs.directory(run).path)
    for name in ("FORMAT", "VERSION"):
        monkeypatch.setattr(runspec, name, 0)
        assert spec().key != run.key
        monkeypatch.undo()
