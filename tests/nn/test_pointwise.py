"""1×1 convolutions as products of matrices: what nn.Conv2d computes, and only where someone measured."""

import copy

import pytest
import torch
from torch import nn

from filtercov.nn import accelerate_, restore_
from filtercov.nn.pointwise import PointwiseConv2d
from filtercov.nn.swaps import POINTWISE, toggles
from tests.peers import import_peer


def pair(*args: int, **settings: object) -> tuple[nn.Conv2d, PointwiseConv2d]:
    plain = nn.Conv2d(*args, 1, **settings)  # type: ignore[arg-type]
    ours = copy.deepcopy(plain)
    ours.__class__ = PointwiseConv2d
    return plain, ours  # type: ignore[return-value]


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("size", [(1, 1), (5, 7), (1, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_the_convolutions(
    layout: torch.memory_format, size: tuple[int, int], bias: bool
) -> None:
    plain, ours = pair(12, 20, bias=bias)
    x = torch.randn(3, 12, *size).to(memory_format=layout)
    results = []
    for layer in (plain, ours):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = layer(leaf)
        results.append((y, *torch.autograd.grad(y.square().sum(), [leaf, *layer.parameters()])))
    for theirs, mine in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
        assert mine.shape == theirs.shape
    if size == (5, 7):
        assert results[1][0].is_contiguous(memory_format=layout)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_tools_see_through_it() -> None:
    _, ours = pair(6, 4)
    net = nn.Sequential(ours).eval()
    x = torch.randn(2, 6, 3, 3).to(memory_format=torch.channels_last)
    y = net(x)
    for made in (
        torch.jit.trace(net, x),
        torch.jit.script(net),
        torch.fx.symbolic_trace(net),
        torch.export.export(net, (x,)).module(),
        torch.compile(net, backend="aot_eager", fullgraph=True),
    ):
        torch.testing.assert_close(made(x), y)


def test_nothing_is_swapped_unmeasured() -> None:
    net = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 7, padding=3, groups=8))
    accelerate_(net)
    assert type(net[0]) is nn.Conv2d
    net[0].__class__ = PointwiseConv2d  # as a measurement may have
    accelerate_(net)
    assert type(net[0]) is PointwiseConv2d
    assert restore_(net) == ("0", "1")
    assert type(net[0]) is nn.Conv2d


@pytest.mark.parametrize("layer", [nn.Conv2d(8, 8, 1, stride=2), nn.Conv2d(8, 8, 1, groups=2), nn.Conv2d(8, 8, 3)])
def test_other_convolutions_have_no_such_alternative(layer: nn.Conv2d) -> None:
    assert [toggle for toggle in toggles(layer) if toggle.swap is POINTWISE] == []


def test_a_network_of_others_gives_the_same_output() -> None:
    plain = import_peer("timm").create_model("mobilenetv3_small_050", num_classes=5).eval()
    ours = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    chosen = [toggle for toggle in toggles(ours) if toggle.swap is POINTWISE]
    assert len(chosen) > 20
    for toggle in chosen:
        toggle.set_(toggle.ours)
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours(x.to(memory_format=torch.channels_last)), plain(x), rtol=1e-3, atol=1e-3)
