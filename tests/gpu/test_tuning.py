"""What the tuner keeps on a GPU, told by a clock that the test controls; no GPU and no Triton is needed.

CPU tensors count as tensors on a GPU, passes that would run in Triton are PyTorch's, and each has the price of a test.
"""

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from filtercov.errors import KernelError
from filtercov.nn import DepthwiseConv2d, accelerate_, acceleration, gpu, restore_, routing, tune
from filtercov.nn.routing import BITS, BY_THRESHOLDS, ON_GPU
from filtercov.nn.swap import pass_choices, toggles

OPERATORS = {
    "forward": torch.ops.filtercov.depthwise_conv.default,
    "input_grad": torch.ops.filtercov.depthwise_conv_input_grad.default,
    "weight_grad": torch.ops.filtercov.depthwise_conv_weight_grad.default,
}
LOSE, WIN = 9.0, 1.0  # seconds of a pass in Triton; PyTorch's take 3


class Prices(TorchDispatchMode):
    """A clock that adds the price of each depthwise pass, and the dtypes and passes that it saw."""

    def __init__(self, prices, *, last=1.0):
        super().__init__()
        self.prices, self.last, self.now, self.seen = prices, last, 0.0, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        which = next((which for which, operator in OPERATORS.items() if operator is function), None)
        if which is not None:
            passes = dict(enumerate(args)).get(len(function._schema.arguments) - 1, BY_THRESHOLDS)
            self.seen.add((which, passes, args[0].dtype))
            self.now += self.prices[which] if passes & BITS[which] else 3.0
            args = (*args[: len(function._schema.arguments) - 1], ON_GPU)  # computed by PyTorch
        elif function is torch.ops.aten.convolution.default:
            self.now += 3.0 * self._layout(args[0])
        elif function is torch.ops.aten.convolution_backward.default:
            self.now += 3.0 * sum(args[-1][:2]) * self._layout(args[1])
        return function(*args, **(kwargs or {}))

    def _layout(self, image):
        return self.last if image.is_contiguous(memory_format=torch.channels_last) else 1.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    monkeypatch.setattr(routing, "PRETENDED", True)
    monkeypatch.setattr(gpu, "INTERPRETED", True)
    monkeypatch.setattr(gpu, "_has_triton", lambda: True)
    monkeypatch.setattr(tune, "LAYER_TURNS", 1)
    monkeypatch.setattr(tune, "STEP_TURNS", 5)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 1, stride=2),
        nn.Conv2d(8, 8, 7, padding=3, groups=8),
        nn.GELU(),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 4, 1),
    )


def tuned(monkeypatch, net, *, last=1.0, **prices):
    """Return the report of accelerating a network with these prices, and the clock."""
    clock = Prices(dict.fromkeys(BITS, WIN) | prices, last=last)
    monkeypatch.setattr(acceleration, "usual_clock", lambda: clock)
    with clock:
        report = accelerate_(net, example_input=IMAGES, seconds=600)
    return report, clock


IMAGES = torch.randn(2, 3, 16, 16)


@pytest.mark.parametrize(
    ("prices", "kept"),
    [
        ({}, 7),
        ({"forward": LOSE}, 6),
        ({"input_grad": LOSE}, 5),
        ({"weight_grad": LOSE, "forward": LOSE}, 2),
        ({"forward": LOSE, "input_grad": LOSE, "weight_grad": LOSE}, None),
        ({"forward": 2.99, "input_grad": 3.0, "weight_grad": 3.0}, None),  # less than 1 % faster
    ],
    ids=str,
)
def test_the_passes_that_win_are_kept_and_nothing_but_depthwise_convolutions_changes(monkeypatch, prices, kept):
    net = network()
    plain = copy.deepcopy(net)
    report, _ = tuned(monkeypatch, net, **prices)
    ours = () if kept is None else ("1",)
    assert report.changed == ({"depthwise": ours} if ours else {})
    types = [type(layer) for layer in plain]
    assert [type(layer) for layer in net] == [types[0], DepthwiseConv2d if ours else nn.Conv2d, *types[2:]]
    assert getattr(net[1], "passes", None) == (None if kept is None else ON_GPU + kept)
    named = {bit: which.replace("_grad", " gradient") for which, bit in BITS.items()}
    passes = ", ".join(name for bit, name in named.items() if (kept or 0) & bit)
    assert [(row.kind, row.chosen) for row in report.tuning.layers] == [
        ("depthwise", f"ours: {passes}" if ours else "PyTorch's")
    ]
    assert not report.keeps_memory
    assert torch.equal(net(IMAGES), plain(IMAGES)) or ours
    restore_(net)
    assert [type(layer) for layer in net] == types


def test_passes_that_spill_registers_are_not_offered_and_the_report_says_so(monkeypatch):
    monkeypatch.setattr(gpu, "spills", lambda which, *_: which == "weight_grad")
    net = network()
    report, clock = tuned(monkeypatch, net)
    assert net[1].passes == ON_GPU + 3
    assert not any(passes & ON_GPU and passes & BITS["weight_grad"] for _, passes, _ in clock.seen)
    assert report.tuning.spilling == ("1, weight gradient",)
    assert "spills registers on this GPU: 1, weight gradient" in str(report)


def test_pytorchs_channels_last_is_a_contestant(monkeypatch):
    net = network()
    report, _ = tuned(monkeypatch, net, last=0.5, **dict.fromkeys(BITS, LOSE))
    assert report.tuning.kept == tune.PLAIN_LAST
    assert net[1].weight.is_contiguous(memory_format=torch.channels_last)
    assert {step.name for step in report.tuning.steps} == {tune.AS_IT_WAS, tune.PLAIN_LAST}


def test_autocast_is_measured_as_the_caller_has_it(monkeypatch):
    for dtype in (torch.bfloat16, None):
        net = network()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is not None):
            _, clock = tuned(monkeypatch, net)
        assert net[1].passes == ON_GPU + 7
        assert {seen for _, _, seen in clock.seen} == {dtype or torch.float32}


@pytest.mark.parametrize(("frozen", "passes"), [(False, {"forward"}), (True, {"forward", "input_grad"})])
def test_only_passes_that_the_model_runs_are_timed(monkeypatch, frozen, passes):
    net = network().train(frozen)
    net[1].weight.requires_grad_(not frozen)
    report, clock = tuned(monkeypatch, net)
    assert report.tuning.learns == frozen
    assert {which for which, *_ in clock.seen} == passes
    assert not frozen or net[1].passes == ON_GPU + 3


def test_without_an_example_a_model_on_a_gpu_stays_as_it_is():
    net = network()
    strides = [p.stride() for p in net.parameters()]
    report = accelerate_(net)
    assert "example_input" in str(report)
    assert [type(layer) for layer in net] == [type(layer) for layer in network()]
    assert [p.stride() for p in net.parameters()] == strides


def depthwise(kernel, *, of=nn.Conv2d, **how):
    padding = how.pop("padding", tuple(taps // 2 for taps in kernel))
    return of(8, 8, kernel, padding=padding, groups=8, **how)


EVERY = (15, 14, 13, 11)  # all passes, and all but one
GRADIENTS = (14, 12, 10)


@pytest.mark.parametrize(
    ("layer", "size", "choices"),
    [
        *((depthwise((k, k)), 56, EVERY) for k in (5, 7, 15, 31)),
        (depthwise((3, 3)), 56, GRADIENTS),  # memory decides the forward pass
        (depthwise((31, 31)), 7, GRADIENTS),  # of which PyTorch skips the padding
        (depthwise((33, 33)), 56, ()),
        (depthwise((7, 7), stride=2), 56, ()),
        (depthwise((7, 7), dtype=torch.float64), 56, ()),
        (depthwise((1, 31)), 56, EVERY),
        (depthwise((1, 31), padding=(1, 15)), 56, ()),  # the lines that are read as images have no padding above
        (depthwise((1, 4), padding=0, dtype=torch.float16), 56, ()),  # each pixel would be loaded once per tap
        (depthwise((31,), of=nn.Conv1d), 56, EVERY),
        (depthwise((3, 3, 3), of=nn.Conv3d), 16, ()),
    ],
    ids=str,
)
def test_passes_are_timed_where_the_estimate_says_that_they_may_win(layer, size, choices):
    (toggle,) = toggles(layer)
    x = torch.empty(16, 8, *[size] * len(layer.kernel_size), dtype=layer.weight.dtype).requires_grad_()
    assert pass_choices(toggle, x)[0] == choices
    layer.weight.requires_grad_(False)
    frozen, _ = pass_choices(toggle, x.detach())
    assert frozen == ((ON_GPU + 1,) if choices and choices[0] & 1 else ())


def test_what_was_measured_elsewhere_is_pytorchs(monkeypatch):
    x, weight = torch.randn(2, 8, 12, 12), torch.randn(8, 1, 9, 9)
    with Prices(dict.fromkeys(BITS, WIN)) as clock:
        for passes in (7, BY_THRESHOLDS):
            routed = DepthwiseConv2d(8, 8, 9, groups=8)
            routed.passes = passes
            routed(x)
        torch.ops.filtercov.depthwise_conv(x, weight, None, (0,) * 4, (1, 1), (1, 1))
    assert clock.seen == {("forward", BY_THRESHOLDS, torch.float32)}  # the direct call, which PyTorch computes
    monkeypatch.setattr(routing, "PRETENDED", False)
    assert routing.is_measured(x, 7)
    assert not routing.is_measured(x, ON_GPU + 7)


def test_tensors_on_a_gpu_have_the_same_checks_and_fakes():
    how, every = ((3,) * 4, (1, 1), (1, 1)), ON_GPU + 7
    with FakeTensorMode(), torch.no_grad():  # a CPU build of torch cannot record gradients there
        x, weight, bias = (
            torch.empty(shape, device="cuda", dtype=torch.float16) for shape in ((2, 8, 14, 14), (8, 1, 7, 7), (8,))
        )
        y = OPERATORS["forward"](x, weight, bias, *how, every)
        grad_x = OPERATORS["input_grad"](y, weight, *how, (14, 14), False, every)
        grad_weight = OPERATORS["weight_grad"](y, x, *how, (7, 7), every)
        with pytest.raises(KernelError):
            OPERATORS["forward"](x, weight, bias.float(), *how, every)
        assert routing.on_gpu(x)
    for result, like in ((y, x), (grad_x, x), (grad_weight, weight)):
        assert (result.device.type, result.dtype, result.shape) == ("cuda", torch.float16, like.shape)
    assert all(torch._C._dispatch_has_kernel_for_dispatch_key(o.name(), "CUDA") for o in OPERATORS.values())
