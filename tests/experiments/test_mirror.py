"""Runs at an fsspec address: what is copied when, and that a run goes on from what another worker left."""

import pytest

from filtercov.experiments import mirror as mirroring
from filtercov.experiments.attempt import attempt
from filtercov.experiments.graph import Run
from filtercov.experiments.mirror import Mirror, mounted
from filtercov.experiments.runs import Runs
from tests.experiments.tiny import spec


@pytest.fixture
def address(tmp_path):
    pytest.importorskip("fsspec")
    return f"file://{tmp_path}/bucket"


def test_a_directory_is_used_as_it_is(tmp_path):
    with mounted(str(tmp_path), "key") as runs:
        assert runs.root == tmp_path


def test_the_result_is_copied_last_and_nothing_is_copied_twice(tmp_path, address, monkeypatch):
    run = Run(spec())
    mirror = Mirror(address, tmp_path / "here")
    attempt(run, Runs(mirror.local))
    copied = []
    put = mirror._files.put_file
    monkeypatch.setattr(mirror._files, "put_file", lambda here, there: (copied.append(there), put(here, there)))
    mirror.push(run.key)
    names = [path.rsplit("/", 1)[-1] for path in copied]
    assert names[-1] == "result.json"
    assert sorted(names) == sorted(set(names))
    assert "lock" not in names
    mirror.push(run.key)
    assert len(copied) == len(names)


def test_another_worker_finds_the_run_done(tmp_path, address):
    run = Run(spec())
    first, second = (Mirror(address, tmp_path / name) for name in ("first", "second"))
    attempt(run, Runs(first.local))
    first.push(run.key)
    second.pull(run.key)
    assert Runs(second.local).result(run) == Runs(first.local).result(run)


def test_a_checkpoint_is_copied_while_the_run_trains(tmp_path, address, monkeypatch):
    monkeypatch.setattr(mirroring, "COPY_INTERVAL", 0.01)
    monkeypatch.setattr(mirroring.tempfile, "gettempdir", lambda: str(tmp_path))
    run = Run(spec(epochs=10))
    there = tmp_path / "bucket" / run.key
    seen = []

    class Watcher:
        def update(self, _snapshot):
            seen.append((there / "state.safetensors").exists() and not (there / "result.json").exists())

        def close(self):
            pass

    with mounted(address, run.key) as runs:
        attempt(run, runs, progress=Watcher())
    assert any(seen)
    assert Runs(tmp_path / "bucket").result(run) is not None
