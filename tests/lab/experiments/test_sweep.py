"""Sweeps that are killed, shared and interrupted end with the same table, each run done once."""

import errno
import io
import os
import random
import signal
import time
from collections import Counter

import pytest

from filtercov.errors import ConfigError, TrainingInterrupted
from filtercov.lab.experiments.builder import Options
from filtercov.lab.experiments.graph import Cell, Experiment, Run, transferred
from filtercov.lab.experiments.local import run_in_processes
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.sweep import Engine, sweep
from tests.lab.experiments.children import CONTEXT, run_children, sweep_tiny, sweep_tiny_with_workers
from tests.lab.experiments.tiny import read_journal, reference, spec, table


def accuracies(root):
    record = collect(table(), Runs(root), Options())
    assert record.missing == ()
    return [cell.accuracies for cell in record.cells]


def weights(root):
    runs = Runs(root)
    return {run.key: runs.result(run).weights_sha256 for run in table().runs}


def times_finished(root):
    return Counter(entry["run"] for entry in read_journal(Runs(root)) if entry["event"] == "finished")


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


def test_a_sweep_killed_20_times_ends_with_the_same_table(undisturbed, tmp_path):
    roots = kill_at_random(tmp_path, sweep_tiny, 20, seed=0)
    run_children(sweep_tiny, roots[-1])
    for root in roots:
        assert weights(root) == weights(undisturbed)
        assert accuracies(root) == accuracies(undisturbed)
        assert set(times_finished(root).values()) == {1}
        assert not (root / "damaged").exists()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(5))
def test_sweeps_with_workers_killed_20_times_end_with_the_same_table(undisturbed, tmp_path, seed):
    roots = kill_at_random(tmp_path, sweep_tiny_with_workers, 20, seed=seed)
    run_children(sweep_tiny_with_workers, roots[-1])
    for root in roots:
        assert weights(root) == weights(undisturbed)


def test_8_processes_on_one_directory_do_no_run_twice(undisturbed, tmp_path):
    run_children(sweep_tiny, tmp_path, count=8)
    assert set(times_finished(tmp_path)) == {run.key for run in table().runs}
    assert set(times_finished(tmp_path).values()) == {1}
    begun = Counter(entry["run"] for entry in read_journal(Runs(tmp_path)) if entry["event"] == "began")
    assert set(begun.values()) == {1}
    assert weights(tmp_path) == weights(undisturbed)


def test_workers_share_the_runs_and_one_that_dies_is_replaced(tmp_path):
    told = []

    def emit(event):
        told.append(event)
        pids = {entry["process"] for entry in read_journal(Runs(tmp_path)) if entry["event"] == "began"}
        if len(told) == 1:
            os.kill(pids.pop(), signal.SIGKILL)

    run_in_processes(table().runs, Runs(tmp_path), workers=2, emit=emit)
    assert any("a worker died (killed by SIGKILL)" in getattr(event, "text", "") for event in told)
    assert set(times_finished(tmp_path).values()) == {1}
    assert len(accuracies(tmp_path)) == 5
    ended = Counter(event.key for event in told if getattr(event, "status", None))
    assert ended == Counter(run.key for run in table().runs)  # each told once


@pytest.mark.parametrize("workers", [1, 2])
def test_words_that_cannot_be_printed_stop_no_run(tmp_path, workers):
    class Full(io.StringIO):
        def write(self, _text):
            raise OSError(errno.ENOSPC, "No space left on device")

    outcomes = sweep([reference(), Run(spec(seed=1))], tmp_path, engine=Engine(workers=workers), stream=Full())
    assert [outcome.status for outcome in outcomes.values()] == ["done", "done"]


@pytest.mark.parametrize("error", [EOFError, BrokenPipeError])
def test_an_error_of_whoever_is_told_is_no_sign_of_a_workers_death(tmp_path, error):
    def end(_):
        raise error("whoever is told has an end too")

    with pytest.raises(error, match="an end too"):
        run_in_processes([Run(spec(epochs=20, seed=1))], Runs(tmp_path), workers=1, emit=end)


def test_a_request_to_stop_reaches_every_worker_and_the_sweep_continues_later(tmp_path):
    sent = []

    def emit(_):
        if not sent:  # a second signal would end this process at once, as whoever sends it twice wants
            sent.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    slow = [Run(spec(seed=seed, epochs=200)) for seed in range(2)]
    with pytest.raises(TrainingInterrupted, match="run the same command again"):
        run_in_processes(slow, Runs(tmp_path), workers=2, emit=emit)
    assert any((tmp_path / run.key / "state.safetensors").exists() for run in slow)
    assert not any(Runs(tmp_path).finished(run) for run in slow)


def test_a_failed_run_fails_what_starts_from_it_and_nothing_else(tmp_path):
    diverging = Run(spec(lr=1000.0, epochs=30, model="convmixer_64_2_k3_p14"))
    missing = Run(spec(seed=1, init="stats:nowhere.safetensors"))
    dependant = Run(spec(seed=1, init=transferred("statistics-of", missing)), missing)
    fine = Run(spec(seed=2))
    outcomes = sweep([diverging, dependant, fine], tmp_path, stream=io.StringIO())
    assert outcomes[fine.key].status == "done"
    assert outcomes[missing.key].status == "failed"
    assert "nowhere.safetensors" in outcomes[missing.key].detail
    assert outcomes[dependant.key].detail == f"the run it starts from, {missing.key}, failed"


def test_plain_lines_say_what_is_done_and_what_is_left(tmp_path):
    stream = io.StringIO()
    first, second = reference(), Run(spec(seed=3))
    sweep([first, second], tmp_path, stream=stream)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("1 of 2 done, about 0:0")
    assert lines[1].startswith("2 of 2 done")
    assert first.key in lines[0]


def test_engines_that_do_not_exist_or_fit_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="choose local or ray"):
        sweep([reference()], tmp_path, engine=Engine("slurm"), stream=io.StringIO())
    with pytest.raises(ConfigError, match="--engine ray"):
        sweep([reference()], "memory://runs", stream=io.StringIO())
    with pytest.raises(ConfigError, match="at least one worker"):
        run_in_processes([reference()], Runs(tmp_path), workers=0, emit=print)


def test_missing_runs_are_named_and_their_cells_left_empty(undisturbed):
    known = table()
    extra = Cell("k3", "frozen/dog", 20, (known.cells[0].runs[0], Run(spec(seed=5, init="dog"))))
    record = collect(Experiment("tiny", "", "", "tiny", "", (*known.cells, extra)), Runs(undisturbed), Options())
    assert record.cells[-1].accuracies == ()
    assert record.missing == (str(extra.runs[1]),)
    assert all(cell.accuracies for cell in record.cells[:-1])


def test_a_reference_is_missing_where_a_run_that_is_missing_starts_from_it(tmp_path):
    started = [Run(spec(seed=seed, init=transferred("statistics-of", reference())), reference()) for seed in (1, 2)]
    asked = Experiment("tiny", "", "", "tiny", "", (Cell("k3", "frozen/statistics", 20, tuple(started)),))
    assert collect(asked, Runs(tmp_path), Options()).missing == (str(reference()), *map(str, started))
    assert len(asked.runs) == 3
