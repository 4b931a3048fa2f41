"""SIGKILL at random moments and at each point of a checkpoint write: nothing lost, nothing different.

A child trains a toy model with a checkpoint every third step; it is killed, started again, and so on until it ends.
"""

import multiprocessing
import random
import shutil
import signal
import time

import pytest

from filtercov.lab.training import load_checkpoint, read_result
from tests.lab.training.children import INTERVAL, train, train_until
from tests.lab.training.test_resume import untimed

CONTEXT = multiprocessing.get_context("forkserver")


def run_child(target, *args, kill_after=None):
    """Run a child to its end, or kill it `kill_after` seconds after it began to train; return its exit code."""
    started = CONTEXT.Event()
    extra = (started,) if target is train else ()
    child = CONTEXT.Process(target=target, args=(*args, *extra))
    child.start()
    if kill_after is not None:
        while child.is_alive() and not started.wait(0.005):  # a run with nothing left to train never says it started
            pass
        time.sleep(kill_after)
        child.kill()
    child.join(60)
    return child.exitcode


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run nobody interrupted, and how long its training took."""
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run_child(train, run_dir) == 0
    return run_dir, read_result(run_dir).seconds


def assert_same(run_dir, expected):
    """Both runs are done and equal in weights, averages, metrics and watched filters, with nothing left over."""
    ours, theirs = read_result(run_dir), read_result(expected)
    assert ours.weights_sha256 == theirs.weights_sha256
    assert (ours.train_loss, ours.test_loss) == (theirs.train_loss, theirs.test_loss)
    assert untimed(run_dir) == untimed(expected)
    watched = [
        {file.name: file.read_bytes() for file in (run / "filters.watched").iterdir()} for run in (run_dir, expected)
    ]
    assert watched[0] == watched[1]
    averages = [load_checkpoint(folder / "ema.safetensors")[0] for folder in (run_dir, expected)]
    assert all(averages[0][name].equal(tensor) for name, tensor in averages[1].items())
    assert {path.name for path in run_dir.iterdir()} == {path.name for path in expected.iterdir()}


def step_reached(run_dir):
    """The step of the last checkpoint, 0 without one; reading it checks every byte."""
    if not (run_dir / "state.safetensors").exists():
        return 0
    values = load_checkpoint(run_dir / "state.safetensors")[1]
    return values["epoch"] * 8 + values["batch"]


def kill_at_random(folder, undisturbed, kills, seed):
    """Run after run, kill at random moments until `kills` have hit a living child."""
    expected, seconds = undisturbed
    rng, hit, run_dir = random.Random(seed), 0, folder / "run"
    while hit < kills:
        before = step_reached(run_dir)
        code = run_child(train, run_dir, kill_after=rng.uniform(0.0, 0.5 * seconds))
        hit += code == -signal.SIGKILL
        if read_result(run_dir):
            assert run_child(train, run_dir) == 0  # a kill after the result may leave the state to be removed
            assert_same(run_dir, expected)
            shutil.rmtree(run_dir)
        else:
            assert code == -signal.SIGKILL
            assert step_reached(run_dir) >= before
    assert run_child(train, run_dir) == 0
    assert_same(run_dir, expected)


def test_ten_kills_at_random_moments_change_nothing(tmp_path, undisturbed):
    kill_at_random(tmp_path, undisturbed, kills=10, seed=0)


@pytest.mark.faults
def test_fifty_kills_at_random_moments_change_nothing(tmp_path, undisturbed):
    kill_at_random(tmp_path, undisturbed, kills=50, seed=1)


def kill_at_calls(folder, undisturbed, calls):
    """For each numbered system call, kill there (before it, then after it) and let another child finish the run."""
    expected, _ = undisturbed
    for call in calls:
        for after in (False, True):
            run_dir = folder / f"{call}-{after}"
            code = run_child(train_until, run_dir, call, after)
            if code == 4:
                return
            assert code == -signal.SIGKILL
            assert run_child(train, run_dir) == 0
            assert_same(run_dir, expected)


def test_a_kill_at_each_point_of_one_checkpoint_changes_nothing(tmp_path, undisturbed):
    kill_at_calls(tmp_path, undisturbed, range(12, 30, 2))


@pytest.mark.faults
def test_a_kill_at_each_point_of_every_write_changes_nothing(tmp_path, undisturbed):
    kill_at_calls(tmp_path, undisturbed, range(1, 1000))


def test_a_kill_loses_at_most_one_checkpoint_interval(tmp_path):
    run_dir = tmp_path / "run"
    code = run_child(train_until, run_dir, 40, False)
    assert code == -signal.SIGKILL
    logged = max(record["step"] for record in untimed(run_dir))
    assert logged - step_reached(run_dir) <= INTERVAL
