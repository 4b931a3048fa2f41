"""Two gloo processes under torchrun against one process with the same global batch.

The toy model has no BatchNorm: its statistics are of each process's part of the batch, in DDP as PyTorch has it, so
curves of networks with BatchNorm agree only roughly.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from filtercov.errors import ConfigError
from filtercov.lab.training import TrainConfig, World, fit, load_checkpoint, read_metrics, read_result
from filtercov.lab.training.distributed import process_group, usable_device
from filtercov.lab.training.fitting import _check
from tests.lab.training.distributed_child import CONFIG
from tests.lab.training.test_resume import untimed
from tests.lab.training.toys import ToyBatches, toy_model

ROOT = Path(__file__).parents[2]


def start(*arguments):
    """Start the child in two processes under torchrun, all in a process group of their own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [*command, "-m", "tests.lab.training.distributed_child", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])},
    )


def torchrun(*arguments):
    """Run the child to its end; return what it printed."""
    child = start(*arguments)
    output, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors[-3000:]
    return output


def test_ctrl_c_in_a_terminal_writes_a_checkpoint_though_every_process_gets_it_twice(tmp_path):
    child = start(tmp_path, "slow")
    for _ in range(2):  # the second step needs the other process's first
        assert child.stdout.readline() == "training\n"
    os.killpg(child.pid, signal.SIGINT)
    output, _ = child.communicate(timeout=120)
    assert "interrupted" in output
    values = load_checkpoint(tmp_path / "state.safetensors")[1]
    assert 1 <= values["epoch"] * len(ToyBatches()) + values["batch"] < 15


def test_two_processes_follow_the_loss_curve_of_one_and_resume_exactly(tmp_path):
    torchrun(tmp_path / "two")
    model = toy_model(normalisation=False, dropout=0.0)
    fit(model, ToyBatches(), ToyBatches(seed=1), CONFIG, tmp_path / "one", log_interval=1)
    one, two = untimed(tmp_path / "one"), untimed(tmp_path / "two")
    assert len(one) == len(two) == 3 * 5 + 3
    for ours, theirs in zip(two, one, strict=True):
        assert ours.pop("event") == theirs.pop("event")
        assert ours == pytest.approx(theirs, rel=1e-5)
    weights = [load_checkpoint(tmp_path / name / "checkpoint.safetensors")[0] for name in ("one", "two")]
    for name, tensor in weights[0].items():
        assert weights[1][name].allclose(tensor, rtol=1e-4, atol=1e-6)

    assert torchrun(tmp_path / "parts", "1:6") == "interrupted\n"  # asked of rank 1 alone
    assert read_metrics(tmp_path / "parts" / "metrics.jsonl")[-1]["step"] == 7
    torchrun(tmp_path / "parts")
    assert read_result(tmp_path / "parts").weights_sha256 == read_result(tmp_path / "two").weights_sha256
    assert untimed(tmp_path / "parts") == untimed(tmp_path / "two")


def test_a_batch_that_does_not_divide_among_processes_is_refused():
    with pytest.raises(ConfigError, match="9 does not divide among 2"):
        _check(toy_model(), ToyBatches(), ToyBatches(), TrainConfig(batch_size=9), World(0, 2))


@pytest.mark.parametrize("size", ["2", "x", ""])
def test_a_group_that_no_launcher_described_is_refused_with_what_to_do(monkeypatch, size):
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ConfigError, match="start it with torchrun, or unset WORLD_SIZE"), process_group("cpu"):
        pass


@pytest.mark.parametrize("name", ["meta", "nosuch"])
def test_a_device_that_cannot_train_is_refused(name):
    with pytest.raises(ConfigError, match=f"device '{name}' cannot be used here .*; choose cpu, or auto"):
        usable_device(name)
