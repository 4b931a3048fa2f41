"""`accelerate_` on any model: same numbers, same parameters, same hooks, and a true report."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from filtercov.nn import DepthwiseConv2d, FusedSequential, accelerate_, native_status
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


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


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


def test_layers_of_other_dimensions_stay_as_they_are() -> None:
    net = nn.Sequential(nn.Conv3d(2, 2, 3, groups=2), nn.Conv2d(4, 4, 3, groups=4), nn.Conv1d(4, 4, 3, groups=4))
    before = [layer.weight.stride() for layer in net]
    assert accelerate_(net).swapped == ("1",)
    assert [layer.weight.stride() for layer in (net[0], net[2])] == [before[0], before[2]]
