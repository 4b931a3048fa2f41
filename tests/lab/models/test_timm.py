"""Our ConvMixer and ConvNeXt are timm's, weight for weight and value for value."""

import sys

import pytest
import torch
from torch import nn

from filtercov.errors import ModelError
from filtercov.lab import models
from tests.peers import import_peer

PAIRS = [
    ("convmixer_24_3_k9_p2", "convmixer_1024_20_ks9_p14", {"dim": 24, "depth": 3, "kernel_size": 9, "patch_size": 2}),
    ("convmixer_16_2_k4_p7", "convmixer_1024_20_ks9_p14", {"dim": 16, "depth": 2, "kernel_size": 4, "patch_size": 7}),
    ("convnext_atto_p2_s2", "convnext_atto", {"patch_size": 2}),
    ("convnext_atto_p4_k9", "convnext_atto", {"patch_size": 4, "kernel_sizes": 9}),
    ("convnext_atto_div8_p1", "convnext_atto", {"patch_size": 1, "dims": (5, 10, 20, 40)}),
    ("convnext_femto_p1", "convnext_femto", {"patch_size": 1}),
    ("convnext_pico_div8_p4", "convnext_pico", {"patch_size": 4, "dims": (8, 16, 32, 64)}),
    ("convnext_nano_div8_p4", "convnext_nano", {"patch_size": 4, "dims": (10, 20, 40, 80)}),
    ("convnext_tiny_div8_p2_s2", "convnext_tiny", {"patch_size": 2, "dims": (12, 24, 48, 96)}),
]


def build_timm(name: str, arguments: dict[str, object], *, in_chans: int) -> nn.Module:
    timm = import_peer("timm")
    if name.startswith("convmixer"):  # timm's factories fix the sizes, so its class is called directly
        return timm.models.convmixer.ConvMixer(**arguments, num_classes=7, in_chans=in_chans)
    return timm.create_model(name, num_classes=7, in_chans=in_chans, **arguments)


def randomise_(model: nn.Module) -> nn.Module:
    """Give every tensor of the state dict, statistics and layer scales too, a value that matters."""
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.05, 0.2)
    return model.double().eval()


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch's own words about k4
@pytest.mark.parametrize(("name", "timm_name", "arguments"), PAIRS)
def test_state_dicts_load_both_ways_and_give_the_same_logits(name, timm_name, arguments):
    torch.manual_seed(0)
    in_channels = 1 if "convmixer" in name else 3
    theirs = randomise_(build_timm(timm_name, arguments, in_chans=in_channels))
    ours = models.create(name, num_classes=7, in_channels=in_channels).double().eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())

    ours.load_state_dict(theirs.state_dict(), strict=True)
    images = torch.randn(2, in_channels, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-9, atol=1e-9)
        randomise_(ours)
        theirs.load_state_dict(ours.state_dict(), strict=True)
        torch.testing.assert_close(theirs(images), ours(images), rtol=1e-9, atol=1e-9)


def test_a_fresh_convnext_is_initialised_as_timm_initialises_it() -> None:
    torch.manual_seed(0)
    theirs = dict(build_timm("convnext_atto", {"patch_size": 1}, in_chans=3).named_parameters())
    ours = dict(models.create("convnext_atto_p1", num_classes=7).named_parameters())
    for key, parameter in ours.items():
        if parameter.std() == 0:  # norms, biases and layer scales
            torch.testing.assert_close(parameter, theirs[key], rtol=0, atol=0)
        elif parameter.numel() > 1000:  # enough draws to compare their spread
            assert parameter.std().item() == pytest.approx(theirs[key].std().item(), rel=0.1), key


def test_a_timm_that_is_missing_or_broken_is_told_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModelError, match=r"unknown model 'mobilenetv2_100'.*pip install timm"):
        models.create("mobilenetv2_100", num_classes=10)
    for name in [name for name in sys.modules if name.partition(".")[0] == "timm"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r"nms does not exist"):
        models.create("timm:convnext_atto")
