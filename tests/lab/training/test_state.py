"""Which parameters decay, against timm; EMA weights; where resumed moments are; and the checkpoint file.

`tests/test_files.py` looks at every byte of such files.
"""

import copy

import pytest
import torch
from torch import nn

from filtercov.errors import CheckpointError
from filtercov.lab.training import TrainConfig, fit, load_checkpoint, save_checkpoint
from filtercov.lab.training.state import TrainingState, parameter_groups, read_checksum
from tests.lab.training.toys import ToyBatches, toy_model
from tests.peers import import_peer


@pytest.mark.parametrize("name", ["convnext_atto", "vit_tiny_patch16_224"])  # one with its own no_weight_decay()
def test_without_norms_exactly_what_timm_decays_is_decayed(name):
    model = import_peer("timm").create_model(name)
    next(model.parameters()).requires_grad_(False)
    listed = model.no_weight_decay() if hasattr(model, "no_weight_decay") else ()
    theirs = import_peer("timm.optim").param_groups_weight_decay(model, 0.05, no_weight_decay_list=listed)
    ours = parameter_groups(model, TrainConfig(weight_decay=0.05, decay_norms=False))
    decays = [{id(p): group["weight_decay"] for group in groups for p in group["params"]} for groups in (ours, theirs)]
    assert decays[0] == decays[1]


class Scaled(nn.Module):
    """A network with a parameter without dimensions, as learned temperatures are."""

    def __init__(self, device):
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), device=device))
        self.dense = nn.Conv2d(2, 3, 3, device=device).to(memory_format=torch.channels_last)

    def forward(self, images):
        return self.dense(images).mean((2, 3)) * self.scale


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
@pytest.mark.parametrize(("opt", "decay_norms"), [("adamw", True), ("sgd", False)])
def test_resuming_puts_every_moment_where_its_parameter_is(opt, decay_norms):
    """On a device that is not the CPU: the meta device, which has places but no values."""
    config = TrainConfig(opt=opt, decay_norms=decay_norms)

    def fresh(device):
        return TrainingState(Scaled(device), config, batches=1)

    saved = fresh("cpu")
    saved.model(torch.ones(2, 2, 4, 4)).square().sum().backward()
    saved.optimizer.step()
    tensors, values = saved.tensors(), saved.values()

    restored = fresh("cpu")
    restored.restore_(tensors, values)
    for name, tensor in restored.tensors().items():
        assert torch.equal(tensor, tensors[name])
        assert tensor.stride() == tensors[name].stride()

    elsewhere = fresh("meta")
    elsewhere.restore_(tensors, values)
    for parameter, state in elsewhere.optimizer.state.items():
        for key, value in state.items():
            # PyTorch keeps AdamW's step count on the CPU, where reading it does not wait for the device.
            assert value.device.type == ("cpu" if key == "step" else "meta")
            assert key == "step" or value.dtype == parameter.dtype
    assert len(elsewhere.optimizer.state) == 3


def test_filters_train_at_their_share_of_the_learning_rate_and_nothing_else_changes(tmp_path):
    """SGD without momentum moves a weight by lr × gradient, so after one step the moves are in proportion."""
    start = toy_model().state_dict()
    moved = {}
    for share in (1.0, 0.01):
        config = TrainConfig(
            epochs=1, batch_size=8, opt="sgd", momentum=0.0, weight_decay=0.0, sched="constant", filter_lr=share
        )
        model = toy_model()
        fit(model, ToyBatches(batches=1), ToyBatches(seed=1), config, tmp_path / f"{share}")
        moved[share] = {name: value - start[name] for name, value in model.state_dict().items()}
    for name in ("0.weight", "1.bias", "7.weight"):
        assert torch.equal(moved[0.01][name], moved[1.0][name])
    torch.testing.assert_close(moved[0.01]["1.weight"], moved[1.0]["1.weight"] * 0.01, rtol=1e-2, atol=1e-7)


def test_ema_averages_tied_weights_once_and_copies_counters():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].weight = model[0].weight
    state, before = TrainingState(model, TrainConfig(ema_decay=0.75), batches=1), copy.deepcopy(model)
    with torch.no_grad():
        model[0].weight.add_(1.0)
        model[2].running_mean.add_(1.0)
        model[2].num_batches_tracked.add_(4)
    state.average_()
    torch.testing.assert_close(state.ema[1].weight, before[0].weight + 0.25, check_stride=False)
    torch.testing.assert_close(state.ema[2].running_mean, before[2].running_mean + 0.25)
    assert state.ema[2].num_batches_tracked == 4
    assert not any(parameter.requires_grad for parameter in state.ema.parameters())


def test_what_is_read_is_what_was_written_in_its_order_or_is_refused(tmp_path):
    shared, path = torch.linspace(-1, 1, 3), tmp_path / "c"
    written = {
        "float": torch.arange(48.0).view(4, 3, 2, 2).to(memory_format=torch.channels_last),
        "half": torch.linspace(0, 1, 5).to(torch.bfloat16),
        "count": torch.tensor(7),
        "empty": torch.zeros(0, 4),
        "mask": torch.tensor([True, False]),
        "tied": shared,
        "tied too": shared,
        "a view": shared[1:],
    }
    values = {"step": 3, "list": [1.5, None]}
    checksum = save_checkpoint(path, written, values)
    read, read_values = load_checkpoint(path)
    assert read_values == values
    assert list(read) == list(written)
    for name, tensor in written.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
    assert read_checksum(path) == checksum == save_checkpoint(tmp_path / "same", written, values)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    for read_file in (load_checkpoint, read_checksum):
        with pytest.raises(CheckpointError):
            read_file(path)
