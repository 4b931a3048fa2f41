"""The whole way to the Triton kernels, in Triton's interpreter: `accelerate_`, layers, operators, PyTorch's tools."""
# ruff: noqa: E402

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

triton = pytest.importorskip("triton", reason="triton is not installed: `make test-gpu` installs it")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton's interpreter is off: `make test-gpu` sets TRITON_INTERPRET=1", allow_module_level=True)

from filtercov.errors import KernelError
from filtercov.nn import DepthwiseConv1d, DepthwiseConv2d, accelerate_, acceleration, depthwise_conv2d, routing, tune
from filtercov.nn.gpu import launch
from filtercov.nn.routing import BITS, ON_GPU
from tests.gpu.test_tuning import Prices

ops = torch.ops.filtercov
EVERY = ON_GPU + sum(BITS.values())


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    monkeypatch.setattr(routing, "PRETENDED", True)


@pytest.fixture
def launched(monkeypatch):
    """Return the names of the passes that ran in Triton."""
    names = []
    for name in ("forward", "input_gradient", "weight_gradient"):
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
    assert report.swapped == ("0",)
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
def test_layers_with_measured_passes_compute_in_triton_what_pytorch_does(launched, dtype, channels_last):
    x, weight, bias = (integers(*s, dtype=dtype).requires_grad_() for s in ((2, 3, 6, 5), (3, 1, 3, 3), (3,)))
    if channels_last:
        x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    ours = gradients(lambda *t: depthwise_conv2d(*t, padding=1, passes=EVERY), x, weight, bias)
    assert sorted(launched) == ["forward", "input_gradient", "weight_gradient"]
    theirs = gradients(lambda *t: functional.conv2d(*t, padding=1, groups=3), x.float(), weight.float(), bias.float())
    assert all(torch.equal(a.float(), b) for a, b in zip(ours, theirs, strict=True))
    assert ours[0].dtype == dtype
    assert ours[0].is_contiguous(memory_format=torch.channels_last) == channels_last


@pytest.mark.parametrize("passes", [ON_GPU, ON_GPU + 1, ON_GPU + 6])
def test_each_pass_runs_where_it_was_measured_to_win(launched, passes):
    x, weight = integers(1, 2, 5, 5).requires_grad_(), integers(2, 1, 3, 3).requires_grad_()
    ours = gradients(lambda *t: depthwise_conv2d(*t, passes=passes), x, weight)
    names = zip(("forward", "input_gradient", "weight_gradient"), BITS.values(), strict=True)
    assert set(launched) == {name for name, bit in names if passes & bit}
    assert all(map(torch.equal, ours, gradients(lambda *t: functional.conv2d(*t, groups=2), x, weight)))


@pytest.mark.parametrize("how", [{"stride": 2}, {"dilation": 2}, {"padding": 17, "kernel": 33}, {"passes": 7}], ids=str)
def test_what_has_no_kernel_is_pytorchs(launched, how):
    kernel, passes = how.pop("kernel", 3), how.pop("passes", EVERY)
    x, weight = integers(1, 2, 5, 5).requires_grad_(), integers(2, 1, kernel, kernel).requires_grad_()
    ours = gradients(lambda *t: depthwise_conv2d(*t, **how, passes=passes), x, weight)
    assert not launched
    assert all(map(torch.equal, ours, gradients(lambda *t: functional.conv2d(*t, **how, groups=2), x, weight)))


@pytest.mark.parametrize("channels_last", [False, True])
def test_lines_are_images_of_one_row(launched, channels_last):
    layer = DepthwiseConv1d(3, 3, 5, padding=2, groups=3)
    layer.passes = EVERY
    layer.weight.data, layer.bias.data = integers(3, 1, 5), integers(3)
    x = integers(2, 11, 3).mT if channels_last else integers(2, 3, 11)
    x.requires_grad_()
    theirs = functional.conv1d(x, layer.weight, layer.bias, padding=2, groups=3)
    grad = integers(*theirs.shape)
    wanted = torch.autograd.grad(theirs, [x, *layer.parameters()], grad)
    ours = layer(x)
    assert torch.equal(ours, theirs)
    assert (ours.stride(1) == 1) == channels_last
    assert all(map(torch.equal, torch.autograd.grad(ours, [x, *layer.parameters()], grad), wanted))
    assert sorted(launched) == ["forward", "input_gradient", "weight_gradient"]


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
    assert sorted(launched) == ["forward", "input_gradient", "weight_gradient"]


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


def test_tensors_on_a_gpu_have_the_same_checks_and_fakes():
    for operator in (ops.depthwise_conv, ops.depthwise_conv_input_grad, ops.depthwise_conv_weight_grad):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(operator.default.name(), "CUDA")
    how = (3,) * 4, (1, 1), (1, 1)
    with FakeTensorMode(), torch.no_grad():  # a CPU build of torch cannot record gradients there
        layer = nn.Conv2d(8, 8, 7, padding=3, groups=8, device="meta", dtype=torch.float16)
        layer.weight = nn.Parameter(torch.empty(8, 1, 7, 7, device="cuda", dtype=torch.float16))
        layer.bias = nn.Parameter(torch.empty(8, device="cuda", dtype=torch.float16))
        x = torch.empty(2, 8, 14, 14, device="cuda", dtype=torch.float16)
        y = ops.depthwise_conv(x, layer.weight, layer.bias, *how, EVERY)
        grad_x = ops.depthwise_conv_input_grad(y, layer.weight, *how, (14, 14), False, EVERY)
        grad_weight = ops.depthwise_conv_weight_grad(y, x, *how, (7, 7), EVERY)
        with pytest.raises(KernelError):
            ops.depthwise_conv(x, layer.weight, layer.bias.float(), *how, EVERY)
        assert routing.on_gpu(x)
        assert accelerate_(layer).needs_example
    for result, like in ((y, x), (grad_x, x), (grad_weight, layer.weight)):
        assert (result.device.type, result.dtype, result.shape) == ("cuda", torch.float16, like.shape)


def test_the_flag_needs_both_variables_and_triton_is_imported_late():
    code = "from filtercov.nn import gpu, routing; print(routing.PRETENDED, hasattr(gpu, 'kernels'))"
    for interpret, flag, wanted in (("1", "1", "True"), ("1", "0", "False"), ("0", "1", "False")):
        environment = os.environ | {"TRITON_INTERPRET": interpret, "FILTERCOV_TRITON": flag}
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        assert told.stdout.split()[0] == wanted
        assert told.stdout.split()[1] == "False"
