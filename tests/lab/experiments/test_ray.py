"""The Ray engine on a real local Ray with two workers: one is killed, and no run is lost or done twice."""

import io
import os
import shutil
import signal
import threading
import time
from collections import Counter

import pytest

from filtercov.lab.experiments.graph import Run, transferred
from filtercov.lab.experiments.mirror import Mirror
from filtercov.lab.experiments.ray_engine import Cluster, _connected
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.sweep import Engine, local_copy, sweep
from tests.lab.experiments.tiny import read_journal, spec, table

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray")
ENGINE = Engine("ray", cluster=Cluster(local_cpus=2))


@pytest.fixture(scope="module", autouse=True)
def one_ray():
    """A Ray of two workers that both tests use."""
    ray = pytest.importorskip("ray")
    with _connected(ENGINE.cluster):
        assert ray.cluster_resources()["CPU"] == 2
        yield
    assert not ray.is_initialized()


def kill_a_worker(runs: Runs, busy_with: Run, victims: list[int]) -> None:
    """Wait until a worker has begun that run and kill it."""
    while not victims:
        for entry in read_journal(runs):
            if entry["event"] == "began" and entry["run"] == busy_with.key:
                victims.append(entry["process"])
                os.kill(entry["process"], signal.SIGKILL)
        time.sleep(0.005)


def test_a_killed_ray_worker_costs_no_run_and_repeats_none(tmp_path, undisturbed):
    runs = Runs(tmp_path / "runs")
    long = Run(spec(seed=4, epochs=25))  # long enough to be found and killed
    dependant = Run(spec(seed=4, init=transferred("statistics-of", long)), long)
    victims: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(runs, long, victims), daemon=True)
    killer.start()
    wanted = [long, dependant, *table().runs]
    outcomes = sweep(wanted, runs.root, engine=ENGINE, stream=io.StringIO())
    killer.join(10)

    assert victims
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    assert set(outcomes) == {run.key for run in wanted}
    journal = read_journal(runs)
    assert Counter(e["run"] for e in journal if e["event"] == "finished") == Counter(run.key for run in wanted)
    begun = Counter(entry["run"] for entry in journal if entry["event"] == "began")
    assert sum(begun.values()) == len(wanted) + 1  # the killed one, again
    assert len({entry["process"] for entry in journal}) >= 2
    theirs = Runs(undisturbed)
    for run in table().runs:
        assert runs.result(run).weights_sha256 == theirs.result(run).weights_sha256


def test_runs_at_an_fsspec_address_are_done_on_the_workers_and_copied_back(tmp_path):
    reference = Run(spec(seed=100))
    wanted = [reference, Run(spec(init=transferred("filters-of", reference)), reference)]
    address = f"file://{tmp_path}/bucket"
    outcomes = sweep(wanted, address, engine=ENGINE, stream=io.StringIO())
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    mirror = Mirror(address, tmp_path / "there")
    for run in wanted:
        mirror.pull(run.key)
    there = Runs(mirror.local)
    assert all(there.result(run) for run in wanted)
    here = Runs(local_copy(wanted, address))  # a worker's copy, which is on this machine too
    assert [here.result(run) for run in wanted] == [there.result(run) for run in wanted]
    shutil.rmtree(here.root)
