"""Names of our networks, and the networks that they build."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from filtercov.errors import ModelError
from filtercov.lab import models
from filtercov.lab.models import ConvMixerSpec, ConvNeXtSpec
from filtercov.lab.models.convmixer import StochasticDepth
from filtercov.lab.models.convnext import LAYER_SCALE, SIZES
from filtercov.lab.models.lookup import is_ours
from filtercov.nn import DepthwiseConv2d
from tests.peers import import_peer

WHOLE = st.integers(1, 300)


@given(
    st.builds(ConvMixerSpec, WHOLE, WHOLE, WHOLE, WHOLE)
    | st.builds(
        ConvNeXtSpec,
        *map(st.sampled_from, ([*SIZES], [1, 2, 4], [1, 7, 9, 300], [1, 2, 8], [1, 2], [LAYER_SCALE, 1.0])),
    )
)
def test_a_name_survives_parsing(spec: ConvMixerSpec | ConvNeXtSpec) -> None:
    assert models.parse(spec.name) == spec
    assert is_ours(spec.name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "convmixer_256_8",
        "convmixer_0_8_k9_p2",
        "convmixer_256_8_k9_p2\n",
        "convmixer_٢٥٦_8_k9_p2",
        "convnext_atto_p3",
        "convnext_giant_p1",
        "convnext_atto_div7_p1",  # a width that cannot be divided
    ],
)
def test_a_bad_name_is_refused(name: str) -> None:
    for refuses in (models.parse, is_ours):
        with pytest.raises(ModelError):
            refuses(name)


@pytest.mark.parametrize("name", ["convnext_att", "timm:convnext_att"])
def test_a_near_miss_of_a_model_of_timms_names_it(name: str) -> None:
    import_peer("timm")
    with pytest.raises(ModelError, match=r"nearest: .*convnext_atto"):
        models.create(name)


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
