"""New filters reach all layers or, whatever goes wrong while they are written, none."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import filtercov as fc
from filtercov.errors import ModelError
from tests.depthwise_layers import depthwise, same, weights


class Failing(nn.Module):
    """A parametrisation whose inverse fails once it is armed."""

    def __init__(self, error):
        super().__init__()
        self.error, self.armed = error, False

    def forward(self, weight):
        return weight * 2

    def right_inverse(self, weight):
        if self.armed:
            raise self.error
        return weight / 2


@pytest.mark.parametrize(
    ("error", "raised"), [(RuntimeError("no"), ModelError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_failure_while_writing_restores_the_layers_already_written(error, raised):
    net = nn.Sequential(depthwise(), parametrizations.weight_norm(depthwise()), depthwise())
    failing = Failing(error)
    parametrize.register_parametrization(net[2], "weight", failing)
    failing.armed = True
    before = weights(net)
    with pytest.raises(raised):
        fc.init_(net)
    assert same(before, net)


def test_a_parametrisation_that_replaces_its_buffers_gets_them_back():
    net = nn.Sequential(parametrizations.orthogonal(depthwise()), parametrizations.spectral_norm(depthwise()))
    state = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ModelError):
        fc.init_(net)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


def test_type_layout_gradients_and_identity_of_weights_are_kept():
    net = nn.Sequential(depthwise(), depthwise()).to(memory_format=torch.channels_last)
    parameters, strides = list(net.parameters()), [p.stride() for p in net.parameters()]
    fc.init_(fc.freeze_(net), seed=0)
    assert all(a is b for a, b in zip(parameters, net.parameters(), strict=True))
    assert [p.stride() for p in net.parameters()] == strides
    assert not net[0].weight.requires_grad
