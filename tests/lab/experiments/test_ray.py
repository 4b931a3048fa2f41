"""The Ray engine on a real local Ray with two workers: one is killed, and no run is lost or done twice."""

import io
import os
import signal
import threading
import time

import pytest

from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.experiments.sweep import sweep
from filtercov.lab.training import read_metrics
from tests.lab.experiments.tiny import last_begun, spec, table

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray")


def test_a_killed_ray_worker_costs_no_run_and_repeats_none(tmp_path, undisturbed):
    ray = pytest.importorskip("ray")
    runs = Runs(tmp_path / "runs")
    long = Run(spec(seed=4, epochs=25))  # long enough to be found and killed
    dependant = Run(spec(seed=4, init=f"statistics-of:{long.key}"), long)
    victims: list[int] = []

    def kill_its_worker():
        while long.key not in last_begun(runs.root):
            time.sleep(0.005)
        victims.append(last_begun(runs.root)[long.key][0])
        os.kill(victims[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_its_worker, daemon=True)
    killer.start()
    wanted = [long, dependant, *table().runs]
    outcomes = sweep(wanted, runs.root, engine=Engine("ray"), stream=io.StringIO())
    killer.join(10)

    assert not ray.is_initialized()  # it was started for the sweep alone
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    workers = {key: process for key, (process, _) in last_begun(runs.root).items()}
    assert workers.keys() == {run.key for run in wanted}
    assert [workers[long.key]] != victims  # another one continued it
    assert len({*workers.values(), *victims}) >= 2
    epochs = [line["epoch"] for line in read_metrics(runs.directory(long).metrics) if line["event"] == "epoch"]
    assert epochs == list(range(1, 26))
    theirs = Runs(undisturbed)
    for run in table().runs:
        assert runs.finished(run.key).result.weights_sha256 == theirs.finished(run.key).result.weights_sha256
