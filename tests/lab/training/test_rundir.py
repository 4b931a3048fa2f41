import errno
import fcntl
import json
import multiprocessing

import pytest

from filtercov.errors import RunBusyError, RunDirectoryError, RunMismatchError, StorageError
from filtercov.lab.training import RunDirectory, TrainConfig, read_result
from tests.lab.training.children import hold
from tests.lab.training.toys import toy_fit


def contents(folder):
    """Every file of a directory with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_another_configuration_is_refused_by_name_and_nothing_is_overwritten(tmp_path):
    toy_fit(tmp_path, TrainConfig(epochs=2, batch_size=8), identity={"data": "toy"})
    before = contents(tmp_path)
    with pytest.raises(RunMismatchError, match=r"train.epochs is 2 there and 3 here") as caught:
        toy_fit(tmp_path, TrainConfig(epochs=3, batch_size=8), identity={"data": "toy"})
    assert "data" not in str(caught.value).replace(str(tmp_path), "")
    with pytest.raises(RunMismatchError, match=r"data is 'toy' there and 'other' here"):
        toy_fit(tmp_path, TrainConfig(epochs=2, batch_size=8), identity={"data": "other"})
    assert contents(tmp_path) == before


def test_a_directory_with_other_peoples_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(RunDirectoryError, match=r"thesis\.tex"):
        toy_fit(tmp_path)
    assert contents(tmp_path) == {"thesis.tex": b"important"}


def test_a_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match="not a file"):
        toy_fit(tmp_path / "file")


def test_a_second_trainer_in_this_process_is_refused_and_the_lock_is_released(tmp_path):
    with RunDirectory(tmp_path), pytest.raises(RunBusyError, match="already training"):
        toy_fit(tmp_path)
    assert toy_fit(tmp_path).steps == 15


def test_a_second_trainer_elsewhere_is_told_who_holds_the_directory(tmp_path):
    context = multiprocessing.get_context("forkserver")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path, ready, release))
    other.start()
    try:
        assert ready.wait(60)
        with pytest.raises(RunBusyError, match=f"process {other.pid} on"):
            toy_fit(tmp_path)
        assert set(contents(tmp_path)) == {"lock"}
    finally:
        release.set()
        other.join()
    assert toy_fit(tmp_path).steps == 15


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    (tmp_path / ".state.safetensors.123.tmp").write_bytes(b"half")
    toy_fit(tmp_path)
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_directory_that_cannot_be_entered_is_not_left_locked(tmp_path):
    (tmp_path / ".leftover.tmp").mkdir()  # which cannot be unlinked
    refused = RunDirectory(tmp_path)
    with pytest.raises(StorageError, match="Is a directory"):
        refused.__enter__()
    (tmp_path / ".leftover.tmp").rmdir()
    with RunDirectory(tmp_path):
        pass


def test_a_filesystem_without_locks_is_refused_with_what_to_do(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StorageError, match=r"No locks available.*filesystem with file locks"):
        toy_fit(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"epochs": 3}'])
def test_a_damaged_result_or_config_is_reported_with_its_path_and_what_helps(tmp_path, text):
    toy_fit(tmp_path)
    good = (tmp_path / "result.json").read_text()
    advice = "; restore it, or delete the run's directory to start again"
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(RunDirectoryError, match=rf"result\.json.*{advice}"):
        read_result(tmp_path)
    (tmp_path / "result.json").write_text(good)
    (tmp_path / "config.json").write_text(text)
    wanted = "holds a run with another" if "epochs" in text else rf"config\.json.*{advice}"
    with pytest.raises(RunDirectoryError, match=wanted):
        toy_fit(tmp_path)


def test_a_directory_that_cannot_be_looked_into_is_refused_with_what_to_do(tmp_path):
    for look in (read_result, toy_fit):
        with pytest.raises(StorageError, match=r"cannot look into .*: File name too long; .* another run directory"):
            look(tmp_path / ("x" * 300))


def test_a_run_that_another_begins_at_this_moment_is_busy_and_not_foreign(tmp_path, monkeypatch):
    list_files, other = RunDirectory._foreign_files, RunDirectory(tmp_path)

    def while_another_begins(self):
        monkeypatch.setattr(RunDirectory, "_foreign_files", list_files)
        other.__enter__()
        other.claim({})
        return list_files(self)

    monkeypatch.setattr(RunDirectory, "_foreign_files", while_another_begins)
    with pytest.raises(RunBusyError):
        RunDirectory(tmp_path).__enter__()
    other.__exit__(None, None, None)


def test_the_configuration_is_readable(tmp_path):
    toy_fit(tmp_path, identity={"model": "toy"})
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["model"] == "toy"
    assert TrainConfig.from_dict(stored["train"]) == TrainConfig(epochs=3, batch_size=8)
