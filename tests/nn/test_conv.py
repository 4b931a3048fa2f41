"""Depthwise functions and modules in a user's hands: any layout, the same results and kinds of error as PyTorch's."""

import gc
import warnings
import weakref
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from filtercov import nn as fast
from filtercov.errors import FiltercovError
from filtercov.nn import DepthwiseConv2d, conv_operators, depthwise_conv2d, native_status, routing
from filtercov.nn.geometry import Geometry
from filtercov.nn.routing import BITS, BY_THRESHOLDS
from tests.depthwise_layers import double_by_default
from tests.nn.support import CHANNELS_LAST, CONVOLVE, called, doubles, images, last, needs_native, results

OURS = {axes: getattr(fast, f"depthwise_conv{axes}d") for axes in (1, 2, 3)}
MODULES = {axes: getattr(fast, f"DepthwiseConv{axes}d") for axes in (1, 2, 3)}
OPERATOR = "filtercov::depthwise_conv"
LEAST_WORK = routing.LEAST_WORK  # before conftest.py sets it to 0


def whole(*shape):
    return torch.randint(-4, 5, shape).float()


LAYOUTS = {
    "nchw": lambda: whole(2, 20, 12, 12),
    "channels_last": lambda: last(whole(2, 20, 12, 12)),
    "every other column of channels_last": lambda: whole(2, 12, 24, 20).permute(0, 3, 1, 2)[..., ::2],
    "every other channel of channels_last": lambda: whole(2, 12, 12, 40).permute(0, 3, 1, 2)[:, ::2],
    "every other column": lambda: whole(2, 20, 12, 24)[..., ::2],
    "channels of a wider channels_last": lambda: whole(2, 12, 12, 30).permute(0, 3, 1, 2)[:, 7:27],
    "expanded over everything": lambda: whole(1, 1, 1, 1).expand(2, 20, 12, 12),
    "one channel, channels_last": lambda: last(whole(2, 1, 12, 12)),
    "one pixel, odd strides": lambda: whole(2, 20).as_strided((2, 20, 1, 1), (20, 1, 7, 5)),
    "no image": lambda: whole(0, 20, 12, 12),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [1, 11])
def test_any_layout_gives_the_exact_result(layout, kernel):
    x = LAYOUTS[layout]()
    channels, padding = x.shape[1], kernel // 2
    tensors = x, whole(channels, 1, kernel, kernel), whole(channels)
    plain = partial(functional.conv2d, padding=padding, groups=channels)
    for grad_y in (whole(*x.shape), last(whole(*x.shape)), torch.ones(()).expand(x.shape)):
        ours = results(partial(depthwise_conv2d, padding=padding), *tensors, grad_y=grad_y)
        exact = results(plain, *doubles(tensors), grad_y=grad_y.double())
        assert all(torch.equal(a.double(), b) for a, b in zip(ours, exact, strict=True))


ARGUMENTS = [
    {"padding": "same"},
    {"padding": "valid"},
    {"padding": (2, 0)},
    {"stride": 2, "padding": 1},
    {"stride": (1, 2)},
    {"dilation": (1, 3), "padding": "same"},
    {"stride": (np.int64(1), 2), "padding": [np.int64(2), np.int64(0)], "dilation": (1, np.int16(2))},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_every_argument_means_what_it_means_to_conv2d(arguments):
    weight, bias = whole(20, 1, 4, 5), whole(20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch tells that it copies for an even kernel
        for x in (whole(2, 20, 13, 12), whole(20, 13, 12)):
            theirs = functional.conv2d(x, weight, bias, groups=20, **arguments)
            assert torch.equal(depthwise_conv2d(x, weight, bias, **arguments), theirs)


def test_other_dtypes_devices_and_groupings_are_pytorchs():
    for dtype in (torch.float64, torch.bfloat16):
        x, weight = whole(2, 20, 12, 12).to(dtype), whole(20, 1, 5, 5).to(dtype)
        assert torch.equal(depthwise_conv2d(x, weight), functional.conv2d(x, weight, groups=20))
    meta = torch.empty(2, 20, 12, 12, device="meta"), torch.empty(20, 1, 5, 5, device="meta")
    assert depthwise_conv2d(*meta).shape == (2, 20, 8, 8)
    x, weight = whole(2, 6, 9, 9), whole(18, 1, 5, 5)
    assert torch.equal(depthwise_conv2d(x, weight), functional.conv2d(x, weight, groups=6))


X, WEIGHT, BIAS = torch.zeros(2, 8, 9, 9), torch.zeros(8, 1, 3, 3), torch.zeros(8)
BAD = {
    "x no tensor": ([1.0], WEIGHT, BIAS),
    "x two-dimensional": (X[0, 0], WEIGHT, BIAS),
    "bias too short": (X, WEIGHT, BIAS[:7]),
    "bias of another dtype": (X, WEIGHT, BIAS.double()),
    "filter larger than the image": (X, torch.zeros(8, 1, 12, 3), BIAS),
    "negative padding": (X, WEIGHT, BIAS, 1, -1),
    "padding misspelt": (X, WEIGHT, BIAS, 1, "sane"),
    "padding a float": (X, WEIGHT, BIAS, 1, 1.5),
    "same with a stride": (X, WEIGHT, BIAS, 2, "same"),
    "stride zero": (X, WEIGHT, BIAS, 0),
}


@pytest.mark.parametrize("passes", [BY_THRESHOLDS, 7])
@pytest.mark.parametrize("case", BAD)
def test_mistakes_raise_the_type_conv2d_raises(case, passes):
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        functional.conv2d(*BAD[case], groups=8)
    kind = TypeError if isinstance(theirs.value, TypeError) else RuntimeError
    with pytest.raises(kind):
        depthwise_conv2d(*BAD[case], passes=passes)


@pytest.mark.parametrize("how", [{"padding": 2}, {"padding": 4, "dilation": 2}, {"stride": 2}], ids=str)
@pytest.mark.parametrize(("axes", "mode"), [(1, "reflect"), (2, "zeros"), (2, "reflect"), (3, "circular")])
def test_modules_are_drop_ins(axes, mode, how):
    ours_of, arguments = MODULES[axes], how | {"groups": 20, "bias": mode != "circular", "padding_mode": mode}
    ours, theirs = ours_of(20, 20, 5, **arguments), getattr(nn, f"Conv{axes}d")(20, 20, 5, **arguments)
    theirs.load_state_dict(ours.state_dict())
    assert isinstance(ours, type(theirs))
    x, found = torch.randn(2, 20, *[9] * axes).requires_grad_(), []
    for layer in (ours, theirs):
        y = layer(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-3)
    with pytest.raises(FiltercovError, match="groups=8"):
        ours_of(8, 8, 3)


# Frozen filters.


@pytest.mark.parametrize("kernel", [3, 11])
def test_a_frozen_filter_costs_no_weight_gradient_and_keeps_no_input_alive(kernel):
    layer = DepthwiseConv2d(16, 16, kernel, padding="same", groups=16)
    source, found = images(2, 16, 9, 9).requires_grad_(), []
    for frozen in (False, True):
        layer.weight.requires_grad_(not frozen)
        x = source * 1
        alive = weakref.ref(x)
        y = layer(x)
        del x
        gc.collect()
        assert (alive() is None) is frozen
        names = called(lambda: found.append(torch.autograd.grad(y.square().sum(), (source, layer.bias))))  # noqa: B023
        assert not (frozen and "filtercov::depthwise_conv_weight_grad" in names)
    assert "filtercov::channel_sum" in names
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-5)


# Which passes run natively.


def run(function):
    """Return the names of PyTorch's operators that run, also inside operators of ours."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    return [event.name for event in profile.events()]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("chosen", range(BY_THRESHOLDS, 8))
def test_any_choice_of_passes_runs_what_it_says_and_computes_what_pytorch_does(chosen, stride):
    wide = whole(2, 40, 10, 9) if chosen % 2 else last(whole(2, 40, 10, 9))
    weight, found = whole(20, 1, 3, 5), []

    def step(convolve, **more):
        part = lambda x, *rest: convolve(x[:, 7:27], *rest, stride, (1, 2), **more)  # noqa: E731
        found.append(results(part, wide, weight, torch.arange(20.0)))

    step(functional.conv2d, groups=20)
    names = run(lambda: step(depthwise_conv2d, passes=chosen))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    if chosen != BY_THRESHOLDS and native_status().available:
        assert names.count("aten::convolution") == (0 if chosen & BITS["forward"] else 1)
        gradients = sum(not chosen & BITS[which] for which in ("input_grad", "weight_grad"))
        assert names.count("aten::convolution_backward") == gradients


PLANES = {k * k - less: (k - less, k + less) for k in (3, 5, 7, 9, 11, 15) for less in (0, 1)} | {10: (2, 5)}
KERNELS = {  # with so many taps
    "line": lambda taps: (taps,),
    "band": lambda taps: (1, taps),
    "volume": lambda taps: {26: (1, 2, 13), 27: (3, 3, 3)}[taps],
}
STEPS = {"strided plane": {"stride": 2}, "dilated plane": {"dilation": 2}}


def native_wins(which, kernel, *, channels_last=True, stride=1, dilation=1, channels=16, dtype=torch.float32):
    axes = len(kernel)
    geometry = Geometry((20,) * 2 * axes, (stride,) * axes, (dilation,) * axes)
    image = torch.empty(1, channels, *[20] * axes, dtype=dtype)
    return routing.native_wins(which, image, kernel, geometry, channels_last=channels_last)


@needs_native
@pytest.mark.parametrize("kind", routing.LEAST_TAPS)
def test_thresholds_depend_on_the_pass_the_layout_and_the_kind_of_convolution(kind):
    kernel_of, steps = KERNELS.get(kind, PLANES.get), STEPS.get(kind, {})
    for which, by_layout in routing.LEAST_TAPS[kind].items():
        for channels_last, taps in zip((True, False), by_layout, strict=True):
            wins = [native_wins(which, kernel_of(n), channels_last=channels_last, **steps) for n in (taps - 1, taps)]
            assert wins == [False, True], (which, channels_last)


@needs_native
def test_kernels_need_channels_a_dtype_and_a_row_of_taps():
    large = partial(native_wins, kernel=(9, 9))
    assert [large("forward", channels=channels) for channels in (4, 5)] == [False, True]
    assert not large("forward", dtype=torch.float64)
    assert not large("forward", stride=2, dilation=2)  # along one axis
    column = partial(native_wins, "weight_grad", (11, 1))
    assert (column(), column(channels_last=False)) == (True, False)


@pytest.mark.parametrize(
    ("kernel", "side", "how", "to_operator"),
    [
        (3, 9, {}, False),
        (3, 9, {"trained": False}, True),
        (5, 9, {}, True),
        (3, 9, {"trained": False, "stride": 2}, False),
        (5, 9, {"stride": 2}, True),
        (9, 9, {"work": LEAST_WORK}, False),
        (9, 64, {"work": LEAST_WORK}, True),
    ],
)
def test_small_images_and_filters_without_a_native_pass_are_spared_the_cost_of_a_call(
    kernel, side, how, to_operator, monkeypatch
):
    monkeypatch.setattr(routing, "LEAST_WORK", how.get("work", 0))
    layer = DepthwiseConv2d(8, 8, kernel, stride=how.get("stride", 1), groups=8)
    layer.weight.requires_grad_(how.get("trained", True))
    assert (OPERATOR in called(layer, torch.randn(1, 8, side, side))) is to_operator


# Filters of one tap multiply.


@pytest.mark.parametrize(("axes", "chunk"), [(1, 1), (2, 200), (3, 2**20)])
def test_filters_of_one_tap_give_pytorchs_values_and_gradients(axes, chunk, monkeypatch):
    monkeypatch.setattr(conv_operators, "_CHUNK", chunk)
    given = torch.randn(5, 7, *(9, 4, 3)[:axes]), torch.randn(7, 1, *[1] * axes), torch.randn(7)
    wanted = results(partial(CONVOLVE[axes], groups=7), *doubles(given))
    for ours, theirs in zip(results(OURS[axes], *given), wanted, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("batch", "threads", "memory_format", "multiplied"),
    [
        (2, 1, CHANNELS_LAST, True),
        (16, 1, CHANNELS_LAST, False),
        (2, 2, CHANNELS_LAST, False),
        (16, 2, torch.contiguous_format, True),
    ],
)
def test_filters_of_one_tap_multiply_unless_pytorch_goes_pixel_by_pixel(
    batch, threads, memory_format, multiplied, monkeypatch
):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    x = torch.randn(batch, 8, 6, 6).to(memory_format=memory_format).requires_grad_()
    layer = DepthwiseConv2d(8, 8, 1, groups=8)
    names = run(lambda: layer(x).square().sum().backward())
    assert any("conv2d" in name or "aten::convolution" in name for name in names) is not multiplied
    assert all(tensor.is_contiguous(memory_format=memory_format) for tensor in (layer(x), x.grad))


# What people put around it.


def under_autocast(convolve, x, weight):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = convolve(x, weight)
    assert y.dtype == torch.bfloat16
    return y.float()


MODES = {
    "autocast": lambda convolve, x, weight: results(partial(under_autocast, convolve), x, weight),
    "vmap of grad": lambda convolve, x, weight: torch.func.vmap(
        torch.func.grad(lambda weight, x: convolve(x, weight).square().sum()), (None, 0)
    )(weight, x[:, None]),
    "jvp": lambda convolve, x, weight: torch.func.jvp(partial(convolve, x), (weight,), (weight,))[1],
}


@pytest.mark.parametrize("mode", MODES)
def test_autocast_transforms_and_forward_mode_fall_back(mode):
    functions = partial(depthwise_conv2d, padding=5), partial(functional.conv2d, padding=5, groups=8)
    given = torch.randn(5, 8, 9, 9), torch.randn(8, 1, 11, 11)
    torch.testing.assert_close(*(MODES[mode](function, *given) for function in functions), rtol=1e-4, atol=1e-4)


def test_distributed_data_parallel_trains_it_without_a_complaint(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        layer, x = DepthwiseConv2d(8, 8, 9, padding=4, groups=8).to(memory_format=CHANNELS_LAST), images(2, 8, 9, 9)
        (wanted,) = torch.autograd.grad(layer(x).square().sum(), layer.weight)
        assert wanted.stride() == layer.weight.stride()  # of several spellings, its buckets want the parameter's
        DistributedDataParallel(layer)(x).square().sum().backward()
        assert torch.equal(layer.weight.grad, wanted)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(("axes", "kernel", "stride"), [(1, 5, 1), (2, 5, 2), (2, 1, 1), (3, 5, 1)])
def test_the_next_layer_may_change_an_output_in_place(axes, kernel, stride):
    layer = MODULES[axes](8, 8, kernel, stride, groups=8)
    y = layer(images(4, 8, *[12] * axes))
    y.add_(1).sum().backward()
    assert torch.equal(layer.bias.grad, torch.full((8,), y.numel() / 8))


def test_default_dtype_and_device_of_the_caller_do_not_leak_in():
    given, convolve = (images(2, 16, 9, 9), torch.randn(16, 1, 11, 11)), partial(depthwise_conv2d, padding=5)
    wanted = results(convolve, *given)
    with double_by_default(), torch.device("meta"):
        assert all(map(torch.equal, results(convolve, *given), wanted))
