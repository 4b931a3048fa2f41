"""Fused ConvNeXt blocks: what the plain ones compute, fused where nobody can notice and plain everywhere else."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from filtercov.lab import models
from filtercov.nn import accelerate_, native_status, restore_
from tests.nn.operator_calls import operator_calls
from tests.nn.wrapping import double_output_
from tests.peers import import_peer

pytestmark = pytest.mark.skipif(not native_status().available, reason="native kernels not built")


def timms(**settings: object) -> nn.Module:
    timm = import_peer("timm.models.convnext")
    sizes = {"depths": (1, 1, 1, 1), "dims": (8, 12, 16, 24), "patch_size": 1, "num_classes": 3}
    return timm.ConvNeXt(**sizes | settings)  # type: ignore[no-any-return]


def ours() -> nn.Module:
    return models.create("convnext_atto_div8_p1", num_classes=3)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "ours": ours,
    "linear layers": timms,
    "pointwise convolutions": lambda: timms(conv_mlp=True),
    "without layer scale": lambda: timms(ls_init_value=None),
    "other filters": lambda: timms(conv_mlp=True, kernel_sizes=9),
}


def fused_calls(net: nn.Module, x: Tensor) -> int:
    return sum(function is torch.ops.filtercov.norm_mlp.default for function, _ in operator_calls(net, x))


def images(size: int = 16) -> Tensor:
    return torch.randn(2, 3, size, size).to(memory_format=torch.channels_last)


def pair(build: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """Return a network and the same one accelerated; every parameter can be seen in the output."""
    plain = build()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    fast = copy.deepcopy(plain)
    restore_(plain)
    accelerate_(fast)
    return plain, fast


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_the_plain_networks(name: str, frozen: bool) -> None:
    plain, fast = pair(NETWORKS[name])
    x = images()
    assert fused_calls(fast, x) >= 4
    outputs = []
    for net in (plain, fast):
        for parameter_name, parameter in net.named_parameters():
            parameter.requires_grad_(not (frozen and "conv_dw" in parameter_name))
        out = net(x)
        out.square().sum().backward()
        outputs.append(out)
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-4)
    for (parameter_name, a), b in zip(plain.named_parameters(), fast.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), parameter_name
        if a.grad is not None and b.grad is not None:
            assert (a.grad - b.grad).norm() <= 1e-4 * a.grad.norm() + 1e-6, parameter_name


def test_only_what_is_watched_runs_plainly() -> None:
    _, fast = pair(lambda: timms(conv_mlp=True))
    x, seen = images(), []
    whole = fused_calls(fast, x)
    for part in ("norm", "mlp", "mlp.fc1", "mlp.act", "mlp.drop1", "mlp.fc2", "drop_path"):
        module = fast.get_submodule(f"stages.2.blocks.0.{part}")
        handle = module.register_forward_hook(lambda *_: seen.append(1))
        assert fused_calls(fast, x) == whole - 1, part
        handle.remove()
    assert len(seen) == 7
    for part in ("conv_dw", "shortcut"):
        handle = fast.get_submodule(f"stages.2.blocks.0.{part}").register_forward_hook(lambda *_: seen.append(1))
        assert fused_calls(fast, x) == whole, part
        handle.remove()
    assert len(seen) == 9


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "a product with a forward of its own": lambda block: double_output_(block.mlp.fc1),
    "an MLP with a forward of its own": lambda block: double_output_(block.mlp),
    "another activation": lambda block: setattr(block.mlp, "act", nn.ReLU()),
    "an approximate activation": lambda block: setattr(block.mlp, "act", nn.GELU(approximate="tanh")),
    "dropout within": lambda block: setattr(block.mlp.drop1, "p", 0.5),
    "a norm within": lambda block: setattr(block.mlp, "norm", nn.BatchNorm2d(32)),
    "a parametrised product": lambda block: torch.nn.utils.parametrizations.weight_norm(block.mlp.fc1),
    "a product without bias": lambda block: setattr(block.mlp.fc1, "bias", None),
    "a subclass of a product": lambda block: setattr(block.mlp.fc2, "__class__", type("Own", (nn.Conv2d,), {})),
    "a norm without weight": lambda block: setattr(block, "norm", type(block.norm)(8, affine=False)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_blocks_that_were_changed_run_plainly(change: str) -> None:
    plain, fast = pair(lambda: timms(conv_mlp=True))
    whole = fused_calls(fast, images())
    for net in (plain, fast):
        CHANGES[change](net.stages[0].blocks[0])
    x = images()
    assert fused_calls(fast, x) == whole - 1
    outputs = []
    for net in (plain, fast):
        torch.manual_seed(1)
        outputs.append(net(x))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-4)


def test_dropped_branches_are_the_same_ones() -> None:
    plain, fast = pair(lambda: timms(conv_mlp=True, drop_path_rate=0.5))
    x, outputs = images(), []
    for net in (plain, fast):
        torch.manual_seed(3)
        outputs.append(net(x))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-4)
    assert fused_calls(fast, x) == 4
    fast.eval(), plain.eval()
    torch.testing.assert_close(fast(x), plain(x), rtol=1e-4, atol=1e-4)


def test_other_numbers_layouts_and_modes_run_plainly() -> None:
    plain, fast = pair(lambda: timms(conv_mlp=True))
    x = images()
    block = fast.stages[0].blocks[0]
    inside = torch.randn(2, 8, 16, 16)
    assert fused_calls(block, inside) == 0  # channels first
    assert fused_calls(block, inside.to(memory_format=torch.channels_last)) == 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fused_calls(fast, x) == 0
    slopes = [torch.func.jvp(net, (x,), (x,))[1] for net in (plain, fast)]
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-3, atol=1e-3)
    assert fused_calls(fast.double(), x.double()) == 0


def test_the_second_version_of_the_network_keeps_its_own_blocks() -> None:
    _, fast = pair(lambda: timms(conv_mlp=True, use_grn=True, ls_init_value=None))
    assert fused_calls(fast, images()) == 0


def test_classes_and_state_come_and_go() -> None:
    block = import_peer("timm.models.convnext").ConvNeXtBlock
    net = timms()
    keys = list(net.state_dict())
    report = accelerate_(net)
    assert report.blocks == tuple(f"stages.{i}.blocks.0" for i in range(4))
    assert "4 ConvNeXt blocks fused" in str(report)
    assert all(isinstance(net.get_submodule(name), block) for name in report.blocks)
    assert list(net.state_dict()) == keys
    assert accelerate_(net).blocks == ()
    assert set(report.blocks) <= set(restore_(net))
    assert all(type(net.get_submodule(name)) is block for name in report.blocks)
    built = ours()
    assert {type(module).__name__ for module in built.modules()} >= {"FastBlock"}
    restore_(built)
    assert "FastBlock" not in {type(module).__name__ for module in built.modules()}
    assert len(accelerate_(built).blocks) == 12


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torchscript_compiles_the_plain_block() -> None:
    _, fast = pair(lambda: timms(conv_mlp=True))
    x = images()
    scripted = torch.jit.script(fast.eval())
    torch.testing.assert_close(scripted(x), fast(x), rtol=1e-4, atol=1e-4)
    assert fused_calls(fast, x) == 4
