"""Several gloo processes: they train as one would, stop together, and fail together with one error."""

import multiprocessing

import pytest
import torch.distributed

from filtercov.errors import ConfigError
from filtercov.lab.training import TrainConfig, World, fit, fitting, load_checkpoint, read_metrics, read_result
from filtercov.lab.training.distributed import usable_device
from tests.lab.training.children import TOGETHER, train_together
from tests.lab.training.toys import ToyBatches, toy_model, untimed


def together(run_dir, where="nowhere", who=(), *, size=2):
    """Run `size` processes with their store in this one, as torchrun has it; return their codes and last words."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    arguments = [(rank, size, store.port, run_dir, where, who) for rank in range(size)]
    children = [context.Process(target=train_together, args=arguments[rank]) for rank in range(size)]
    for child in children:
        child.start()
    try:
        for child in children:
            child.join(120)
            assert not child.is_alive(), "hangs"
    finally:
        for child in children:
            child.kill()
    words = [(run_dir.parent / f"{run_dir.name}-{rank}.txt").read_text().strip() for rank in range(size)]
    return [child.exitcode for child in children], words


def test_two_processes_follow_the_loss_curve_of_one_and_resume_exactly(tmp_path):
    """Without BatchNorm, whose statistics are of each process's part of the batch."""
    assert together(tmp_path / "two") == ([0, 0], ["finished"] * 2)
    model = toy_model(normalisation=False, dropout=0.0)
    batches, test = ToyBatches(batch_size=12), ToyBatches(seed=1, batch_size=12)
    fit(model, batches, test, TOGETHER, tmp_path / "one", log_interval=1)
    one, two = untimed(tmp_path / "one"), untimed(tmp_path / "two")
    assert len(one) == len(two) == 3 * 5 + 3
    for ours, theirs in zip(two, one, strict=True):
        assert ours.pop("event") == theirs.pop("event")
        assert ours == pytest.approx(theirs, rel=1e-5)
    weights = [load_checkpoint(tmp_path / name / "checkpoint.safetensors")[0] for name in ("one", "two")]
    for name, tensor in weights[0].items():
        assert weights[1][name].allclose(tensor, rtol=1e-4, atol=1e-6)

    codes, words = together(tmp_path / "parts", "stop", (1,))  # asked of rank 1 alone
    assert codes == [1, 1]
    assert all("stopped on request after step 7 of 15" in word for word in words)
    assert read_metrics(tmp_path / "parts" / "metrics.jsonl")[-1]["step"] == 7
    together(tmp_path / "parts")
    assert read_result(tmp_path / "parts").weights_sha256 == read_result(tmp_path / "two").weights_sha256
    assert untimed(tmp_path / "parts") == untimed(tmp_path / "two")


@pytest.mark.parametrize(
    ("where", "who", "size", "error"),
    [
        ("batch", (2,), 3, "DataError: rank 2 cannot read its images"),
        ("batch", (0, 1), 2, "DataError: rank"),
        ("open", (0,), 2, "StorageError: cannot write"),
        ("checkpoint", (0,), 2, "StorageError: cannot write"),
        ("identity", (1,), 2, "RunError: "),
        ("finish", (0,), 2, "ZeroDivisionError: a defect of rank 0"),  # an error that is not filtercov's own
    ],
)
def test_an_error_in_one_process_ends_all_and_the_others_repeat_it(tmp_path, where, who, size, error):
    codes, words = together(tmp_path / "run", where, who, size=size)
    assert codes == [1] * size
    (first,) = [word for word in words if word.startswith(error)]
    assert sorted(words) == sorted([first, *[f"FiltercovError: another process failed ({first})"] * (size - 1)])
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_batch_that_does_not_divide_and_a_device_that_cannot_train_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "current_world", lambda: World(0, 2))
    with pytest.raises(ConfigError, match="9 does not divide among 2"):
        fit(toy_model(), ToyBatches(), ToyBatches(), TrainConfig(batch_size=9), tmp_path)
    for name in ("meta", "nosuch"):
        with pytest.raises(ConfigError, match=name):
            usable_device(name)
