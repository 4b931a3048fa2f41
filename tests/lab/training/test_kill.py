"""SIGKILL at random moments and at each point of a checkpoint write: nothing lost, nothing different.

A child trains a toy model with a checkpoint every third step; it is killed, started again, and so on until it ends.
"""

import itertools
import multiprocessing
import random
import shutil
import signal
import time

import pytest

from filtercov.lab.training import load_checkpoint, read_result
from tests.lab.training.children import INTERVAL, train, train_until
from tests.lab.training.toys import untimed

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


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.faults)])
def test_kills_at_random_moments_change_nothing(tmp_path, undisturbed, kills):
    """Run after run, kill at random moments until `kills` have hit a living child."""
    expected, seconds = undisturbed
    rng, hit, run_dir = random.Random(kills), 0, tmp_path / "run"
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


def kill_at(run_dir, expected, point, number, after):
    """Kill a run at a system call and let another child finish it; return whether there was such a call."""
    code = run_child(train_until, run_dir, point, number, after)
    if code == -signal.SIGKILL:
        if (run_dir / "state.safetensors").exists():
            assert untimed(run_dir)[-1]["step"] - step_reached(run_dir) <= INTERVAL
        assert run_child(train, run_dir) == 0
        assert_same(run_dir, expected)
    return code == -signal.SIGKILL


@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("replace config.json", 1),
        ("fsync", 12),  # metrics
        ("replace state.safetensors", 2),
        ("replace ema.safetensors", 2),
        ("replace checkpoint.safetensors", 2),
        ("replace result.json", 1),
        ("unlink state.safetensors", 1),
    ],
)
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_around_the_renaming_of_any_file_changes_nothing(tmp_path, undisturbed, point, number, after):
    assert kill_at(tmp_path / "run", undisturbed[0], point, number, after)


@pytest.mark.faults
def test_a_kill_around_any_system_call_changes_nothing(tmp_path, undisturbed):
    for number in itertools.count(1):
        for after in (False, True):
            if not kill_at(tmp_path / f"{number}-{after}", undisturbed[0], "", number, after):
                return
