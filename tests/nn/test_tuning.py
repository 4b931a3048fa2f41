"""`accelerate_` with an example: it computes what it did, changes nothing but what it reports, and never keeps a loser.

What is kept depends on the machine and the moment, so the tests hold whatever that is.
"""

import copy
import io
import itertools
import pickle
import random
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from filtercov.errors import ConfigError, ModelError
from filtercov.filters import freeze_
from filtercov.nn import DepthwiseConv2d, FusedSequential, accelerate_, depthwise_conv2d, native_status, restore_
from filtercov.nn.calls import Lying, Recorder
from filtercov.nn.pointwise import PointwiseConv2d
from filtercov.nn.routing import BITS, BY_THRESHOLDS
from filtercov.nn.steps import Step, kept, tensors_of
from filtercov.nn.strided_pointwise import StridedPointwiseConv2d
from filtercov.nn.swaps import Part, toggles
from filtercov.nn.timing import LEAST_TURNS, clearly_faster, race, ratio
from filtercov.nn.tuning import AS_IT_WAS, Tuner
from tests.peers import import_peer

QUICK = 1.5  # seconds of timing: enough to change something, on some days


def timm_network(name: str, **settings: Any) -> nn.Module:
    net: nn.Module = import_peer("timm").create_model(name, num_classes=5, drop_rate=0.0, **settings)
    return net


def passes(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the output, and the gradients of the parameters that are trained."""
    output = net(x)
    trained = [p for p in net.parameters() if p.requires_grad]
    return output, list(torch.autograd.grad(output.square().mean(), trained, allow_unused=True))


def snapshot(net: nn.Module) -> list[object]:
    """Return all that must not change, comparable bit for bit."""
    tensors = [
        (name, tensor.detach().numpy().tobytes(), tensor.requires_grad)
        for name, tensor in itertools.chain(net.named_parameters(), net.named_buffers())
    ]
    modes = [module.training for module in net.modules()]
    grads = [None if p.grad is None else (id(p.grad), p.grad.numpy().tobytes()) for p in net.parameters()]
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules()]
    objects = [id(tensor) for tensor in itertools.chain(net.parameters(), net.buffers())]
    return [tensors, modes, grads, hooks, objects, torch.get_rng_state().tolist()]


def shapes_in_memory(net: nn.Module) -> list[object]:
    """Return what `restore_` brings back: classes, attributes and strides."""
    return [
        (type(m), sorted(vars(m)), [t.stride() for t in itertools.chain(m.parameters(False), m.buffers(False))])
        for m in net.modules()
    ]


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "inception_next_atto", "convnext_atto"])
def test_a_tuned_network_computes_what_it_did(name: str, frozen: bool) -> None:
    net, x = timm_network(name), torch.randn(4, 3, 32, 32)
    if frozen:
        freeze_(net)
    plain = copy.deepcopy(net)
    net(x).sum().backward()  # so that there are gradients to keep
    net.load_state_dict(plain.state_dict())
    before, memory = snapshot(net), shapes_in_memory(net)
    report = accelerate_(net, example_input=x, seconds=QUICK)
    assert snapshot(net) == before
    tuning = report.tuning
    assert tuning is not None
    layers = {name for name, m in plain.named_modules() if isinstance(m, nn.Conv2d) and m.groups > 1}
    assert {row.name for row in tuning.layers if row.kind == "depthwise"} == layers
    assert all(row.shape is not None for row in tuning.layers)
    assert all(t is None or t > 0 for row in tuning.layers for t in (row.before, row.after))
    assert tuning.learns
    winner = tuning.step(tuning.kept)
    assert winner.best <= min(winner.before)
    assert {n for n in layers if type(net.get_submodule(n)) is DepthwiseConv2d} == set(report.swapped)
    assert str(report).count("\n") >= len(tuning.layers) + len(tuning.steps)
    net.zero_grad()
    (ours, our_gradients), (theirs, their_gradients) = passes(net, x), passes(plain, x)
    assert (ours - theirs).norm() <= 1e-3 * theirs.norm()
    for a, b in zip(our_gradients, their_gradients, strict=True):
        assert a is b is None or (a - b).norm() <= 2e-2 * b.norm() + 1e-5
    restore_(net)
    assert shapes_in_memory(net) == memory


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "efficientnet_b0"])
def test_a_tuned_network_of_torchvision_computes_what_it_did(name: str) -> None:
    net: nn.Module = getattr(import_peer("torchvision").models, name)(weights=None, num_classes=5)
    for layer in net.modules():
        if isinstance(layer, nn.Dropout) or type(layer).__name__ == "StochasticDepth":
            layer.p = 0.0
    plain, x = copy.deepcopy(net), torch.randn(4, 3, 32, 32)
    memory = shapes_in_memory(net)
    report = accelerate_(net, example_input=x, seconds=QUICK)
    assert report.tuning is not None
    assert {"depthwise", "pair"} <= {row.kind for row in report.tuning.layers}
    for fused in (False, True):
        if fused:
            accelerate_(net)  # all of it, whatever was measured
        (ours, our_gradients), (theirs, their_gradients) = passes(net, x), passes(plain, x)
        assert (ours - theirs).norm() <= 1e-3 * theirs.norm()
        largest = max(float(b.norm()) for b in their_gradients)  # some are nothing but what rounding leaves of a zero
        for a, b in zip(our_gradients, their_gradients, strict=True):
            assert (a - b).norm() <= 2e-2 * b.norm() + 1e-3 * largest
    restore_(net)
    assert shapes_in_memory(net) == memory


def test_a_network_that_learns_nothing_is_timed_forward() -> None:
    net = nn.Sequential(nn.Conv2d(8, 8, 9, padding=4, groups=8)).eval()
    report = accelerate_(net, example_input=torch.randn(2, 8, 12, 12), seconds=QUICK)
    assert report.tuning is not None
    assert not report.tuning.learns
    assert "forward pass" in str(report)


class Branches(nn.Module):
    """Takes two images by name, and returns a dict of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(24, 24, 7, padding=3, groups=24)
        self.unused = nn.Conv2d(24, 24, 5, groups=24)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, list[Tensor]]:
        return {"out": [self.mix(left), self.mix(right).sum()]}


@pytest.mark.parametrize("as_dict", [False, True], ids=["tuple", "dict"])
def test_examples_are_whatever_the_forward_takes(as_dict: bool) -> None:
    net, images = Branches(), (torch.randn(2, 24, 9, 9), torch.randn(2, 24, 11, 11))
    example = dict(zip(("left", "right"), images, strict=True)) if as_dict else images
    report = accelerate_(net, example_input=example, seconds=QUICK)
    assert report.tuning is not None
    rows = {row.name: row for row in report.tuning.layers}
    assert rows["mix"].shape == (2, 24, 9, 9)
    assert rows["unused"].shape is None
    assert rows["unused"].before is None
    assert "not reached" in str(report)


def test_an_example_that_does_not_fit_leaves_the_model_alone() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 1, stride=2), nn.Conv2d(8, 8, 9, groups=8), nn.BatchNorm2d(8))
    example = torch.randn(2, 4, 12, 12).contiguous(memory_format=torch.channels_last)
    for _ in range(2):
        before, memory = snapshot(net), shapes_in_memory(net)
        with pytest.raises(ModelError, match=r"example_input: running the model on it failed \(.*\); pass what its"):
            accelerate_(net, example_input=example)
        assert snapshot(net) == before
        assert shapes_in_memory(net) == memory
        accelerate_(net)  # and again, with layers of ours, in channels_last


@pytest.mark.parametrize("seconds", [-1, float("nan"), "60"])
def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="seconds must be a number of at least 0"):
        accelerate_(nn.Conv2d(8, 8, 3, groups=8), example_input=torch.randn(1, 8, 9, 9), seconds=seconds)


def test_without_time_the_model_stays_as_it_was() -> None:
    net = nn.Sequential(nn.Conv2d(16, 16, 9, padding=4, groups=16), nn.GELU(), nn.BatchNorm2d(16))
    memory = shapes_in_memory(net)
    report = accelerate_(net, example_input=torch.randn(2, 16, 12, 12), seconds=0)
    assert report.tuning is not None
    assert report.tuning.kept == AS_IT_WAS
    assert report.tuning.ended_early
    assert shapes_in_memory(net) == memory
    assert "the time was up" in str(report)


def test_an_accelerated_model_is_compared_with_what_it_was_before() -> None:
    net = nn.Sequential(nn.Conv2d(16, 16, 9, padding=4, groups=16))
    memory = shapes_in_memory(net)
    accelerate_(net)
    report = accelerate_(net, example_input=torch.randn(2, 16, 12, 12), seconds=0)
    assert report.tuning is not None
    assert report.tuning.kept == AS_IT_WAS
    assert shapes_in_memory(net) == memory


@pytest.mark.parametrize("channels_last", [False, True])
def test_endangered_layers_are_safe_wherever_memory_is_channels_last(channels_last: bool) -> None:
    net = nn.Sequential(nn.Conv2d(3, 32, 1, stride=2), nn.Conv2d(32, 32, 9, padding=4, groups=32))
    x = torch.randn(4, 3, 24, 24)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    plain = copy.deepcopy(net)
    report = accelerate_(net, example_input=x, seconds=QUICK)
    assert report.tuning is not None
    moved = "channels_last" in report.tuning.kept
    assert type(net[0]) is (StridedPointwiseConv2d if moved or channels_last else nn.Conv2d)
    assert torch.allclose(net(x), plain(x.contiguous()), atol=1e-5)


# Every choice of passes computes the same.


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("chosen", range(BY_THRESHOLDS, sum(BITS.values()) + 1))
def test_any_choice_of_passes_computes_what_pytorch_does(chosen: int, channels_last: bool, stride: int) -> None:
    whole = torch.randint(-3, 4, (2, 40, 10, 9)).float()  # sums of small integers are exact
    if channels_last:
        whole = whole.contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randint(-3, 4, (20, 1, 3, 5)).float(), torch.arange(20.0)
    results = []
    for convolve in (
        lambda *tensors: depthwise_conv2d(*tensors, stride, (1, 2), passes=chosen),
        lambda *tensors: functional.conv2d(*tensors, stride, (1, 2), 1, 20),
    ):
        leaves = [tensor.clone().requires_grad_() for tensor in (whole, weight, bias)]
        y = convolve(leaves[0][:, 7:27], *leaves[1:])
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.skipif(not native_status().available, reason="there is no second choice without kernels")
@pytest.mark.parametrize("chosen", range(sum(BITS.values()) + 1))
def test_the_choice_decides_what_runs(chosen: int) -> None:
    x, weight = torch.randn(2, 16, 12, 12, requires_grad=True), torch.randn(16, 1, 9, 9, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        y = depthwise_conv2d(x, weight, padding=4, passes=chosen)
        torch.autograd.grad(y.square().sum(), (x, weight))
    called = [event.name for event in profile.events()]
    assert called.count("aten::convolution") == (0 if chosen & BITS["forward"] else 1)
    gradients = sum(not chosen & BITS[which] for which in ("input_grad", "weight_grad"))
    assert called.count("aten::convolution_backward") == gradients


def test_passes_that_do_not_exist_are_refused() -> None:
    with pytest.raises(RuntimeError, match="passes must be a sum of"):
        depthwise_conv2d(torch.randn(2, 8, 9, 9), torch.randn(8, 1, 3, 3), passes=8)


def test_copies_keep_the_choice_and_state_dicts_do_not_know_it() -> None:
    net = nn.Sequential(nn.Conv2d(8, 8, 9, groups=8))
    keys = list(net.state_dict())
    toggle = toggles(net)[0]
    toggle.set_(toggle.ours._replace(passes=5))
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(file, weights_only=False)):
        assert type(other[0]) is DepthwiseConv2d
        assert other[0].passes == 5
    assert list(net.state_dict()) == keys
    accelerate_(net)
    assert net[0].passes == BY_THRESHOLDS


# What decides.


def test_what_is_kept_is_never_slower_in_its_own_measurements() -> None:
    generator = random.Random(0)
    for _ in range(500):
        turns = generator.randint(1, 12)
        levels = [generator.choice([0.8, 0.95, 1.0, 1.0, 1.2]) for _ in range(5)]
        noise = generator.choice([0.0, 0.02, 0.3])
        times = {str(i): [t + generator.expovariate(1) * noise for _ in range(turns)] for i, t in enumerate(levels)}
        winner = kept(times, plain={"0", "1"})
        assert winner == "0" or 1.01 * min(times[winner]) < min(times["0"])
        assert (
            winner in ("0", "1") or not clearly_faster(times["0"], times["1"]) or min(times[winner]) < min(times["1"])
        )
        assert turns >= 5 or winner == "0" or (turns >= 3 and 1.1 * max(times[winner]) <= min(times["0"]))
        if noise == 0 and turns >= 5:  # the fastest, but PyTorch's where ours is as fast
            assert levels[int(winner)] == min(levels) if min(levels) < levels[0] else winner == "0"
            assert winner in ("0", "1") or levels[int(winner)] < min(levels[:2])


def test_noise_alone_replaces_nothing_and_a_clear_gain_does() -> None:
    generator = random.Random(0)

    def turns(best: float) -> list[float]:
        return [best + generator.expovariate(1) * 0.1 for _ in range(20)]

    wrong = sum(clearly_faster(turns(1.0), turns(1.0)) for _ in range(1000))
    slower = sum(clearly_faster(turns(1.0), turns(1.03)) for _ in range(1000))
    right = sum(clearly_faster(turns(1.0), turns(0.9)) for _ in range(1000))
    assert wrong <= 50
    assert slower == 0
    assert right >= 990


@pytest.mark.parametrize(("turns", "faster"), [(2, False), (3, True), (4, True)])
def test_few_turns_decide_what_is_much_faster(turns: int, faster: bool) -> None:
    assert clearly_faster([1.5] * turns, [1.0] * turns) is faster
    assert not clearly_faster([1.05] * turns, [1.0] * turns)
    assert not clearly_faster([1.5] * turns, [1.0] * (turns - 1) + [1.45])
    generator = random.Random(0)
    noisy = [[1 + generator.expovariate(8) for _ in range(turns)] for _ in range(4000)]
    assert sum(clearly_faster(noisy[i], noisy[i + 1]) for i in range(0, 4000, 2)) < 2000 * 0.01


def test_turns_alternate_and_laggards_leave() -> None:
    order: list[str] = []
    work = {"slow": 400_000, "quick": 1000}

    def run(name: str) -> None:
        sum(range(work[name]))

    times = race(
        {name: lambda name=name: run(name) for name in work}, seconds=60, turns=12, before=order.append, laggard=2
    )
    assert order[:4] == ["slow", "quick", "quick", "slow"]
    assert len(times["slow"]) < len(times["quick"]) == 12
    assert ratio(times["slow"], times["quick"]).median > 2


@pytest.mark.parametrize(("first", "counted"), [((1.2, 0.8), 3), ((1.2, 1.1), 4)])
def test_first_turns_count_together_or_not_at_all(first: tuple[float, float], counted: int) -> None:
    now, seconds = 0.0, {"warms up": [first[0], 0.5, 0.6, 0.7], "does not": [first[1], 0.8, 0.9, 1.0]}

    def wait(name: str) -> None:
        nonlocal now
        now += seconds[name].pop(0)

    contestants = {name: lambda name=name: wait(name) for name in seconds}
    expected = {name: pytest.approx(turns[-counted:]) for name, turns in seconds.items()}
    assert race(contestants, seconds=60, turns=counted, clock=lambda: now) == expected


def test_a_race_that_decides_nothing_yet_goes_on_for_a_while() -> None:
    contestants = dict.fromkeys("ab", lambda: time.sleep(0.01))
    turns = [
        {len(seconds) for seconds in race(contestants, seconds=0.0, turns=9, grace=grace).values()}
        for grace in (0.0, 60.0)
    ]
    assert turns == [{1}, {LEAST_TURNS}]


def test_a_slice_of_a_larger_image_is_timed_as_one() -> None:
    class Slices(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Conv2d(8, 8, 3, padding=1, groups=8)

        def forward(self, x: Tensor) -> Tensor:
            rest, part = x.split([12, 8], dim=1)
            return torch.cat([rest, self.mix(part)], dim=1)

    net, recorder = Slices(), Recorder()
    with recorder.watching([Part("mix", (net.mix,))]):
        Step(net, torch.randn(2, 20, 6, 6).requires_grad_())()
    (call,) = recorder.calls["mix"]
    assert call.x == Lying((2, 8, 6, 6), (20 * 36, 36, 6, 1), torch.float32)
    assert call.needs_grad
    assert call.grad is not None
    assert call.grad.strides[0] == 20 * 36
    again = call.x.filled()
    assert (again.shape, again.stride()) == (call.x.shape, call.x.strides)
    assert not net.mix._forward_hooks


def test_a_step_adds_to_no_gradient_and_calls_no_accumulation_hook() -> None:
    net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8))
    called = []
    net[0].weight.register_post_accumulate_grad_hook(called.append)
    Step(net, torch.randn(2, 8, 6, 6))()
    assert called == []
    assert net[0].weight.grad is None


def test_the_tensors_of_nested_outputs_are_found() -> None:
    one, two = torch.ones(1), torch.ones(2)
    assert [len(t) for t in tensors_of({"a": (one, [two]), "b": torch.ones(3, dtype=torch.int64), "c": None})] == [1, 2]


@pytest.mark.skipif(not native_status().available, reason="pairs are fused where there are kernels")
def test_every_candidate_of_a_fused_network_computes_the_same() -> None:
    net = nn.Sequential(nn.Conv2d(8, 8, 9, padding=4, groups=8), nn.GELU(), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1))
    x = torch.randn(4, 8, 12, 12)
    found = toggles(net)
    assert [toggle.ours.kind for toggle in found] == [FusedSequential, DepthwiseConv2d, PointwiseConv2d]
    tuner = Tuner(net, x, found, [], seconds=600)
    wanted = net(x)
    layers = {last: tuner._tune_layers(channels_last=last) for last in (False, True)}
    assert all(seconds for measured in layers.values() for seconds in measured.seconds)
    candidates = tuner._candidates(layers)
    assert next(iter(candidates)) == AS_IT_WAS
    for candidate in candidates.values():
        tuner._set(candidate)
        assert torch.allclose(net(x), wanted, atol=1e-5)
