"""PyTorch's tools on networks with our layers: what they make of them computes what the networks compute."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import filtercov as fc
from filtercov.nn import depthwise_conv2d
from filtercov.nn.conv import PointwiseConv2d
from filtercov.nn.swap import DEPTHWISE, toggles
from tests.nn.support import images
from tests.nn.test_fused import MIXER, NETWORKS, POINTWISE, both
from tests.peers import import_peer

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),  # of PyTorch's BatchNorm, while it trains
]


OTHER = "other layers"


def other_layers():
    layers, misc = import_peer("timm.layers"), import_peer("torchvision.ops.misc")
    return nn.Sequential(
        nn.Conv2d(3, 8, 1),
        layers.BatchNormAct2d(8, act_layer=nn.SiLU),
        misc.Conv2dNormActivation(8, 8, 3, activation_layer=nn.Hardswish),
        nn.Conv2d(8, 8, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 9, padding=4, groups=8),
        nn.GELU(),
    )


def network(name, *, frozen, training):
    """Return a network and the same one accelerated."""
    plain, net = (model.train(training) for model in both(other_layers if name == OTHER else NETWORKS[name][0]))
    if frozen:
        fc.freeze_(plain)
        fc.freeze_(net)
    return plain, net


def compiled(net, x):
    torch._dynamo.reset()
    return torch.compile(net, backend="aot_eager", fullgraph=True)(x)


def traced_and_saved(net, x):
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(net, x), file)
    file.seek(0)
    return torch.jit.load(file)(x)


TOOLS = {
    "jit.trace": traced_and_saved,
    "make_fx": lambda net, x: make_fx(net)(x)(x),
    "export": lambda net, x: torch.export.export(net, (x,)).module()(x),
    "export, strict": lambda net, x: torch.export.export(net, (x,), strict=True).module()(x),
    "compile": compiled,
    "fx": lambda net, x: copy.deepcopy(torch.fx.symbolic_trace(net))(x),
    "deepcopy": lambda net, x: copy.deepcopy(net)(x),
    "pickle": lambda net, x: pickle.loads(pickle.dumps(net))(x),
    "DataParallel": lambda net, x: nn.DataParallel(net)(x),
}


def close(ours, wanted):
    return bool((ours - wanted).norm() <= 1e-4 * wanted.norm())


@pytest.mark.parametrize(
    ("name", "frozen", "grad"),
    [
        # A frozen network, and any network without gradients, is where there is no graph to record.
        (MIXER, True, True),
        (MIXER, False, False),
        (POINTWISE, False, True),
        (OTHER, False, True),
    ],
)
@pytest.mark.parametrize("tool", TOOLS)
def test_tools_give_what_the_plain_network_gives_and_keep_what_was_measured(tool, name, frozen, grad):
    (plain, net), x = network(name, frozen=frozen, training=name == OTHER), images(2, 3, 16, 16)
    if name == OTHER:
        net[3].__class__ = PointwiseConv2d
        (toggle,) = (toggle for toggle in toggles(net) if toggle.swap is DEPTHWISE)
        toggle.set_(6)
    with torch.set_grad_enabled(grad):
        assert close(TOOLS[tool](net, x), plain(x))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", [OTHER, MIXER, POINTWISE, "GELU alone"])
def test_traces_are_pytorchs_own_and_take_other_sizes(name, training):
    plain, net = network(name, frozen=False, training=training)
    traced = torch.jit.trace(net, images(4, 3, 8, 8), check_trace=False)
    assert "filtercov::" not in str(traced.inlined_graph)
    for x in (images(2, 3, 8, 12), torch.randn(3, 3, 16, 8)):
        assert close(traced(x), plain(x))


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "thawed"])
@pytest.mark.parametrize("name", [MIXER, "our ConvNeXt", POINTWISE])
def test_recorded_checkpointed_and_counted_training_steps_are_those_of_eager_mode(name, frozen):
    (plain, net), x = network(name, frozen=frozen, training=True), images(2, 3, 16, 16).requires_grad_()
    parameters = [x, *(p for p in net.parameters() if p.requires_grad)]

    def gradients(x):
        return torch.autograd.grad(net(x).square().sum(), [x, *parameters[1:]])

    wanted = gradients(x)
    torch.testing.assert_close(make_fx(gradients)(x)(x), wanted, rtol=1e-4, atol=1e-4)
    torch._dynamo.reset()
    compiled = torch.compile(copy.deepcopy(net), backend="aot_eager", fullgraph=True)
    trained = [p for p in compiled.parameters() if p.requires_grad]
    assert all(map(close, torch.autograd.grad(compiled(x).square().sum(), [x, *trained]), wanted))
    for reentrant in (True, False):
        for parameter in parameters:
            parameter.grad = None
        checkpoint(net, x, use_reentrant=reentrant).square().sum().backward()
        assert all(torch.equal(p.grad, grad) for p, grad in zip(parameters, wanted, strict=True))
    counts = []
    for model in (net, plain):
        with FlopCounterMode(display=False) as counter:
            model(x).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_functions_are_one_node_to_torch_fx():
    traced = torch.fx.symbolic_trace(lambda x, weight: depthwise_conv2d(x, weight, padding="same"))
    assert depthwise_conv2d in [node.target for node in traced.graph.nodes]
    x, weight = torch.randn(2, 8, 5, 5), torch.randn(8, 1, 9, 9)
    assert torch.equal(traced(x, weight), depthwise_conv2d(x, weight, padding=4))
