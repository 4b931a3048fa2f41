"""Sweeps that are killed, shared and interrupted end with the same table, each run done once."""

import io
import os
import random
import signal
import time
from collections import Counter
from contextlib import closing

import pytest

from filtercov.errors import TrainingInterrupted
from filtercov.lab.experiments.catalogue import Options
from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.execute import Machine
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.experiments.sweep import hand_out, sweep
from tests.lab.experiments.children import CONTEXT, run_children, sweep_tiny, sweep_tiny_with_workers
from tests.lab.experiments.tiny import read_journal, spec, table


def accuracies(root):
    record = collect(table(), Runs(root), Options())
    assert record.missing == ()
    return [cell.accuracies for cell in record.cells]


def weights(root):
    runs = Runs(root)
    return {run.key: runs.result(run).weights_sha256 for run in table().runs}


def times(root, event):
    return Counter(entry["run"] for entry in read_journal(Runs(root)) if entry["event"] == event)


def kill_at_random(folder, target, kills, *, seed):
    """Kill the sweep `kills` times at random moments after it began a run; return its directory and earlier ones.

    A sweep that ended before it could be killed is over, and another begins in a new directory.
    """
    rng = random.Random(seed)
    roots = [folder / "0"]
    while kills:
        root = roots[-1]
        before = len(read_journal(Runs(root)))
        child = CONTEXT.Process(target=target, args=(root,))
        child.start()
        while child.is_alive() and len(read_journal(Runs(root))) == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))
        child.kill()
        child.join()
        if child.exitcode == 0:
            roots.append(folder / str(len(roots)))
        else:
            kills -= 1
    return roots


def work(wanted, root, emit, *, workers=2):
    """Do runs in several processes, telling `emit` of all that happens."""
    with closing(Engine(workers=workers).start(root, Machine(), emit)) as processes:
        hand_out(wanted, processes, emit)


def test_a_sweep_killed_6_times_ends_with_the_same_table(undisturbed, tmp_path):
    roots = kill_at_random(tmp_path, sweep_tiny, 6, seed=0)
    run_children(sweep_tiny, roots[-1])
    for root in roots:
        assert weights(root) == weights(undisturbed)
        assert accuracies(root) == accuracies(undisturbed)
        assert set(times(root, "finished").values()) == {1}
        assert not (root / "damaged").exists()


@pytest.mark.faults
@pytest.mark.parametrize("target", [sweep_tiny, sweep_tiny_with_workers])
@pytest.mark.parametrize("seed", range(3))
def test_sweeps_killed_20_times_end_with_the_same_table(undisturbed, tmp_path, target, seed):
    roots = kill_at_random(tmp_path, target, 20, seed=seed)
    run_children(target, roots[-1])
    for root in roots:
        assert weights(root) == weights(undisturbed)


def test_4_processes_on_one_directory_do_no_run_twice(undisturbed, tmp_path):
    run_children(sweep_tiny, tmp_path, count=4)
    every = {run.key: 1 for run in table().runs}
    assert times(tmp_path, "began") == times(tmp_path, "finished") == every
    assert weights(tmp_path) == weights(undisturbed)


def test_workers_share_the_runs_and_one_that_dies_is_replaced(tmp_path):
    told = []

    def emit(event):
        told.append(event)
        if len(told) == 1:
            os.kill(next(e["process"] for e in read_journal(Runs(tmp_path)) if e["event"] == "began"), signal.SIGKILL)

    work(table().runs, tmp_path, emit)
    assert any(isinstance(event, str) and "a worker died (killed by SIGKILL)" in event for event in told)
    assert set(times(tmp_path, "finished").values()) == {1}
    assert len(accuracies(tmp_path)) == 5
    ended = Counter(event.key for event in told if getattr(event, "status", None))
    assert ended == Counter(run.key for run in table().runs)  # each told once


def test_a_request_to_stop_reaches_every_worker_and_the_sweep_continues_later(tmp_path):
    sent = []

    def emit(_):
        if not sent:  # a second signal would end this process at once, as whoever sends it twice wants
            sent.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    slow = [Run(spec(seed=seed, epochs=200)) for seed in range(2)]
    with pytest.raises(TrainingInterrupted):
        work(slow, tmp_path, emit)
    assert any((tmp_path / run.key / "state.safetensors").exists() for run in slow)
    assert not any((tmp_path / run.key / "result.json").exists() for run in slow)


def test_a_failed_run_fails_what_starts_from_it_and_nothing_else(tmp_path):
    missing = Run(spec(seed=1, init="stats:nowhere.safetensors"))
    dependant = Run(spec(seed=1, init=f"statistics-of:{missing.key}"), missing)
    fine = Run(spec(seed=2))
    stream = io.StringIO()
    outcomes = sweep([dependant, fine], tmp_path, stream=stream, engine=Engine(workers=2))
    assert outcomes[fine.key].status == "done"
    assert outcomes[missing.key].status == "failed"
    assert "nowhere.safetensors" in outcomes[missing.key].detail
    assert missing.key in outcomes[dependant.key].detail
    assert [line.split(",")[0] for line in stream.getvalue().splitlines()][-1] == "1 of 3 done"
    assert times(tmp_path, "failed") == {missing.key: 1}  # by one worker, and told to the other
