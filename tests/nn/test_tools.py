"""PyTorch's tools on networks with our layers: what they make of them computes what the networks compute."""

import copy
import io
import itertools
import pickle
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import filtercov as fc
from filtercov.lab import models
from filtercov.nn import DepthwiseConv2d, accelerate_, depthwise_conv2d, gelu_batch_norm, native_status, restore_
from filtercov.nn.swaps import DEPTHWISE, toggles
from tests.peers import import_peer

Tool = Callable[[nn.Module, Tensor], Tensor]


def timm_convnext() -> nn.Module:
    timm = import_peer("timm.models.convnext")
    return timm.ConvNeXt(depths=(1, 1, 1, 1), dims=(8, 8, 8, 8), patch_size=1, kernel_sizes=9, num_classes=3)


def our_convmixer() -> nn.Module:
    return models.create("convmixer_8_2_k9_p2", num_classes=3)


def our_convnext() -> nn.Module:
    return models.create("convnext_atto_div8_p1_k9", num_classes=3)


NETWORKS = {"timm's ConvNeXt": timm_convnext, "our ConvMixer": our_convmixer, "our ConvNeXt": our_convnext}


def images() -> Tensor:
    return torch.randn(2, 3, 16, 16)


def network(name: str, *, frozen: bool, training: bool = False) -> nn.Module:
    net = NETWORKS[name]()
    with torch.no_grad():  # so that every layer, also behind a layer scale, can be seen in the output
        for parameter in net.parameters():
            parameter.copy_(torch.rand_like(parameter) - 0.4)
    accelerate_(net)
    if frozen:
        fc.freeze_(net)
    return net.train(training)


def compiled(net: nn.Module, x: Tensor) -> Tensor:
    torch._dynamo.reset()
    result: Tensor = torch.compile(net, backend="aot_eager", fullgraph=True)(x)
    return result


def saved_whole(net: nn.Module, x: Tensor) -> Tensor:
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    result: Tensor = torch.load(file, weights_only=False)(x)
    return result


def traced_and_saved(net: nn.Module, x: Tensor) -> Tensor:
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(net, x), file)
    file.seek(0)
    result: Tensor = torch.jit.load(file)(x)
    return result


TOOLS: dict[str, Tool] = {
    "jit.trace": traced_and_saved,
    "make_fx": lambda net, x: make_fx(net)(x)(x),
    "export": lambda net, x: torch.export.export(net, (x,)).module()(x),
    "export, strict": lambda net, x: torch.export.export(net, (x,), strict=True).module()(x),
    "compile": compiled,
    "fx": lambda net, x: copy.deepcopy(torch.fx.symbolic_trace(net))(x),
    "deepcopy": lambda net, x: copy.deepcopy(net)(x),
    "pickle": lambda net, x: pickle.loads(pickle.dumps(net))(x),
    "save": saved_whole,
    "DataParallel": lambda net, x: nn.DataParallel(net)(x),
}


@pytest.fixture
def _deprecated_tools() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        yield


def close(ours: Tensor, wanted: Tensor) -> bool:
    return bool((ours - wanted).norm() <= 1e-4 * wanted.norm())


def cases() -> Iterator[object]:
    for tool, name, frozen, grad in itertools.product(TOOLS, NETWORKS, (True, False), (True, False)):
        compiles = tool in ("compile", "export", "export, strict")
        # A frozen network, and any network without gradients, is where there is no graph to record.
        quick = frozen == grad and (name == "our ConvMixer" or not compiles)
        state = f"{'frozen' if frozen else 'thawed'}-{'grad' if grad else 'no_grad'}"
        marks = () if quick else pytest.mark.faults
        yield pytest.param(tool, name, frozen, grad, id=f"{tool}-{name}-{state}", marks=marks)


@pytest.mark.usefixtures("_deprecated_tools")
@pytest.mark.parametrize("tool", TOOLS)
def test_tools_give_what_norms_with_activations_give_in_training(tool: str) -> None:
    layers, misc = import_peer("timm.layers"), import_peer("torchvision.ops.misc")
    net = nn.Sequential(
        nn.Conv2d(3, 8, 1),
        layers.BatchNormAct2d(8, act_layer=nn.SiLU),
        misc.Conv2dNormActivation(8, 8, 3, activation_layer=nn.Hardswish),
        nn.Conv2d(8, 8, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 9, padding=4, groups=8),
        nn.GELU(),
    )
    plain = copy.deepcopy(net)
    report = accelerate_(net)
    assert len(report.fused) == 3
    assert report.activations == ("7",)
    x = images().to(memory_format=torch.channels_last)
    assert close(TOOLS[tool](net, x), plain(x))


@pytest.mark.usefixtures("_deprecated_tools")
@pytest.mark.parametrize(("tool", "name", "frozen", "grad"), list(cases()))
def test_tools_give_what_the_network_gives(tool: str, name: str, frozen: bool, grad: bool) -> None:
    net, x = network(name, frozen=frozen), images()
    with torch.set_grad_enabled(grad):
        assert close(TOOLS[tool](net, x), net(x))


@pytest.mark.usefixtures("_deprecated_tools")
@pytest.mark.parametrize("tool", TOOLS)
def test_tools_keep_what_was_measured(tool: str) -> None:
    """Layers that `accelerate_` gave their own choice of passes, each another."""
    net, x = network("our ConvMixer", frozen=False), images()
    for passes, toggle in enumerate(toggle for toggle in toggles(net) if toggle.swap is DEPTHWISE):
        toggle.set_(toggle.ours._replace(passes=6 + passes))
    assert [m.passes for m in net.modules() if isinstance(m, DepthwiseConv2d)] == [6, 7]
    assert close(TOOLS[tool](net, x), net(x))


def pair_of_norms(**options: object) -> nn.Sequential:
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.GELU(), nn.BatchNorm2d(8, **options))  # type: ignore[arg-type]
    accelerate_(net)
    return net


@pytest.mark.usefixtures("_deprecated_tools")
def test_a_traced_network_takes_other_sizes_and_keeps_training() -> None:
    """The counts behind the variance and the cumulative average are part of the trace, not constants in it."""
    net = pair_of_norms(momentum=None)
    plain = copy.deepcopy(net)
    restore_(plain)
    with warnings.catch_warnings():
        if native_status().available:
            warnings.simplefilter("error", torch.jit.TracerWarning)
        else:
            warnings.simplefilter("ignore", torch.jit.TracerWarning)  # nn.BatchNorm2d itself looks at sizes
        traced = torch.jit.trace(net, torch.randn(4, 3, 5, 5), check_trace=False)
    if native_status().available:
        assert "filtercov::gelu_batch_norm" in str(traced.inlined_graph)
    net[2].reset_running_stats()
    for batch in (2, 7):
        x = torch.randn(batch, 3, 6, 4)
        assert close(traced(x), plain(x))
    if native_status().available:  # nn.BatchNorm2d's own average, traced, is a constant
        assert torch.allclose(net[2].running_var, plain[2].running_var, rtol=1e-5)
        assert torch.allclose(net[2].running_mean, plain[2].running_mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"track_running_stats": False}], ids=str)
def test_a_compiled_pair_trains_in_one_graph(options: dict[str, object]) -> None:
    net = pair_of_norms(**options)
    other = copy.deepcopy(net)
    torch._dynamo.reset()
    run = torch.compile(other, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        x = torch.randn(4, 3, 5, 5)
        net(x).square().mean().backward()
        run(x).square().mean().backward()
    for (key, ours), theirs in zip(other.state_dict().items(), net.state_dict().values(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5), key
    for ours, theirs in zip(other.parameters(), net.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "thawed"])
def test_make_fx_records_gradients_too(frozen: bool) -> None:
    net, x = network("our ConvMixer", frozen=frozen, training=True), images()
    parameters = [p for p in net.parameters() if p.requires_grad]

    def gradients(x: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(net(x).square().sum(), parameters)

    for ours, theirs in zip(make_fx(gradients)(x)(x), gradients(x), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "thawed"])
@pytest.mark.parametrize("name", NETWORKS)
def test_checkpointed_activations_give_the_same_gradients(name: str, frozen: bool, reentrant: bool) -> None:
    net, x = network(name, frozen=frozen, training=True), images().requires_grad_()
    wanted = torch.autograd.grad(net(x).square().sum(), [x, *(p for p in net.parameters() if p.requires_grad)])
    checkpoint(net, x, use_reentrant=reentrant).square().sum().backward()
    got = [x.grad, *(p.grad for p in net.parameters() if p.requires_grad)]
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def counted(net: nn.Module, x: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        net(x).sum().backward()
    total: int = counter.get_total_flops()
    return total


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "thawed"])
@pytest.mark.parametrize("name", NETWORKS)
def test_flops_are_counted_as_for_pytorchs_own_layers(name: str, frozen: bool) -> None:
    net = network(name, frozen=frozen, training=True)
    plain = copy.deepcopy(net)
    assert restore_(plain)
    assert counted(net, images()) == counted(plain, images()) > 0


@pytest.mark.usefixtures("_deprecated_tools")
def test_torchscript_compiles_pytorchs_layers_in_place_of_ours() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 9, padding=4, groups=8), nn.GELU(), nn.BatchNorm2d(8))
    accelerate_(net)
    x = images()
    assert close(torch.jit.script(net)(x), net(x))


def test_functions_are_one_node_to_torch_fx() -> None:
    def both(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        return gelu_batch_norm(depthwise_conv2d(x, weight, padding="same"), scale, scale, 1e-5)[0]

    inputs = torch.randn(2, 8, 5, 5), torch.randn(8, 1, 9, 9), torch.rand(8)
    traced = torch.fx.symbolic_trace(both)
    assert depthwise_conv2d in [node.target for node in traced.graph.nodes]
    assert close(traced(*inputs), both(*inputs))


def test_numbers_kept_with_their_sign_flipped_are_read_so() -> None:
    # PyTorch flips the sign of such a view when it is read; only calls through the dispatcher are told.
    negated = torch.randn(2, 8, 9, 9, dtype=torch.complex64).conj().imag.to(memory_format=torch.channels_last)
    if not negated.is_neg():
        negated = torch._neg_view(negated.resolve_neg())
    assert negated.is_neg()
    weight = torch.randn(8, 1, 9, 9)
    with torch.no_grad():
        ours = depthwise_conv2d(negated, weight, padding=4)
    assert close(ours, depthwise_conv2d(negated.resolve_neg(), weight, padding=4))


def test_a_layer_with_parametrised_filters_is_traced_too() -> None:
    layer = weight_norm(DepthwiseConv2d(8, 8, 9, padding="same", groups=8))
    x = torch.randn(2, 8, 9, 9)
    assert close(make_fx(layer)(x)(x), layer(x))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch._dynamo looks at it
def test_a_broken_graph_computes_the_same() -> None:
    layer = DepthwiseConv2d(8, 8, 9, padding="same", groups=8)

    def broken(x: Tensor) -> Tensor:
        x = layer(x)
        torch._dynamo.graph_break()
        torch.autograd.grad(layer(x).sum(), layer.weight)
        return layer(x)

    torch._dynamo.reset()
    x = torch.randn(2, 8, 9, 9)
    assert close(torch.compile(broken, backend="aot_eager")(x), broken(x))
