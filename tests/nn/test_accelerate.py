"""`accelerate_` on any model: same numbers, same parameters, same hooks, and a true report."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from filtercov.nn import (
    DepthwiseConv1d,
    DepthwiseConv2d,
    DepthwiseConv3d,
    FusedSequential,
    accelerate_,
    native_status,
    restore_,
)
from tests.peers import import_peer


class Residual(nn.Module):
    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


def convmixer(width: int = 16, kernel: int = 9) -> nn.Sequential:
    def activation() -> list[nn.Module]:
        return [nn.GELU(), nn.BatchNorm2d(width)]

    spatial = nn.Conv2d(width, width, kernel, groups=width, padding="same")
    return nn.Sequential(
        nn.Conv2d(3, width, 2, stride=2),
        *activation(),
        Residual(nn.Sequential(spatial, *activation())),
        nn.Conv2d(width, width, 1),
        *activation(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def train(net: nn.Module, x: Tensor, target: Tensor, steps: int = 3) -> list[float]:
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = functional.cross_entropy(net(x), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def test_training_gives_the_same_losses_and_weights() -> None:
    plain = convmixer()
    fast = copy.deepcopy(plain)
    report = accelerate_(fast)
    assert report.swapped == ("3.branch.0",)
    pairs = {"1+2", "5+6", "3.branch.1+2"}
    assert set(report.fused) == (pairs if native_status().available else set())
    assert report.skipped == {}
    x, target = torch.randn(8, 3, 24, 24), torch.randint(0, 10, (8,))
    assert train(fast, x, target) == pytest.approx(train(plain, x, target), rel=1e-4)
    for (name, a), (other, b) in zip(plain.state_dict().items(), fast.state_dict().items(), strict=True):
        assert name == other
        assert torch.allclose(a.float(), b.float(), rtol=1e-3, atol=1e-4), name


def speech(width: int = 16) -> nn.Sequential:
    """Return the convolutions of a Conformer: gates, a wide depthwise filter, and a causal one as Mamba has it."""
    return nn.Sequential(
        nn.Conv1d(3, 2 * width, 1),
        nn.GLU(dim=1),
        nn.Conv1d(width, width, 31, padding=15, groups=width),
        nn.BatchNorm1d(width),
        nn.SiLU(),
        nn.Conv1d(width, width, 4, padding=6, dilation=2, groups=width),
        nn.Conv1d(width, width, 5, stride=2, groups=width),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def volumes(width: int = 16) -> nn.Sequential:
    """Return the convolutions of a MedNeXt block and of the layer that halves after it."""
    return nn.Sequential(
        nn.Conv3d(3, width, 1),
        nn.Conv3d(width, width, 5, padding=2, groups=width),
        nn.GroupNorm(width, width),
        nn.Conv3d(width, width, 1),
        nn.GELU(),
        nn.Conv3d(width, width, 3, stride=2, padding=1, groups=width),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


@pytest.mark.parametrize(
    ("build", "size", "swapped", "kind"),
    [(speech, (60,), ("2", "5", "6"), DepthwiseConv1d), (volumes, (9, 10, 11), ("1", "5"), DepthwiseConv3d)],
)
def test_networks_of_one_and_three_dimensions_train_alike(
    build: Callable[[], nn.Sequential], size: tuple[int, ...], swapped: tuple[str, ...], kind: type[nn.Module]
) -> None:
    plain = build()
    fast = copy.deepcopy(plain)
    report = accelerate_(fast)
    assert report.swapped == swapped
    assert all(type(fast[int(name)]) is kind for name in swapped)
    x, target = torch.randn(4, 3, *size), torch.randint(0, 10, (4,))
    assert train(fast, x, target) == pytest.approx(train(plain, x, target), rel=1e-4)
    assert sorted(restore_(fast)) == sorted([*swapped, *report.activations])
    assert [type(module) for module in fast] == [type(module) for module in plain]


def test_modules_parameters_and_hooks_stay_the_same_objects() -> None:
    net = convmixer()
    modules, parameters = list(net.modules()), list(net.parameters())
    called: list[str] = []
    net[3].branch[0].register_forward_hook(lambda *_: called.append("convolution"))
    net[1].register_forward_hook(lambda *_: called.append("gelu"))
    accelerate_(net)
    assert all(a is b for a, b in zip(modules, net.modules(), strict=True))
    assert all(a is b for a, b in zip(parameters, net.parameters(), strict=True))
    net(torch.randn(2, 3, 24, 24))
    assert called == ["gelu", "convolution"]


def test_the_model_computes_in_channels_last_afterwards() -> None:
    net = convmixer()
    accelerate_(net)
    assert net[:6](torch.randn(2, 3, 24, 24)).is_contiguous(memory_format=torch.channels_last)


def test_what_is_not_swapped_is_named_with_the_reason() -> None:
    class Padded(nn.Conv2d):
        pass

    normalised = nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3, groups=8))
    net = nn.ModuleDict(
        {
            "own": Padded(8, 8, 3, groups=8),
            "parametrised": normalised,
            "full": nn.Conv2d(8, 8, 3),
            "grouped": nn.Conv2d(8, 8, 3, groups=4),
            "tanh": nn.Sequential(nn.GELU(approximate="tanh"), nn.BatchNorm2d(8)),
            "plain": nn.Conv2d(8, 8, 3, groups=8),
        }
    )
    report = accelerate_(net)
    assert report.swapped == ("plain",)
    assert set(report.skipped) == {"own", "parametrised"}
    assert "Padded" in report.skipped["own"]
    assert "left alone: own" in str(report)
    assert report.fused == ()
    assert type(net["tanh"]) is nn.Sequential
    assert parametrize.is_parametrized(normalised)


def test_a_second_call_finds_nothing_to_swap() -> None:
    net = convmixer()
    first = accelerate_(net)
    again = accelerate_(net)
    assert again.swapped == ()
    assert again.fused == first.fused
    assert again.skipped == {}
    assert isinstance(net, FusedSequential if native_status().available else nn.Sequential)
    assert isinstance(net[3].branch[0], DepthwiseConv2d)


def test_state_dicts_move_both_ways() -> None:
    plain, fast = convmixer(), convmixer()
    accelerate_(fast)
    fast.load_state_dict(plain.state_dict())
    plain.load_state_dict(fast.state_dict())
    x = torch.randn(2, 3, 24, 24)
    assert torch.allclose(plain.eval()(x), fast.eval()(x), atol=1e-5)


def same_output(plain: nn.Module) -> bool:
    fast = copy.deepcopy(plain)
    assert accelerate_(fast).swapped
    x = torch.randn(2, 3, 64, 64)
    ours, theirs = fast.train()(x), plain.train()(x)
    return bool((ours - theirs).norm() <= 1e-3 * theirs.norm())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mobilenetv3_small_050", {}),
        ("convnext_atto", {}),
        ("efficientnet_lite0", {"drop_path_rate": 0.0}),
    ],
)
def test_timm_models_give_the_same_output(name: str, settings: dict[str, object]) -> None:
    model = import_peer("timm").create_model(name, num_classes=5, drop_rate=0.0, **settings)
    assert same_output(model)


def test_timms_convmixer_gives_the_same_output() -> None:
    convmixer = import_peer("timm.models.convmixer")
    assert same_output(convmixer.ConvMixer(dim=32, depth=2, num_classes=5))


def test_torchvision_models_give_the_same_output() -> None:
    models = import_peer("torchvision.models")
    assert same_output(models.mobilenet_v2(num_classes=5, dropout=0.0))
    assert same_output(models.convnext_tiny(num_classes=5, stochastic_depth_prob=0.0))


def test_weights_of_lines_and_volumes_lie_as_they_did() -> None:
    net = nn.Sequential(nn.Conv3d(2, 2, 3, groups=2), nn.Conv2d(4, 4, 3, groups=4), nn.Conv1d(4, 4, 3, groups=4))
    before = [layer.weight.stride() for layer in net]
    assert accelerate_(net).swapped == ("0", "1", "2")
    assert [layer.weight.stride() for layer in (net[0], net[2])] == [before[0], before[2]]
