"""The whole way to the Triton kernels, in Triton's interpreter: `accelerate_`, layers, operators, PyTorch's tools."""
# ruff: noqa: E402

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

triton = pytest.importorskip("triton", reason="triton is not installed: `make test-gpu` installs it")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton's interpreter is off: `make test-gpu` sets TRITON_INTERPRET=1", allow_module_level=True)

from filtercov.nn import DepthwiseConv2d, accelerate_, acceleration, depthwise_conv2d, routing, tune
from filtercov.nn.gpu import launch
from filtercov.nn.routing import BITS, ON_GPU
from tests.gpu.test_tuning import Prices
from tests.nn.support import CONVOLVE, last
from tests.nn.test_conv import OURS

ops = torch.ops.filtercov
EVERY = ON_GPU + sum(BITS.values())
LAUNCHED = ["forward", "input_gradient", "weight_gradient"]


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    monkeypatch.setattr(routing, "PRETENDED", True)


@pytest.fixture
def launched(monkeypatch):
    """Return the names of the passes that ran in Triton."""
    names = []
    for name in LAUNCHED:
        real = getattr(launch, name)
        monkeypatch.setattr(launch, name, lambda *a, _n=name, _r=real, **k: (names.append(_n), _r(*a, **k))[1])
    return names


def integers(*shape, dtype=torch.float32):
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def gradients(convolve, *tensors):
    tensors = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]
    y = convolve(*tensors)
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    return [y, *torch.autograd.grad(y, wanted, integers(*y.shape, dtype=y.dtype))]


class Running(Prices):
    """The clock of `test_tuning.py`, by which Triton wins, and Triton does run."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "filtercov":
            self.now += 0.5
            return function(*args, **(kwargs or {}))
        return super().__torch_dispatch__(function, types, args, kwargs)


def test_a_model_is_accelerated_and_computes_what_it_did(monkeypatch, launched):
    monkeypatch.setattr(tune, "LAYER_TURNS", 1)
    monkeypatch.setattr(tune, "STEP_TURNS", 5)
    clock = Running({})
    monkeypatch.setattr(acceleration, "usual_clock", lambda: clock)
    net = nn.Sequential(nn.Conv2d(2, 2, 5, padding=2, groups=2), nn.BatchNorm2d(2), nn.Conv2d(2, 3, 1))
    plain, x = copy.deepcopy(net), torch.randn(1, 2, 8, 8)
    with clock:
        report = accelerate_(net, example_input=x, seconds=600)
    assert report.changed == {"depthwise": ("0",)}
    assert (type(net[0]), net[0].passes) == (DepthwiseConv2d, ON_GPU + BITS["forward"] + BITS["weight_grad"])
    launched.clear()
    outputs = [model(x) for model in (net, plain)]
    for output in outputs:
        output.square().sum().backward()
    assert launched == ["forward", "weight_gradient"]
    pairs = [outputs, *zip(*([p.grad for p in model.parameters()] for model in (net, plain)), strict=True)]
    for ours, theirs in pairs:
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", routing.GPU_DTYPES)
@pytest.mark.parametrize(("size", "kernel"), [((6, 5), (3, 3)), ((11,), (5,))])  # lines are images of one row
def test_layers_with_measured_passes_compute_in_triton_what_pytorch_does(launched, size, kernel, dtype, channels_last):
    axes, padding = len(size), kernel[0] // 2
    x, weight, bias = (integers(*s, dtype=dtype).requires_grad_() for s in ((2, 3, *size), (3, 1, *kernel), (3,)))
    if channels_last:
        x = last(x.detach()).requires_grad_()
    ours = gradients(lambda *t: OURS[axes](*t, padding=padding, passes=EVERY), x, weight, bias)
    assert sorted(launched) == LAUNCHED
    floats = x.float(), weight.float(), bias.float()
    theirs = gradients(lambda *t: CONVOLVE[axes](*t, padding=padding, groups=3), *floats)
    assert all(torch.equal(a.float(), b) for a, b in zip(ours, theirs, strict=True))
    assert ours[0].dtype == dtype
    assert (ours[0].stride(1) == 1) == channels_last


@pytest.mark.parametrize(
    ("passes", "how"),
    [
        *((ON_GPU + passes, {}) for passes in (0, 1, 6)),
        *((EVERY, how) for how in ({"stride": 2}, {"dilation": 2}, {"padding": 17, "kernel": 33})),  # no kernel
        (7, {}),  # measured on a CPU
    ],
    ids=str,
)
def test_each_pass_runs_where_it_was_measured_to_win_and_has_a_kernel(launched, passes, how):
    kernel = how.pop("kernel", 3)
    x, weight = integers(1, 2, 5, 5).requires_grad_(), integers(2, 1, kernel, kernel).requires_grad_()
    ours = gradients(lambda *t: depthwise_conv2d(*t, **how, passes=passes), x, weight)
    runs = passes & ON_GPU and not how
    assert set(launched) == {name for name, bit in zip(LAUNCHED, BITS.values(), strict=True) if runs and passes & bit}
    assert all(map(torch.equal, ours, gradients(lambda *t: functional.conv2d(*t, **how, groups=2), x, weight)))


def test_frozen_filters_compute_no_weight_gradient(launched):
    x, weight, bias = integers(1, 2, 5, 5).requires_grad_(), integers(2, 1, 3, 3), integers(2).requires_grad_()
    y = depthwise_conv2d(x, weight, bias, passes=EVERY)
    assert y.grad_fn.saved_tensors[0] is None
    y.sum().backward()
    assert launched == ["forward", "input_gradient"]
    assert torch.equal(bias.grad, torch.full((2,), 9.0))


def test_autocast_casts_as_it_does_for_pytorch(launched):
    x, weight, bias = (integers(*s).requires_grad_() for s in ((1, 2, 5, 5), (2, 1, 3, 3), (2,)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = gradients(lambda *t: depthwise_conv2d(*t, passes=EVERY), x, weight, bias)
        assert depthwise_conv2d(x.double(), weight.double(), passes=EVERY).dtype == torch.float64
    assert ours[0].dtype == torch.bfloat16
    assert {gradient.dtype for gradient in ours[1:]} == {torch.float32}
    theirs = gradients(lambda *t: functional.conv2d(*t, groups=2), x, weight, bias)
    assert torch.equal(ours[0].float(), theirs[0])
    assert all(torch.allclose(a, b, rtol=2**-8) for a, b in zip(ours[1:], theirs[1:], strict=True))
    assert sorted(launched) == LAUNCHED


def test_compiled_and_exported_layers_call_the_operator(launched):
    layer = DepthwiseConv2d(2, 2, 3, groups=2)
    layer.passes = EVERY
    layer.weight.data, layer.bias.data = integers(2, 1, 3, 3), integers(2)
    x = integers(1, 2, 5, 5)
    exported = torch.export.export(layer, (x,), strict=True)
    targets = {node.target for node in exported.graph.nodes}
    assert ops.depthwise_conv.default in targets
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for run in (exported.module(), compiled):
        launched.clear()
        assert torch.equal(run(x), functional.conv2d(x, layer.weight, layer.bias, groups=2))
        assert launched == ["forward"]
    compiled(x).sum().backward()
    assert launched[-1] == "weight_gradient"


def test_the_operators_pass_torchs_own_checks():
    x, weight, grad = integers(1, 2, 5, 5).requires_grad_(), integers(2, 1, 3, 3).requires_grad_(), integers(1, 2, 3, 3)
    how = (0,) * 4, (1, 1), (1, 1)
    torch.library.opcheck(ops.depthwise_conv.default, (x, weight, None, *how, EVERY))
    torch.library.opcheck(ops.depthwise_conv_input_grad.default, (grad, weight, *how, (5, 5), True, EVERY))
    torch.library.opcheck(ops.depthwise_conv_weight_grad.default, (grad, x, *how, (3, 3), EVERY))
