"""What counts as divergence: numbers that training computes, not masks that were infinite from the start."""

import copy

import pytest
import torch
from torch import nn

from filtercov.errors import DivergedError
from filtercov.lab.training import TrainConfig, fit, load_checkpoint
from filtercov.lab.training.ema import Ema
from filtercov.lab.training.state import TrainingState
from tests.lab.training.toys import ToyBatches, toy_model

CONFIG = TrainConfig(epochs=2, batch_size=8, ema_decay=0.5)
MASK = torch.tensor([0.0, float("-inf"), float("nan"), float("inf")])


class Masked(nn.Module):
    """The toy network with a mask that is added where it is finite, and a running average."""

    def __init__(self, poison_at: int = -1) -> None:
        super().__init__()
        self.inner = toy_model()
        self.register_buffer("mask", MASK.clone())
        self.frozen_mask = nn.Parameter(MASK.clone(), requires_grad=False)
        self.register_buffer("average", torch.zeros(2))
        self.poison_at, self.calls = poison_at, 0

    def forward(self, images):
        self.calls += 1
        if self.calls == self.poison_at:
            self.average[1] = float("inf")
        return self.inner(images)


def train(model, run_dir, **options):
    return fit(model, ToyBatches(), ToyBatches(seed=1), CONFIG, run_dir, **options)


def test_a_mask_that_was_infinite_from_the_start_trains_to_the_end_and_stays_what_it_is(tmp_path):
    plain = fit(toy_model(), ToyBatches(), ToyBatches(seed=1), CONFIG, tmp_path / "plain")
    masked = train(Masked(), tmp_path / "masked", recovery_interval=2)
    assert (masked.test_loss, masked.ema_test_accuracy) == (plain.test_loss, plain.ema_test_accuracy)
    for file in ("checkpoint", "ema"):
        tensors = load_checkpoint(tmp_path / "masked" / f"{file}.safetensors")[0]
        for name in ("mask", "frozen_mask"):
            torch.testing.assert_close(tensors[name], MASK, equal_nan=True)


def test_a_buffer_that_becomes_infinite_is_a_divergence(tmp_path):
    with pytest.raises(DivergedError, match="by step 5 of 10"):
        train(Masked(poison_at=3), tmp_path)


@pytest.mark.parametrize("where", ["parameter", "buffer", "moment", "average of a parameter", "finite part of a mask"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_every_place_that_training_writes_to_is_looked_at(where, value):
    model = Masked()
    state = TrainingState.create(model, CONFIG)
    model(next(iter(ToyBatches().epoch(0)))[0]).sum().backward()
    state.optimizer.step()
    state.ema.update_(model)
    assert state.finite()
    with torch.no_grad():
        match where:
            case "parameter":
                model.inner[7].bias[0] = value
            case "buffer":
                model.inner[2].running_var[0] = value
            case "moment":
                state.optimizer.state[model.inner[7].bias]["exp_avg_sq"][0] = value
            case "average of a parameter":
                state.ema.model.inner[7].bias[0] = value
            case _:
                model.mask[0] = value
    assert not state.finite()


def test_tied_weights_are_averaged_once_a_step():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    ema, before = Ema(model, decay=0.75), copy.deepcopy(model[0].weight)
    with torch.no_grad():
        model[0].weight.add_(1.0)
    ema.update_(model)
    torch.testing.assert_close(ema.model[1].weight, before + 0.25, check_stride=False)
