"""Running a model to look at it leaves no trace, in modules that change when they run or when their mode does."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.errors import ModelError
from filtercov.layers.running import evaluating


class Merging(nn.Linear):
    """A layer that changes its weight when its mode is changed by `train`, as some LoRA layers do."""

    def train(self, mode=True):
        self.weight.data += 1
        return super().train(mode)


def test_a_layer_that_merges_weights_when_its_mode_changes_keeps_them():
    net = Merging(4, 4)
    weight = net.weight.detach().clone()
    with evaluating(net):
        assert not net.training
    assert net.training
    assert torch.equal(net.weight, weight)


class Restless(nn.Module):
    """Counts its calls, replaces and adds tables' entries and draws random numbers, whatever its mode; may fail."""

    def __init__(self, fails):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 5, groups=4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("last", torch.zeros(4))
        self.layer = self.scale = None
        self.fails, self.length = fails, 0

    def forward(self, x):
        self.calls += 1
        self.last = x.mean((0, 2)) + torch.randn(4)
        self.register_buffer("cached", x)
        self.layer, self.scale = nn.Identity(), nn.Parameter(torch.ones(1))
        self.length = self.more = x.shape[-1]
        if self.fails:
            raise RuntimeError("on purpose")
        return self.norm(self.conv(x))


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_changes_when_it_runs_is_as_it_was_after_tracing(fails):
    net = Restless(fails)
    net.norm.eval()
    before, buffers = {name: tensor.clone() for name, tensor in net.state_dict().items()}, dict(net._buffers)
    attributes = set(vars(net))
    random = torch.get_rng_state()
    with pytest.raises(ModelError, match="on purpose") if fails else nullcontext():
        fc.depthwise_layers(net, (torch.ones(2, 4, 9),))
    assert list(net._buffers) == ["calls", "last"]
    assert list(net.state_dict()) == list(before)
    assert (set(vars(net)), net.layer, net.scale, net.length) == (attributes, None, None, 0)
    assert all(net._buffers[name] is buffer for name, buffer in buffers.items())
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert (net.training, net.conv.training, net.norm.training) == (True, True, False)
    assert not any(module._forward_hooks for module in net.modules())
