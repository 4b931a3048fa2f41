"""Sweeps that are killed, shared and interrupted end with the same table, each run done once; and what they show."""

import io
import os
import random
import signal
import time
from collections import Counter
from contextlib import closing

import pytest

from filtercov.errors import TrainingInterrupted
from filtercov.lab.experiments.engines import Engine, Step
from filtercov.lab.experiments.execute import Machine, Outcome
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.experiments.sweep import Display, hand_out, sweep
from tests.lab.experiments.tiny import (
    CONTEXT,
    last_begun,
    run_children,
    spec,
    sweep_tiny,
    sweep_tiny_with_workers,
    table,
    trained,
)


def accuracies(root):
    record = collect(table(), Runs(root))
    assert record.missing == ()
    return [cell.by_seed for cell in record.cells]


def weights(root):
    runs = Runs(root)
    return {run.key: runs.finished(run.key).result.weights_sha256 for run in table().runs}


def work(wanted, root, emit, *, workers=2):
    """Do runs in several processes, telling `emit` of all that happens."""
    with closing(Engine(workers=workers).start(root, Machine(), emit)) as processes:
        hand_out(wanted, processes, emit)


WORKERS = [pytest.param(sweep_tiny_with_workers, 20, seed, marks=pytest.mark.faults) for seed in range(3)]


@pytest.mark.parametrize(("target", "kills", "seed"), [(sweep_tiny, 6, 0), *WORKERS])
def test_sweeps_killed_again_and_again_end_with_the_same_table(undisturbed, tmp_path, target, kills, seed):
    """A sweep that ended before it could be killed is over, and another begins in a new directory."""
    rng, roots = random.Random(seed), [tmp_path / "0"]
    while kills:
        root = roots[-1]
        before = last_begun(root)
        child = CONTEXT.Process(target=target, args=(root,))
        child.start()
        while child.is_alive() and last_begun(root) == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))
        child.kill()
        child.join()
        if child.exitcode == 0:
            roots.append(tmp_path / str(len(roots)))
        else:
            kills -= 1
    run_children(target, roots[-1])
    for root in roots:
        assert weights(root) == weights(undisturbed)
        assert accuracies(root) == accuracies(undisturbed)
        assert target is not sweep_tiny or set(trained(root).values()) == {1}
        assert not (root / "damaged").exists()


def test_4_processes_on_one_directory_do_no_run_twice(undisturbed, tmp_path):
    run_children(sweep_tiny, tmp_path, count=4)
    assert trained(tmp_path) == {run.key: 1 for run in table().runs}
    assert weights(tmp_path) == weights(undisturbed)


def test_workers_share_the_runs_and_one_that_dies_is_replaced(tmp_path):
    told = []

    def emit(event):
        told.append(event)
        if len(told) == 1:
            os.kill(next(process for process, _ in last_begun(tmp_path).values()), signal.SIGKILL)

    work(table().runs, tmp_path, emit)
    assert any(isinstance(event, str) and "a worker died (killed by SIGKILL)" in event for event in told)
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


# --- What is shown ---

RUNS = [Run(spec(seed=seed, epochs=epochs)) for seed, epochs in enumerate((3, 3, 6, 9))]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_time_left_follows_the_pace_of_what_was_seen_and_the_epochs_that_are_left():
    stream, now = Terminal(), [0.0]
    display = Display(RUNS, stream=stream, clock=lambda: now[0])

    def left(event):
        time.sleep(0.15)  # as a line moves ten times a second at most
        display(event)
        return stream.getvalue().rpartition("epochs")[2]

    assert left(Outcome(RUNS[0].key, "done")) == ""  # it was done before: no pace yet
    assert left(Step(RUNS[1].key, 1 / 3)) == ""  # it continues: its first third is no sign of speed
    now[0] = 10.0
    assert left(Outcome(RUNS[1].key, "done")) == ", about 1:15 left"  # two epochs in 10 s, and fifteen to go
    left(Step(RUNS[2].key, 1 / 3))
    assert left(Outcome(RUNS[2].key, "failed", "because")) == ", about 0:45 left"


def test_lines_tell_of_failures_notes_and_the_end_and_a_terminal_has_a_count_that_moves():
    lines, terminal = io.StringIO(), Terminal()
    for stream in (lines, terminal):
        with closing(Display(RUNS, stream=stream)) as display:
            display("something happened")
            display(Outcome(RUNS[0].key, "failed", "because"))
            display(Outcome(RUNS[1].key, "done"))
            time.sleep(0.15)  # as a line moves ten times a second at most
            display(Step(RUNS[2].key, 1 / 3))
    shown = ["something happened", f"failed: {RUNS[0]}: because", "1 of 4 done, 1 failed"]
    assert lines.getvalue().splitlines() == shown
    for line in (*shown, "1 of 4 done, 1 failed, 5.0 of 21 epochs"):
        assert line in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[K1 of 4 done, 1 failed\n")
