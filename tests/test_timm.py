"""`init_` and checkpoints of other people's architectures: timm's, where it can be imported."""

import warnings
from functools import cache

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import filtercov as fc
from tests.depthwise_layers import told
from tests.peers import import_peer
from tests.reference import usable_covariance

QUICK = """
convnext_atto convnextv2_atto efficientnet_b0 mixnet_s mobilenetv3_large_100 mobilenetv4_conv_small fastvit_t8
edgenext_xx_small inception_next_atto davit_tiny starnet_s1 coat_lite_tiny
""".split()
OTHERS = """
convnext_atto_ols convnext_zepto_rms csatv2 efficientnet_es efficientnet_x_b3 efficientnetv2_rw_t tf_mixnet_s
tf_efficientnet_cc_b0_4e mobilenetv1_100 mobilenetv2_050 mobilenetv3_small_050 mobilenet_edgetpu_100
mobilenetv4_hybrid_medium mnasnet_050 semnasnet_050 spnasnet_100 fbnetc_100 hardcorenas_a lcnet_035 tinynet_e
ghostnet_050 ghostnetv3_050 repghostnet_050 mobileone_s0 repvit_m0_9 fastvit_sa12 hgnetv2_b0 convformer_s18
coatnet_nano_rw_224 coatnext_nano_rw_224 maxvit_nano_rw_256 mobilevit_xxs mobilevitv2_050 efficientvit_b0
efficientvit_m0 efficientformerv2_s0 pvt_v2_b0 twins_svt_small xcit_nano_12_p16_224 focalnet_tiny_srf tiny_vit_5m_224
rexnet_100 shvit_s1 swiftformer_xs mambaout_femto rdnet_tiny ese_vovnet19b_dw coat_tiny pit_ti_224 legacy_xception
test_convnext
""".split()

# One for each way in which names and shapes mislead: stems sorted behind stages, modules under several names, attention
# from one channel to one, names that sort against their order, a class of convolution that is not PyTorch's, and none.
SAMPLE = "fastvit_t8 coat_lite_tiny csatv2 inception_next_atto tf_efficientnet_cc_b0_4e test_convnext".split()
ALL_BUT_SAMPLE = [name for name in [*QUICK, *OTHERS] if name not in SAMPLE]


@cache
def moments(kernel_size, sigma):
    """The trace of the usable covariance, and the standard deviation of one filter's squared norm around it."""
    cov = usable_covariance(fc.gaussian_covariance(kernel_size, sigma), "clip")
    return np.trace(cov), np.sqrt(2) * np.linalg.norm(cov)


def build(name):
    timm = import_peer("timm")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # timm's own deprecations
        return timm.create_model(name, num_classes=10).eval()


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_every_depthwise_layer_is_found_reported_and_filled(name):
    model = build(name)
    expected = {
        path: module.kernel_size
        for path, module in model.named_modules()
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and module.groups == module.in_channels > 1
    }
    before = {path: model.get_submodule(path).weight.detach().clone() for path in expected}

    least = min(5, max(max(size) for size in expected.values()))
    report = fc.init_(model, min_kernel_size=least, seed=0)
    assert {row.name: row.kernel_size for row in report} == expected
    for row in report:
        weight = model.get_submodule(row.name).weight.detach()
        assert row.initialised == (max(row.kernel_size) >= least)
        if not row.initialised:
            assert torch.equal(weight, before[row.name])
            continue
        filters = weight.double().reshape(len(weight), -1)
        trace, deviation = moments(row.kernel_size, row.sigma)
        assert torch.isfinite(filters).all()
        assert abs(float(filters.square().sum(1).mean()) - trace) < 6 * deviation / np.sqrt(len(filters))


@pytest.mark.parametrize("name", [*SAMPLE, *(pytest.param(name, marks=pytest.mark.faults) for name in ALL_BUT_SAMPLE)])
def test_a_model_its_state_dict_and_its_files_tell_the_same(name, tmp_path):
    model = build(name)
    expected = told(fc.FilterStatistics.from_model(model))
    torch.save(model.state_dict(), tmp_path / "model.pth")
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_model(model, file)
    assert told(fc.FilterStatistics.from_checkpoint(tmp_path / "model.pth")) == expected
    like = fc.FilterStatistics.from_checkpoint(file, like=model)
    assert told(like) == expected
    assert like.notes == ()
    alone = fc.FilterStatistics.from_checkpoint(file)
    if told(alone) != expected:
        assert any("the file does not say in which order" in note for note in alone.notes)
