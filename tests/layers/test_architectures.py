"""A model, its state dict and its files tell the same about timm's architectures: layers, order, covariances."""

import warnings

import pytest
import safetensors.torch
import torch

import filtercov as fc
from tests.peers import import_peer
from tests.test_timm import OTHERS, QUICK

# One for each way in which names and shapes mislead: stems sorted behind stages, modules under several names, attention
# from one channel to one, names that sort against their order, a class of convolution that is not PyTorch's, and none.
SAMPLE = """
fastvit_t8 coat_lite_tiny csatv2 inception_next_atto tf_efficientnet_cc_b0_4e test_convnext
""".split()


def build(name):
    timm = import_peer("timm")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # timm's own deprecations
        return timm.create_model(name, num_classes=10)


def told(statistics):
    """All that statistics say but where they are from."""
    return [(layer.name, layer.kernel_size, layer.count, layer.covariance.tobytes()) for layer in statistics.layers]


def check(name, folder):
    model = build(name)
    expected = fc.FilterStatistics.from_model(model)
    torch.save(model.state_dict(), folder / "model.pth")
    safetensors.torch.save_model(model, folder / "model.safetensors")

    assert told(fc.FilterStatistics.from_checkpoint(folder / "model.pth")) == told(expected)

    like = fc.FilterStatistics.from_checkpoint(folder / "model.safetensors", like=model)
    assert told(like) == told(expected)
    assert like.notes == ()

    alone = fc.FilterStatistics.from_checkpoint(folder / "model.safetensors")
    if told(alone) != told(expected):
        assert any("the file does not say in which order" in note for note in alone.notes)


@pytest.mark.parametrize("name", SAMPLE)
def test_model_and_files_agree(name, tmp_path):
    check(name, tmp_path)


@pytest.mark.faults
@pytest.mark.parametrize("name", [name for name in [*QUICK, *OTHERS] if name not in SAMPLE])
def test_model_and_files_agree_on_every_architecture(name, tmp_path):
    check(name, tmp_path)
