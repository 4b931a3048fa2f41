"""Runs at an fsspec address: whole generations, whatever fails or dies, and no run lost to a worker that was."""

import itertools
import json
import secrets
import threading

import pytest

pytest.importorskip("fsspec")

from filtercov.errors import StorageError
from filtercov.lab.experiments import generations
from filtercov.lab.experiments import mirror as mirroring
from filtercov.lab.experiments.attempt import Machine, attempt
from filtercov.lab.experiments.graph import Run
from filtercov.lab.experiments.mirror import Copier, Mirror, mounted
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.training import load_checkpoint
from tests.lab.experiments.children import CONTEXT
from tests.lab.experiments.storages import UnreliableFileSystem, push_and_die
from tests.lab.experiments.tiny import spec

BATCHES = 4  # of an epoch of the tiny runs


@pytest.fixture(params=["file", "memory"])
def address(tmp_path, request):
    return f"file://{tmp_path}/bucket" if request.param == "file" else f"memory://{secrets.token_hex(4)}"


@pytest.fixture
def unreliable(tmp_path, monkeypatch):
    """An address whose storage fails as `UnreliableFileSystem.before` says; no waiting between tries."""
    monkeypatch.setattr(UnreliableFileSystem, "before", None)
    monkeypatch.setattr(generations, "RETRY_DELAYS", (0.0, 0.0))
    monkeypatch.setattr(mirroring, "COPY_INTERVAL", 0.01)
    monkeypatch.setattr(mirroring.tempfile, "gettempdir", lambda: str(tmp_path))
    return f"unreliable://{tmp_path}/bucket"


def checkpointed(run, local, *, steps):
    """Train a run until some step's checkpoint and leave it there."""

    class Stop(Exception):  # noqa: N818
        pass

    class Crash:
        def update(self, snapshot):
            if snapshot.step == steps + 1:
                raise Stop

        def close(self):
            pass

    with pytest.raises(Stop):
        attempt(run, Runs(local), progress=Crash(), machine=Machine(recovery_interval=1))


def step_of(folder):
    """The step that a copied run is at; its files must all be of it."""
    values = load_checkpoint(folder / "state.safetensors")[1]
    step = values["epoch"] * BATCHES + values["batch"]
    assert load_checkpoint(folder / "checkpoint.safetensors")[1]["step"] == step
    assert (folder / "metrics.jsonl").stat().st_size == values["metrics_size"]
    assert json.loads((folder / "config.json").read_text())["model"]
    return step


def test_a_directory_is_used_as_it_is(tmp_path):
    with mounted(str(tmp_path), "key") as runs:
        assert runs.root == tmp_path


def test_another_worker_finds_the_run_done(tmp_path, address):
    run = Run(spec())
    first, second, third = (Mirror(address, tmp_path / name) for name in ("first", "second", "third"))
    attempt(run, Runs(first.local))
    first.push(run.key)
    second.pull(run.key)
    assert Runs(second.local).result(run) == Runs(first.local).result(run)
    files = {path.name for path in (second.local / run.key).iterdir()}
    assert files == {path.name for path in (first.local / run.key).iterdir()} - {"lock"}
    third.pull("another")
    assert not (third.local / "another").exists()


def test_another_worker_goes_on_from_the_last_checkpoint(tmp_path, address):
    run = Run(spec())
    whole = Runs(tmp_path / "whole")
    attempt(run, whole)
    first, second = (Mirror(address, tmp_path / name) for name in ("first", "second"))
    checkpointed(run, first.local, steps=5)
    first.push(run.key)
    second.pull(run.key)
    assert step_of(second.local / run.key) == 5
    attempt(run, Runs(second.local))
    assert Runs(second.local).result(run).weights_sha256 == whole.result(run).weights_sha256


def test_readers_of_a_run_that_trains_see_whole_checkpoints_only(tmp_path, unreliable):
    run, seen, ended = Run(spec(epochs=6)), [], threading.Event()

    def read():
        for number in itertools.count():
            if ended.is_set():
                return
            reader = Mirror(unreliable, tmp_path / f"reader-{number}")
            reader.pull(run.key)
            if (reader.local / run.key / "state.safetensors").exists():
                seen.append(step_of(reader.local / run.key))

    reader = threading.Thread(target=read)
    reader.start()
    with mounted(unreliable, run.key) as runs:
        outcome = attempt(run, runs, machine=Machine(recovery_interval=1))
    ended.set()
    reader.join()
    assert outcome.status == "done"
    assert len(set(seen)) >= 3
    assert seen == sorted(seen)
    last = Mirror(unreliable, tmp_path / "last")
    last.pull(run.key)
    assert Runs(last.local).result(run) is not None
    assert not list(tmp_path.glob("*/.checkpoint-*"))
    assert len(list((tmp_path / "bucket" / run.key).iterdir())) == 2  # the last generation and the one before


def test_storage_that_fails_now_and_then_costs_nothing_and_is_not_even_mentioned(tmp_path, unreliable, monkeypatch):
    calls = itertools.count()

    def refuse(kind, path):
        if next(calls) % 3 == 0:
            raise ConnectionResetError(f"{kind} {path}")

    monkeypatch.setattr(UnreliableFileSystem, "before", refuse)
    run, said = Run(spec()), []
    with mounted(unreliable, run.key, say=said.append) as runs:
        attempt(run, runs, machine=Machine(recovery_interval=1))
    there = Mirror(unreliable, tmp_path / "there")
    there.pull(run.key)
    assert Runs(there.local).result(run) == runs.result(run)
    assert said == []


def test_an_outage_is_said_once_and_the_copies_go_on_after_it(unreliable, monkeypatch):
    refused, copied, trained = threading.Event(), threading.Event(), []

    def refuse(kind, path):
        if kind == "put" and not refused.is_set():
            trained.append(path)
            if len(trained) >= 7:  # more than one copy's tries
                refused.set()
            raise RuntimeError("no such bucket today")
        if path.endswith("manifest.json"):
            copied.set()

    class Patient:
        def update(self, snapshot):
            if snapshot.step == 6:
                assert copied.wait(60)  # while it trains

        def close(self):
            pass

    monkeypatch.setattr(UnreliableFileSystem, "before", refuse)
    run, said = Run(spec()), []
    with mounted(unreliable, run.key, say=said.append) as runs:
        attempt(run, runs, machine=Machine(recovery_interval=1), progress=Patient())
    assert len(said) == 1
    assert "could not be copied and will be tried again" in said[0]
    assert "no such bucket today" in said[0]


@pytest.mark.parametrize("failing", [False, True])
def test_a_last_copy_that_fails_is_an_error_that_says_where_the_run_is(tmp_path, unreliable, monkeypatch, failing):
    def refuse(kind, _path):
        if kind == "put":
            raise PermissionError("read-only bucket")

    monkeypatch.setattr(UnreliableFileSystem, "before", refuse)
    run = Run(spec())
    expected = ValueError if failing else StorageError

    def work():
        with mounted(unreliable, run.key, say=lambda _: None) as runs:
            attempt(run, runs)
            if failing:
                raise ValueError("of the run itself")

    with pytest.raises(expected) as caught:
        work()
    runs = Runs(Mirror(unreliable).local)
    words = "".join(caught.value.__notes__) if failing else str(caught.value)
    assert f"in {runs.root / run.key}, but cannot reach the runs at" in words
    assert "read-only bucket" in words

    monkeypatch.setattr(UnreliableFileSystem, "before", None)
    before = runs.result(run)
    with mounted(unreliable, run.key) as runs:
        assert attempt(run, runs).status == "done"
    assert runs.result(run) == before
    there = Mirror(unreliable, tmp_path / "there")
    there.pull(run.key)
    assert Runs(there.local).result(run) == before


def killed_while_copying(tmp_path, calls):
    """Kill workers that copy a finished run over its checkpoint, each in the middle of another file."""
    run, address = Run(spec()), f"unreliable://{tmp_path}/bucket"
    mirror = Mirror(address, tmp_path / "here")
    checkpointed(run, mirror.local, steps=3)
    mirror.push(run.key)
    assert attempt(run, Runs(mirror.local)).status == "done"
    for call in calls:
        child = CONTEXT.Process(target=push_and_die, args=(mirror.local, tmp_path / "bucket", run.key, call))
        child.start()
        child.join(120)
        reader = Mirror(address, tmp_path / f"reader-{call}")
        reader.pull(run.key)
        if child.exitcode == 4:
            assert Runs(reader.local).result(run) == Runs(mirror.local).result(run)
            return call
        assert step_of(reader.local / run.key) == 3
    return None


def test_a_worker_killed_in_the_middle_of_a_copied_file_leaves_the_generation_before(tmp_path):
    files = ["checkpoint", "config", "metrics", "result", "statistics", "manifest"]
    assert killed_while_copying(tmp_path, [files.index("result") + 1, len(files), len(files) + 1]) == len(files) + 1


@pytest.mark.faults
def test_a_worker_killed_in_the_middle_of_any_copied_file_leaves_the_generation_before(tmp_path):
    assert killed_while_copying(tmp_path, itertools.count(1)) > 6


def test_a_generation_that_was_damaged_is_passed_over(tmp_path):
    run = Run(spec())
    mirror, reader = (Mirror(f"file://{tmp_path}/bucket", tmp_path / name) for name in ("here", "there"))
    checkpointed(run, mirror.local, steps=3)
    mirror.push(run.key)
    attempt(run, Runs(mirror.local))
    mirror.push(run.key)
    newest = max((tmp_path / "bucket" / run.key).iterdir())
    (newest / "checkpoint.safetensors").write_bytes(b"damaged")
    reader.pull(run.key)
    assert step_of(reader.local / run.key) == 3
    assert not (reader.local / run.key / "result.json").exists()


def test_a_worker_that_was_given_up_does_not_hide_a_finished_run(tmp_path):
    run = Run(spec())
    slow, quick, reader = (Mirror(f"file://{tmp_path}/bucket", tmp_path / name) for name in ("slow", "quick", "reader"))
    checkpointed(run, slow.local, steps=3)
    attempt(run, Runs(quick.local))
    quick.push(run.key)
    slow.push(run.key)
    reader.pull(run.key)
    assert Runs(reader.local).result(run) is not None


def test_what_was_found_finished_is_not_copied_again(unreliable, monkeypatch):
    run = Run(spec())
    with mounted(unreliable, run.key) as runs:
        attempt(run, runs)
    copied = []
    monkeypatch.setattr(
        UnreliableFileSystem, "before", lambda kind, path: copied.append(path) if kind == "put" else None
    )
    with mounted(unreliable, run.key) as runs:
        assert attempt(run, runs).status == "done"
    assert copied == []


def test_checkpoints_of_a_worker_that_was_killed_are_cleared_away(tmp_path):
    mirror = Mirror(f"file://{tmp_path}/bucket", tmp_path / "here")
    left = mirror.local / ".checkpoint-key-abc"
    left.mkdir(parents=True)
    Copier(mirror, "key")
    assert not left.exists()
