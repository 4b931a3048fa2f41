"""A run that is interrupted ends as one that is not; one that diverges keeps its last finite checkpoint."""

import pytest
import torch

from filtercov.errors import CheckpointError, DivergedError, TrainingInterrupted
from filtercov.lab.training import TrainConfig, fit, load_checkpoint, read_metrics, read_result
from filtercov.lab.training.state import TrainingState
from tests.lab.training.toys import ToyBatches, interrupt_at, toy_fit, toy_model, untimed

CONFIGS = {
    "adamw": TrainConfig(epochs=2, batch_size=8),
    "ema, clipping, bfloat16": TrainConfig(epochs=2, batch_size=8, ema_decay=0.9, clip_grad=0.5, amp="bfloat16"),
    "sgd, float16": TrainConfig(epochs=2, batch_size=8, opt="sgd", amp="float16", filter_lr=0.1, decay_norms=False),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_stopping_at_every_step_changes_nothing(tmp_path, config):
    options = {"log_interval": 2, "recovery_interval": 3}
    whole = toy_fit(tmp_path / "whole", config, **options)
    for at in range(2 * len(ToyBatches())):
        with pytest.raises(TrainingInterrupted, match=f"after step {at + 1} of 10"):
            toy_fit(tmp_path / "parts", config, before=interrupt_at(at), **options)
    parts = toy_fit(tmp_path / "parts", config, **options)
    assert parts.weights_sha256 == whole.weights_sha256
    assert untimed(tmp_path / "parts") == untimed(tmp_path / "whole")
    assert parts.test_loss == whole.test_loss
    assert parts.ema_test_accuracy == whole.ema_test_accuracy
    if config.ema_decay:
        averages = [load_checkpoint(tmp_path / name / "ema.safetensors")[0] for name in ("parts", "whole")]
        assert all(averages[0][name].equal(averages[1][name]) for name in averages[1])


def test_a_stop_during_evaluation_is_honoured_before_it_ends(tmp_path):
    config = TrainConfig(epochs=1, batch_size=8)
    with pytest.raises(TrainingInterrupted, match="after step 5 of 5"):
        fit(toy_model(), ToyBatches(), ToyBatches(seed=1, before=interrupt_at(2)), config, tmp_path / "parts")
    assert read_metrics(tmp_path / "parts" / "metrics.jsonl") == []
    parts, whole = toy_fit(tmp_path / "parts", config), toy_fit(tmp_path / "whole", config)
    assert parts.weights_sha256 == whole.weights_sha256
    assert untimed(tmp_path / "parts") == untimed(tmp_path / "whole")
    # Nothing was trained after the stop, so there is no speed.
    assert read_metrics(tmp_path / "parts" / "metrics.jsonl")[-1]["images_per_second"] is None


def test_metrics_written_after_the_last_checkpoint_are_not_kept_twice_and_time_adds_up(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def take_a_second(_batch):
        now[0] += 1
        if now[0] == 9:
            raise RuntimeError("the power went")

    with pytest.raises(RuntimeError, match="power"):
        toy_fit(tmp_path, before=take_a_second, log_interval=1)
    steps = [*range(1, 6), 5, *range(6, 11), 10, *range(11, 16), 15]
    assert [record["step"] for record in read_metrics(tmp_path / "metrics.jsonl")] == steps[:9]
    now[0] = 100.0
    result = toy_fit(tmp_path, before=take_a_second, log_interval=1)
    assert [record["step"] for record in read_metrics(tmp_path / "metrics.jsonl")] == steps
    assert result.seconds == 15  # those of three steps were lost


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    with pytest.raises(TrainingInterrupted):
        toy_fit(tmp_path, before=interrupt_at(1))
    with pytest.raises(CheckpointError, match="does not fit this model"):
        toy_fit(tmp_path, model=toy_model(normalisation=False))


@pytest.mark.parametrize("when", ["loss", "weights"])
def test_a_number_that_is_not_finite_stops_the_run_and_keeps_the_last_finite_checkpoint(tmp_path, when):
    model = toy_model()

    def poison(batch):
        if batch == 9 and when == "loss":
            model[0].register_forward_hook(lambda _module, _in, out: out * float("nan"))
        if batch == 9 and when == "weights":  # a finite loss whose update is not
            model[7].weight.register_hook(lambda grad: grad * float("inf"))

    with pytest.raises(DivergedError, match="by step 10 of 15"):
        toy_fit(tmp_path, model=model, before=poison)
    tensors, values = load_checkpoint(tmp_path / "state.safetensors")
    assert values["epoch"] == 1
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert read_result(tmp_path) is None


@torch.no_grad()
def test_every_place_that_training_writes_to_is_looked_at():
    model = toy_model()
    state = TrainingState(model, TrainConfig(ema_decay=0.5), batches=1)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    state.optimizer.step()
    moment = state.optimizer.state[model[7].bias]["exp_avg_sq"]
    for place in (model[7].bias, model[2].running_var, moment, state.ema[7].bias):
        assert state.finite()
        place[0] = float("nan")
        assert not state.finite()
        place[0] = 1.0
