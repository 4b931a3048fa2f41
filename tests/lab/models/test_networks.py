"""Properties of the built networks that need no peer."""

import pytest
import torch

from filtercov.lab import models
from filtercov.lab.models.convmixer import StochasticDepth
from filtercov.nn import DepthwiseConv2d


@pytest.mark.parametrize(
    ("name", "layers", "layer_scale"),
    [("convmixer_16_3_k5_p2", 3, 0), ("convnext_atto_div8_p1_ls1", 12, 1), ("convnext_tiny_div8_p4_k5", 18, 1e-6)],
)
def test_every_depthwise_layer_is_ours_and_stochastic_depth_grows_linearly(name, layers, layer_scale):
    net, kernel = models.create(name, num_classes=10, drop_path_rate=0.3), models.parse(name).kernel_size
    depthwise = [module for module in net.modules() if isinstance(module, DepthwiseConv2d)]
    assert [layer.weight.shape[1:] for layer in depthwise] == [(1, kernel, kernel)] * layers
    rates = [module.rate for module in net.modules() if isinstance(module, StochasticDepth)]
    torch.testing.assert_close(torch.tensor(rates), torch.linspace(0, 0.3, layers))
    gammas = [value for parameter, value in net.named_parameters() if parameter.endswith("gamma")]
    assert all((gamma == layer_scale).all() for gamma in gammas)
    assert list(net.state_dict()) == list(models.create(name, num_classes=10).state_dict())


def test_stochastic_depth_drops_whole_images_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    out = StochasticDepth(0.25).train()(torch.ones(4000, 2, 3, 3)).flatten(1)
    assert ((out == 0).all(1) | (out == 1 / 0.75).all(1)).all()
    assert out.mean().item() == pytest.approx(1.0, abs=0.03)
    state = torch.get_rng_state()
    StochasticDepth(0.0).train()(torch.ones(2, 2, 3, 3))
    assert torch.equal(torch.get_rng_state(), state)  # a rate of 0 draws nothing, so that what follows draws the same
