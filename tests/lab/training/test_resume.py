"""A run that is interrupted ends as one that is not."""

import pytest

from filtercov.errors import DivergedError, TrainingInterrupted
from filtercov.lab.training import TrainConfig, fit, load_checkpoint, read_metrics, read_result
from filtercov.lab.training.signals import StopRequest
from tests.lab.training.toys import ToyBatches, toy_fit, toy_model

CONFIGS = {
    "adamw": TrainConfig(epochs=2, batch_size=8),
    "ema and clipping": TrainConfig(epochs=2, batch_size=8, ema_decay=0.9, clip_grad=0.5),
    "sgd": TrainConfig(epochs=2, batch_size=8, opt="sgd", lr=0.05),
    "bfloat16": TrainConfig(epochs=2, batch_size=8, amp="bfloat16"),
}
TIMING = ("seconds", "images_per_second")


def untimed(run_dir):
    """The metrics without what depends on the clock."""
    return [{k: v for k, v in r.items() if k not in TIMING} for r in read_metrics(run_dir / "metrics.jsonl")]


class InterruptedBatches(ToyBatches):
    """Asks for a stop while batch number `at` (counted over all epochs) is being delivered."""

    def __init__(self, at, **options):
        super().__init__(**options)
        self.at, self.stop = at, None

    def epoch(self, epoch, start_batch=0):
        for offset, batch in enumerate(super().epoch(epoch, start_batch)):
            if epoch * self.batches + start_batch + offset == self.at:
                self.stop.request()
            yield batch


@pytest.fixture
def stop_requests(monkeypatch):
    """The StopRequest of each call of `fit`, newest last."""
    made = []
    enter = StopRequest.__enter__
    monkeypatch.setattr(StopRequest, "__enter__", lambda self: (made.append(self), enter(self))[1])
    return made


class Late:
    """The newest stop request, looked up when used: `fit` makes it after the batches exist."""

    def __init__(self, made):
        self.made = made

    def request(self):
        self.made[-1].request()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_stopping_at_every_step_changes_nothing(tmp_path, config, stop_requests):
    options = {"log_interval": 2, "recovery_interval": 3}
    whole = toy_fit(tmp_path / "whole", config, **options)
    for at in range(2 * len(ToyBatches())):
        train = InterruptedBatches(at)
        train.stop = Late(stop_requests)
        with pytest.raises(TrainingInterrupted, match=f"after step {at + 1} of 10"):
            fit(toy_model(), train, ToyBatches(seed=1), config, tmp_path / "parts", **options)
    parts = toy_fit(tmp_path / "parts", config, **options)
    assert parts.weights_sha256 == whole.weights_sha256
    assert untimed(tmp_path / "parts") == untimed(tmp_path / "whole")
    assert parts.test_loss == whole.test_loss
    assert parts.ema_test_accuracy == whole.ema_test_accuracy
    if config.ema_decay:
        averages = [load_checkpoint(tmp_path / name / "ema.safetensors")[0] for name in ("parts", "whole")]
        assert all(averages[0][name].equal(averages[1][name]) for name in averages[1])


def test_a_stop_during_evaluation_is_honoured_before_it_ends(tmp_path, stop_requests):
    test = InterruptedBatches(2, seed=1)
    test.stop = Late(stop_requests)
    config = TrainConfig(epochs=1, batch_size=8)
    with pytest.raises(TrainingInterrupted, match="after step 5 of 5"):
        fit(toy_model(), ToyBatches(), test, config, tmp_path / "parts")
    assert read_metrics(tmp_path / "parts" / "metrics.jsonl") == []
    parts, whole = toy_fit(tmp_path / "parts", config), toy_fit(tmp_path / "whole", config)
    assert parts.weights_sha256 == whole.weights_sha256
    assert untimed(tmp_path / "parts") == untimed(tmp_path / "whole")
    # What was trained before the stop was not timed after it.
    speeds = {
        name: read_metrics(tmp_path / name / "metrics.jsonl")[-1]["images_per_second"] for name in ("parts", "whole")
    }
    assert speeds["parts"] is None
    assert speeds["whole"] > 0


def test_metrics_written_after_the_last_checkpoint_are_not_kept_twice(tmp_path):
    class Failing(ToyBatches):
        def epoch(self, epoch, start_batch=0):
            for index, batch in enumerate(super().epoch(epoch, start_batch)):
                if epoch == 1 and index == 3:
                    raise RuntimeError("the power went")
                yield batch

    config = TrainConfig(epochs=2, batch_size=8)
    with pytest.raises(RuntimeError, match="power"):
        fit(toy_model(), Failing(), ToyBatches(seed=1), config, tmp_path, log_interval=1)
    assert [r["step"] for r in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5, 5, 6, 7, 8]
    toy_fit(tmp_path, config, log_interval=1)
    assert [r["step"] for r in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10]


@pytest.mark.parametrize("when", ["loss", "weights"])
def test_a_number_that_is_not_finite_stops_the_run_and_keeps_the_last_finite_checkpoint(tmp_path, when):
    class Poisoned(ToyBatches):
        def epoch(self, epoch, start_batch=0):
            for index, (images, targets) in enumerate(super().epoch(epoch, start_batch)):
                if epoch == 1 and index == 4 and when == "loss":
                    images = images * float("nan")
                if epoch == 1 and index == 4 and when == "weights":  # a finite loss whose update is not
                    model[7].weight.register_hook(lambda grad: grad * float("inf"))
                yield images, targets

    model = toy_model()
    with pytest.raises(DivergedError, match="by step 10 of 15"):
        fit(model, Poisoned(), ToyBatches(seed=1), TrainConfig(epochs=3, batch_size=8), tmp_path)
    tensors, values = load_checkpoint(tmp_path / "state.safetensors")
    assert values["epoch"] == 1
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert read_result(tmp_path) is None
