"""Two gloo processes under torchrun against one process with the same global batch.

The toy model has no BatchNorm: its statistics are of each process's part of the batch, in DDP as PyTorch has it, so
curves of networks with BatchNorm agree only roughly.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from filtercov.errors import ConfigError
from filtercov.training import TrainConfig, World, fit, load_checkpoint, read_metrics, read_result
from filtercov.training.fitting import _check
from tests.training.distributed_child import CONFIG
from tests.training.test_resume import untimed
from tests.training.toys import ToyBatches, toy_model

ROOT = Path(__file__).parents[2]


def torchrun(*arguments):
    """Run the child in two processes; return what rank 0 printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    child = subprocess.run(
        [*command, "-m", "tests.training.distributed_child", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert child.returncode == 0, child.stderr[-3000:]
    return child.stdout


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
