"""What `fit` computes, against loops written out by hand."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from filtercov.errors import ConfigError, DataError
from filtercov.lab.training import TrainConfig, evaluate, fit, load_checkpoint, read_metrics, read_result
from filtercov.lab.training.batches import tally
from filtercov.lab.training.state import read_checksum
from tests.lab.training.toys import CONFIG, ToyBatches, toy_fit, toy_model

ONE_EPOCH = TrainConfig(epochs=1, batch_size=8)


def plain_loop(config, optimizer_of):
    """Train a toy model without dropout the obvious way; return it and each step's loss."""
    model, batches, losses = toy_model(dropout=0.0), ToyBatches(), []
    optimizer = optimizer_of(model)
    steps = config.epochs * len(batches)
    for epoch in range(config.epochs):
        for images, targets in batches.epoch(epoch):
            done = (len(losses) + 1) / steps
            optimizer.param_groups[0]["lr"] = config.lr * np.interp(done, [0, 0.4, 0.8, 1], [0, 1, 0.05, 0])
            loss = nn.CrossEntropyLoss(label_smoothing=config.smoothing)(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            if config.clip_grad:
                norm = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
                for p in model.parameters():
                    p.grad *= min(1.0, config.clip_grad / (float(norm) + 1e-6))
            optimizer.step()
            losses.append(loss.item())
    return model, losses


@pytest.mark.parametrize(
    ("config", "optimizer_of"),
    [
        (CONFIG, lambda m: torch.optim.AdamW(m.parameters(), weight_decay=0.01)),
        (
            TrainConfig(epochs=2, batch_size=8, opt="sgd", lr=0.1, smoothing=0.1, weight_decay=0.0),
            lambda m: torch.optim.SGD(m.parameters(), momentum=0.9),
        ),
        (
            TrainConfig(epochs=2, batch_size=8, clip_grad=0.05, opt_eps=1e-3),
            lambda m: torch.optim.AdamW(m.parameters(), weight_decay=0.01, eps=1e-3),
        ),
    ],
)
def test_weights_losses_and_rates_are_those_of_a_plain_loop(tmp_path, config, optimizer_of):
    expected, losses = plain_loop(config, optimizer_of)
    model = toy_model(dropout=0.0)
    result = toy_fit(tmp_path, config, model=model, log_interval=1)
    assert result.train_loss == pytest.approx(np.mean(losses[-5:]), rel=1e-5)  # over the last epoch
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)
    steps = [record for record in read_metrics(tmp_path / "metrics.jsonl") if record["event"] == "step"]
    assert [record["loss"] for record in steps] == pytest.approx(losses, rel=1e-5)
    assert [record["step"] for record in steps] == list(range(1, len(losses) + 1))
    done = np.arange(1, len(losses) + 1) / len(losses)
    rates = config.lr * np.interp(done, [0, 0.4, 0.8, 1], [0, 1, 0.05, 0])
    assert [record["lr"] for record in steps] == pytest.approx(rates, abs=1e-15)


def test_the_result_is_that_of_the_saved_weights_and_the_metrics_agree(tmp_path):
    result = toy_fit(tmp_path, log_interval=4)
    model = toy_model()
    model.load_state_dict(load_checkpoint(tmp_path / "checkpoint.safetensors")[0])
    images, targets = map(torch.cat, zip(*ToyBatches(seed=1).epoch(0), strict=True))
    logits = model.eval()(images)
    assert result.test_accuracy == pytest.approx(100 * (logits.argmax(1) == targets).float().mean().item())
    assert result.test_loss == pytest.approx(nn.functional.cross_entropy(logits, targets).item(), rel=1e-5)
    records = read_metrics(tmp_path / "metrics.jsonl")
    epochs = [record for record in records if record["event"] == "epoch"]
    assert [(record["epoch"], record["step"]) for record in epochs] == [(1, 5), (2, 10), (3, 15)]
    for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
        assert epochs[-1][name] == getattr(result, name)
    assert [record["step"] for record in records if record["event"] == "step"] == [4, 8, 12]
    assert (result.epochs, result.steps, read_result(tmp_path)) == (3, 15, result)
    assert result.seconds >= epochs[-1]["seconds"] > epochs[0]["seconds"] > 0
    assert epochs[2]["images_per_second"] > 40 / (epochs[2]["seconds"] - epochs[1]["seconds"])  # evaluation included


def test_the_moving_average_follows_its_recursion(tmp_path):
    model, seen = toy_model(dropout=0.0), []
    model[-1].register_forward_hook(lambda module, _in, _out: seen.append(module.weight.detach().clone()))
    toy_fit(tmp_path, TrainConfig(epochs=1, batch_size=8, ema_decay=0.5), model=model)
    weights = [*seen[: len(ToyBatches())], model[-1].weight.detach()]  # before each step, and after the last
    expected = weights[0]
    for weight in weights[1:]:
        expected = 0.5 * expected + 0.5 * weight
    average = load_checkpoint(tmp_path / "ema.safetensors")[0]["7.weight"]
    torch.testing.assert_close(average, expected, rtol=1e-5, atol=1e-7)
    assert read_result(tmp_path).ema_test_accuracy is not None


def test_an_image_with_class_weights_counts_as_one_of_its_heaviest_class():
    logits, targets = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 1, 0])
    soft = 0.4 + 0.2 * nn.functional.one_hot(targets, 2)
    for these in (targets, soft):
        assert tally(torch.tensor(3.5), logits, these).tolist() == [3.5, 1, 3, 0]


def test_bfloat16_autocast_trains_float32_weights_and_leaves_frozen_ones(tmp_path):
    model = toy_model()
    model[1].weight.requires_grad_(False)
    result = toy_fit(tmp_path, TrainConfig(epochs=1, batch_size=8, amp="bfloat16"), model=model)
    assert result.train_loss != toy_fit(tmp_path / "full", ONE_EPOCH).train_loss
    trained, before = model.state_dict(), toy_model().state_dict()
    assert all(trained[name].dtype == before[name].dtype for name in trained)
    assert torch.equal(trained["1.weight"], before["1.weight"])
    assert not torch.equal(trained["1.bias"], before["1.bias"])


def test_dropout_depends_on_the_seed_and_the_step_and_the_callers_random_state_is_left_alone(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = toy_fit(tmp_path / "0", ONE_EPOCH)
    assert torch.equal(torch.rand(2), expected)
    other = toy_fit(tmp_path / "1", TrainConfig(epochs=1, batch_size=8, seed=1))
    assert first.train_loss != other.train_loss
    masks, model = [], toy_model(dropout=0.5)
    model[4].register_forward_hook(lambda module, _in, out: masks.append(out == 0) if module.training else None)
    toy_fit(tmp_path / "2", ONE_EPOCH, model=model)
    assert not torch.equal(masks[0], masks[1])


def test_a_finished_run_is_loaded_and_not_trained_again(tmp_path):
    first = toy_fit(tmp_path)
    stamp = (tmp_path / "result.json").stat().st_mtime_ns
    model = toy_model(seed=5)
    assert toy_fit(tmp_path, model=model) == first
    assert (tmp_path / "result.json").stat().st_mtime_ns == stamp
    stored = load_checkpoint(tmp_path / "checkpoint.safetensors")[0]
    assert all(torch.equal(tensor, stored[name]) for name, tensor in model.state_dict().items())


def test_what_on_finish_returns_is_in_the_result_and_its_failure_leaves_the_run_unfinished(tmp_path):
    def fail(_model, _run_dir):
        raise RuntimeError("no statistics")

    with pytest.raises(RuntimeError, match="no statistics"):
        toy_fit(tmp_path, on_finish=fail)
    assert read_result(tmp_path) is None
    result = toy_fit(tmp_path, on_finish=lambda _model, run_dir: {"where": run_dir.name})
    assert result.extra == {"where": tmp_path.name}
    assert result.weights_sha256 == read_checksum(tmp_path / "checkpoint.safetensors")
    assert json.loads((tmp_path / "result.json").read_text())["extra"] == result.extra
    assert not (tmp_path / "state.safetensors").exists()


def test_an_interval_of_no_steps_and_an_epoch_shorter_than_it_says_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="recovery_interval"):
        toy_fit(tmp_path, recovery_interval=0)
    batches = ToyBatches()
    batches.epoch = lambda epoch, start: iter(list(ToyBatches().epoch(epoch, start))[:-1])
    with pytest.raises(ConfigError, match="length 5 but an epoch gave 4"):
        fit(toy_model(), batches, ToyBatches(), ONE_EPOCH, tmp_path)


@pytest.mark.parametrize("empty", [{"batches": 0}, {"batch_size": 0}])
def test_batches_without_an_image_are_refused(tmp_path, empty):
    for number, which in enumerate(((ToyBatches(**empty), ToyBatches()), (ToyBatches(), ToyBatches(**empty)))):
        with pytest.raises((ConfigError, DataError), match="needed batches"):
            fit(toy_model(), *which, ONE_EPOCH, tmp_path / str(number))
    with pytest.raises(DataError, match="needed batches"):
        _ = evaluate(toy_model(), ToyBatches(**empty)).accuracy


def test_a_compiled_model_trains_alike_and_saves_under_its_own_names(tmp_path, monkeypatch):
    compile_module = nn.Module.compile
    calls = []

    def traced(module):  # tracing is what may break; generating C++ takes minutes and is PyTorch's affair
        calls.append(module)
        compile_module(module, backend="eager")

    monkeypatch.setattr(nn.Module, "compile", traced)
    compiled = toy_fit(tmp_path / "compiled", TrainConfig(epochs=1, batch_size=8, compile=True, ema_decay=0.9))
    plain = toy_fit(tmp_path / "plain", TrainConfig(epochs=1, batch_size=8, ema_decay=0.9))
    assert len(calls) == 1
    assert compiled.train_loss == pytest.approx(plain.train_loss, rel=1e-5)
    saved = load_checkpoint(tmp_path / "compiled" / "checkpoint.safetensors")[0]
    assert saved.keys() == toy_model().state_dict().keys()
