"""Evidence: what is kept is what was measured, without directories, and every change of it is noticed."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from filtercov.cli.app import app
from filtercov.errors import ConfigError, DamagedRunError, RunError
from filtercov.lab.experiments.catalogue import Options, experiment
from filtercov.lab.experiments.evidence import Evidence, keep, portable, seal
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, RunSpec
from filtercov.lab.experiments.sweep import sweep
from filtercov.lab.training import read_metrics, read_result
from tests.lab.data.folders import write_folder, zip_folder
from tests.lab.experiments.tiny import timings

SMOKE, OPTIONS = "kronecker", Options(seeds=1)


def files(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A reference on images of a zip, a run that starts from its statistics, and a table of the embedded data."""
    place = tmp_path_factory.mktemp("place")
    images = zip_folder(write_folder(place / "images", per_class=8, size=(28, 28)), place / "images.zip")

    def spec(**fields):
        train = {"epochs": 2, "batch_size": 8, "seed": 3}
        return RunSpec.recipe("cifar", model="convmixer_4_2_k3_p14", data=f"folder:{images}", train=train, **fields)

    reference = Run(spec())
    started = Run(spec(init=f"statistics-of:{reference.key}", freeze_filters=True), reference)
    runs = Runs(place / "runs")
    table = experiment(SMOKE, scale="smoke", options=OPTIONS)
    runs.record(table)
    outcomes = sweep([started, *table.runs], runs.root)
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    return runs, reference, started


@pytest.fixture
def runs(finished, tmp_path):
    """A copy of the runs, to break."""
    return Runs(shutil.copytree(finished[0].root, tmp_path / "runs"))


@pytest.fixture(scope="module")
def kept(finished, tmp_path_factory):
    root = tmp_path_factory.mktemp("kept") / "evidence"
    keep([finished[0].root], root)
    return root


def test_what_is_kept_is_what_was_measured_and_names_no_place(finished, kept):
    runs, reference, started = finished
    for run in (reference, started):
        found = Evidence(kept).read(portable(run).key)
        directory = runs.directory(run)
        epochs = [line for line in read_metrics(directory.metrics) if line.pop("event") == "epoch"]
        assert list(found.epochs) == epochs
        assert found.result == read_result(directory.path)
        config = json.loads(directory.config.read_text())
        assert found.config["inputs"] == config["inputs"]
        assert {k for k in config if found.config[k] != config[k]} <= {"data", "init"}
        assert found.config["data"] == "folder:images.zip"
        assert found.spec == portable(run).spec
    assert found.config["init"] == f"statistics-of:{portable(reference).key}"
    for name, content in files(kept).items():
        assert name.endswith(".json")
        assert str(runs.root.parent).encode() not in content
        assert len(content) < 4000


def test_a_table_from_evidence_is_the_table_from_the_runs(finished, kept):
    (there,), (here,) = finished[0].experiments(), Evidence(kept).experiments()
    original, rebuilt = collect(there, finished[0]), collect(here, Evidence(kept))
    assert not original.missing
    assert original.trained == "convmixer_8_2_k9_p7 on 256 images of the embedded data, 1 epoch"
    assert rebuilt == original


def test_timings_alone_are_kept_and_give_way_to_more_repeats_and_pictures_of_filters_are_left_out(tmp_path):
    runs, kept = Runs(tmp_path / "runs"), Evidence(tmp_path / "evidence")
    timed, pictured = (experiment(name, scale="smoke") for name in ("frozen-speed", "example-filters"))
    for asked in (timed, pictured):
        runs.record(asked)
    for repeats, there in ((1, 1), (3, 3), (2, 3)):
        timings(timed, repeats).write(runs.speed_file(timed.name, timed.scale))
        keep([runs.root], kept.root)
        assert collect(timed, kept).speeds == timings(timed, there).steps
    assert collect(timed, kept).trained == f"{timed.speed[0]} and 2 more networks"
    assert [drawing.missing for drawing in collect(pictured, runs).drawings] == [True]
    assert collect(pictured, kept).drawings == ()
    without_runs = collect(experiment("variance-schedule", scale="smoke"), kept).drawings
    assert [drawing.missing for drawing in without_runs] == [False] * 3


def test_keeping_again_changes_nothing_and_more_is_added_to_what_is_there(finished, tmp_path):
    runs, reference, started = finished
    few, root = tmp_path / "few", tmp_path / "evidence"
    for run in (reference, started):
        shutil.copytree(runs.directory(run).path, few / run.key)
    assert set(keep([few], root).new) == {portable(run).key for run in (reference, started)}
    before = files(root)
    assert keep([few], root).new == []
    assert files(root) == before
    done = CliRunner().invoke(app, ["keep", str(runs.root), "--to", str(root)])
    assert before.items() < files(root).items()
    assert f"7 runs new in {root}, 2 there already" in done.output


def test_damaged_and_unfinished_runs_are_refused_and_nothing_is_written(finished, runs, tmp_path):
    reference, path = (runs.directory(run).path for run in finished[1:])
    (path / "result.json").unlink()
    for wrong in (path, tmp_path / "nowhere"):
        with pytest.raises(RunError):
            keep([wrong], tmp_path / "evidence")
    assert keep([runs.root], tmp_path / "most").unfinished == [path.name]
    assert not Evidence(tmp_path / "most").file(portable(finished[2]).key).exists()
    result = json.loads((reference / "result.json").read_text())
    (reference / "result.json").write_text(json.dumps({**result, "test_accuracy": 99.9}))
    with pytest.raises(DamagedRunError, match=reference.name):
        keep([runs.root], tmp_path / "evidence")
    assert not (tmp_path / "evidence").exists()


def test_more_seeds_replace_what_was_asked_for_and_other_options_are_refused(runs, kept, tmp_path):
    root = shutil.copytree(kept, tmp_path / "evidence")

    def asked_for(**options):
        runs.record(experiment(SMOKE, scale="smoke", options=Options(**options)))
        keep([runs.root], root)
        (found,) = Evidence(root).experiments()
        return found.options

    assert asked_for(seeds=2).seeds == 2
    assert asked_for(seeds=1).seeds == 2  # what was asked for before stays
    with pytest.raises(ConfigError, match="is kept already with other options"):
        asked_for(seeds=1, also=("orthogonal",))


@pytest.mark.parametrize("kind", ["accuracy", "sealed again", "another's name"])
def test_every_change_of_a_kept_run_is_noticed(finished, kept, tmp_path, kind):
    evidence, key = Evidence(shutil.copytree(kept, tmp_path / "evidence")), portable(finished[1]).key
    path = evidence.file(key)
    values = json.loads(path.read_text())
    if kind == "another's name":
        shutil.copy(evidence.file(portable(finished[2]).key), path)
    else:
        values["result"]["test_accuracy"] = 99.9  # which the numbers of the last epoch deny
        sealed = seal({name: value for name, value in values.items() if name != "sha256"})
        path.write_bytes(sealed if kind == "sealed again" else json.dumps(values).encode())
    usable, damaged = evidence.found
    assert key not in {run.key for run in usable}
    assert len(damaged) == 1
    assert damaged[0].startswith(f"run {key} is damaged and will not be used")
    with pytest.raises(DamagedRunError):
        keep([finished[0].root], evidence.root)
