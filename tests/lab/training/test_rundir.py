"""One configuration and one trainer to a directory, and nothing lost on disks that are full or read-only."""

import errno
import json
import os

import pytest

from filtercov.errors import RunBusyError, RunError, StorageError
from filtercov.lab.training import RunDirectory, TrainConfig, read_metrics, read_result
from tests.lab.training.toys import CONFIG, toy_fit, untimed


def contents(folder):
    """Every file of a directory with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_another_configuration_is_refused_by_name_and_nothing_is_overwritten(tmp_path):
    toy_fit(tmp_path, identity={"data": "toy", "size": (1, 2)})
    stored = json.loads((tmp_path / "config.json").read_text())
    assert (stored["format"], stored["data"]) == (2, "toy")
    assert TrainConfig.from_dict(stored["train"]) == CONFIG
    before = contents(tmp_path)
    with pytest.raises(RunError, match=r"\(train.epochs is 3 there and 2 here\)"):
        toy_fit(tmp_path, TrainConfig(epochs=2, batch_size=8), identity={"data": "toy", "size": (1, 2)})
    with pytest.raises(RunError, match=r"\(data is 'toy' there and None here; size"):
        toy_fit(tmp_path)
    assert contents(tmp_path) == before


def test_a_place_that_is_no_run_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(RunError, match=r"thesis\.tex"):
        toy_fit(tmp_path)
    with pytest.raises(StorageError):
        toy_fit(tmp_path / "thesis.tex" / "inside")
    assert contents(tmp_path) == {"thesis.tex": b"important"}


def test_a_second_trainer_is_told_who_holds_the_directory(tmp_path):
    (tmp_path / ".state.safetensors.123.tmp").write_bytes(b"half")  # left by a writer that was killed
    with RunDirectory(tmp_path):
        with pytest.raises(RunBusyError, match=f"process {os.getpid()} on"):
            toy_fit(tmp_path)
        assert set(contents(tmp_path)) == {"lock"}
    assert toy_fit(tmp_path).steps == 15


@pytest.mark.parametrize("text", ["", "[1]", '{"epochs": 3}'])
def test_a_damaged_result_or_config_is_reported_with_its_path_and_what_helps(tmp_path, text):
    toy_fit(tmp_path)
    good = (tmp_path / "result.json").read_text()
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(RunError, match=r"result\.json.*delete the run's directory"):
        read_result(tmp_path)
    (tmp_path / "result.json").write_text(good)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RunError, match="another configuration" if "epochs" in text else r"config\.json"):
        toy_fit(tmp_path)


def test_metrics_are_lines_and_one_cut_short_by_a_crash_is_left_out_and_then_overwritten(tmp_path):
    run, path = RunDirectory(tmp_path), tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    first, second = {"step": 1, "loss": 0.5}, {"step": 2, "loss": None}
    run.append_metrics(first)
    size = path.stat().st_size
    run.append_metrics(second)
    path.write_text(path.read_text() + '{"st')
    assert read_metrics(path) == [first, second]
    run.truncate_metrics(size)
    run.append_metrics(second)
    assert read_metrics(path) == [first, second]


def test_a_full_disk_is_a_storage_error(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left"):
        RunDirectory(tmp_path).append_metrics({"step": 1})


@pytest.mark.parametrize(("call", "code"), [("fsync", errno.EIO), ("replace", errno.EDQUOT)])
def test_every_failing_call_is_a_storage_error_and_the_run_continues(tmp_path, monkeypatch, call, code):
    working = getattr(os, call)
    expected = toy_fit(tmp_path / "expected", log_interval=2).weights_sha256
    for at in range(2, 6):
        remaining = at

        def failing(*args, **kwargs):
            nonlocal remaining
            remaining -= 1
            if remaining == 0:
                raise OSError(code, os.strerror(code))
            return working(*args, **kwargs)

        run_dir = tmp_path / str(at)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            with pytest.raises(StorageError, match=os.strerror(code)):
                toy_fit(run_dir, log_interval=2)
        assert toy_fit(run_dir, log_interval=2).weights_sha256 == expected
        assert untimed(run_dir) == untimed(tmp_path / "expected")
