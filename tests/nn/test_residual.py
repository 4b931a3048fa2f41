"""ConvMixer's residual, added by the operator of the pair before it: what the plain one computes, unless watched."""

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from filtercov.lab import models
from filtercov.lab.models.convmixer import FastResidual, Residual
from filtercov.nn import accelerate_, native_status, restore_
from tests.nn.operator_calls import operator_calls
from tests.nn.wrapping import double_output_
from tests.peers import import_peer

pytestmark = pytest.mark.skipif(not native_status().available, reason="native kernels not built")


def fused_calls(net: nn.Module, x: Tensor) -> int:
    """Return how many residuals the pair before them added; every other is an addition of its own."""
    calls = operator_calls(net, x)
    fused = sum(function is torch.ops.filtercov.gelu_batch_norm.default and len(args) == 5 for function, args in calls)
    additions = sum(function is torch.ops.aten.add.Tensor and args[0].dim() == 4 for function, args in calls)
    assert fused + additions == DEPTH
    return fused


DEPTH = 3


def ours() -> nn.Module:
    return models.create(f"convmixer_8_{DEPTH}_k5_p2", num_classes=3)


def timms() -> nn.Module:
    return import_peer("timm.models.convmixer").ConvMixer(8, DEPTH, kernel_size=5, patch_size=2, num_classes=3)  # type: ignore[no-any-return]


NETWORKS: dict[str, Callable[[], nn.Module]] = {"ours": ours, "timm's": timms}


def pair(build: Callable[[], nn.Module] = ours) -> tuple[nn.Module, nn.Module]:
    """Return a network and the same one accelerated."""
    plain = build()
    fast = copy.deepcopy(plain)
    restore_(plain)
    accelerate_(fast)
    return plain, fast


def images() -> Tensor:
    return torch.randn(4, 3, 12, 12).to(memory_format=torch.channels_last)


def assert_alike(plain: nn.Module, fast: nn.Module, x: Tensor) -> None:
    for net in (plain, fast):
        net.zero_grad()
    outputs = [net(x) for net in (plain, fast)]
    for out in outputs:
        out.square().sum().backward()
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-4)
    for (name, a), b in zip(plain.named_parameters(), fast.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert (a.grad - b.grad).norm() <= 1e-3 * a.grad.norm() + 1e-4, name
    for (name, a), b in zip(plain.named_buffers(), fast.buffers(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_gradients_and_statistics_are_the_plain_networks(name: str) -> None:
    plain, fast = pair(NETWORKS[name])
    assert fused_calls(copy.deepcopy(fast), images()) == DEPTH
    for _ in range(2):
        assert_alike(plain, fast, images())
    for net in (plain, fast):
        net.eval()
    x = images()
    assert fused_calls(fast, x) == 0
    torch.testing.assert_close(fast(x), plain(x), rtol=1e-4, atol=1e-4)


def test_the_residual_is_added_to_the_bit() -> None:
    branch = nn.Sequential(nn.Conv2d(40, 40, 1), nn.GELU(), nn.BatchNorm2d(40))
    plain = nn.Sequential(Residual(branch, drop_path_rate=0.0))
    accelerate_(plain)
    assert type(plain[0]) is FastResidual
    x = torch.randn(4, 40, 9, 9).to(memory_format=torch.channels_last)
    assert torch.equal(plain[0](x), plain[0].fn(x) + x)


def test_only_what_is_watched_runs_plainly() -> None:
    _, fast = pair()
    x, seen = images(), []
    for part in ("fn", "fn.1", "fn.2", "drop_path"):
        handle = fast.get_submodule(f"blocks.1.0.{part}").register_forward_hook(lambda *_: seen.append(1))
        assert fused_calls(fast, x) == DEPTH - 1, part
        handle.remove()
    assert len(seen) == 4
    for part in ("", "fn.0"):
        handle = fast.get_submodule(f"blocks.1.0.{part}".rstrip(".")).register_forward_hook(lambda *_: seen.append(1))
        assert fused_calls(fast, x) == DEPTH, part
        handle.remove()
    assert len(seen) == 6


CHANGES: dict[str, Callable[[Residual], object]] = {
    "a branch with a forward of its own": lambda block: double_output_(block.fn),
    "an activation with a forward of its own": lambda block: double_output_(block.fn[1]),
    "dropped branches": lambda block: setattr(block.drop_path, "rate", 0.5),
    "another activation": lambda block: block.fn.__setitem__(1, nn.ReLU()),
    "a layer after the pair": lambda block: block.fn.append(nn.Tanh()),
    "a branch of its own class": lambda block: setattr(block.fn, "__class__", type("Own", (nn.Sequential,), {})),
    "frozen statistics": lambda block: block.fn[2].eval(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_residuals_that_were_changed_are_added_as_before(change: str) -> None:
    plain, fast = pair()
    for net in (plain, fast):
        CHANGES[change](net.get_submodule("blocks.1.0"))
    x, outputs = images(), []
    assert fused_calls(copy.deepcopy(fast), x) == DEPTH - 1
    for net in (plain, fast):
        torch.manual_seed(1)
        outputs.append(net(x))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-4)


def test_a_residual_of_another_shape_is_broadcast_as_before() -> None:
    block = FastResidual(nn.Sequential(nn.Conv2d(1, 8, 1), nn.GELU(), nn.BatchNorm2d(8)), drop_path_rate=0.0)
    x = torch.randn(4, 1, 5, 5).to(memory_format=torch.channels_last)
    block.fn.to(memory_format=torch.channels_last)
    torch.testing.assert_close(block(x), block.fn(x) + x)


def test_classes_and_state_come_and_go() -> None:
    for build, residual in ((ours, Residual), (timms, None)):
        net = build()
        kind = residual or import_peer("timm.models.convmixer").Residual
        keys = list(net.state_dict())
        report = accelerate_(net)
        assert len(report.residuals) == DEPTH
        assert f"{DEPTH} residuals added by the pair before them" in str(report)
        assert all(isinstance(net.get_submodule(name), kind) for name in report.residuals)
        assert list(net.state_dict()) == keys
        assert accelerate_(net).residuals == ()
        assert set(report.residuals) <= set(restore_(net))
        assert all(type(net.get_submodule(name)) is kind for name in report.residuals)


def test_a_residual_around_anything_else_keeps_its_class() -> None:
    net = nn.Sequential(Residual(nn.Conv2d(8, 8, 3, padding=1), drop_path_rate=0.0))
    assert accelerate_(net).residuals == ()
    assert type(net[0]) is Residual


def test_copies_compute_the_same() -> None:
    _, fast = pair()
    stream = io.BytesIO()
    torch.save(fast, stream)
    stream.seek(0)
    x = images()
    expected = copy.deepcopy(fast)(x)
    for other in (pickle.loads(pickle.dumps(fast)), torch.load(stream, weights_only=False)):
        assert fused_calls(copy.deepcopy(other), x) == DEPTH
        assert torch.equal(other(x), expected)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_tools_see_what_eager_mode_computes() -> None:
    plain, fast = pair()
    x = images()
    for net in (plain, fast):
        net.train()
    compiled = torch.compile(copy.deepcopy(fast), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), copy.deepcopy(fast)(x), rtol=1e-4, atol=1e-4)
    drawn = torch.fx.symbolic_trace(copy.deepcopy(fast))
    torch.testing.assert_close(drawn(x), copy.deepcopy(fast)(x), rtol=1e-4, atol=1e-4)
    block = copy.deepcopy(fast.get_submodule("blocks.0.0")).eval()
    inside = torch.randn(2, 8, 6, 6)
    torch.testing.assert_close(torch.jit.script(block)(inside), block(inside), rtol=1e-4, atol=1e-4)
