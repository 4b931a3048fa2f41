"""The Ray engine on a real local Ray with two workers: one is killed, and no run is lost or done twice."""

import io
import os
import signal
import threading
import time
from collections import Counter

import pytest

from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.experiments.sweep import sweep
from tests.lab.experiments.tiny import read_journal, spec, table

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray")


def kill_a_worker(runs: Runs, busy_with: Run, victims: list[int]) -> None:
    """Wait until a worker has begun that run and kill it."""
    while not victims:
        for entry in read_journal(runs):
            if entry["event"] == "began" and entry["run"] == busy_with.key:
                victims.append(entry["process"])
                os.kill(entry["process"], signal.SIGKILL)
        time.sleep(0.005)


def test_a_killed_ray_worker_costs_no_run_and_repeats_none(tmp_path, undisturbed):
    ray = pytest.importorskip("ray")
    runs = Runs(tmp_path / "runs")
    long = Run(spec(seed=4, epochs=25))  # long enough to be found and killed
    dependant = Run(spec(seed=4, init=f"statistics-of:{long.key}"), long)
    victims: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(runs, long, victims), daemon=True)
    killer.start()
    wanted = [long, dependant, *table().runs]
    outcomes = sweep(wanted, runs.root, engine=Engine("ray"), stream=io.StringIO())
    killer.join(10)

    assert victims
    assert not ray.is_initialized()  # it was started for the sweep alone
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    journal = read_journal(runs)
    assert Counter(e["run"] for e in journal if e["event"] == "finished") == Counter(run.key for run in wanted)
    begun = Counter(entry["run"] for entry in journal if entry["event"] == "began")
    assert begun[long.key] == 2  # the killed one, again
    assert sum(begun.values()) == len(wanted) + 1
    assert len({entry["process"] for entry in journal}) >= 2
    theirs = Runs(undisturbed)
    for run in table().runs:
        assert runs.result(run).weights_sha256 == theirs.result(run).weights_sha256
