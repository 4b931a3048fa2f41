"""`depthwise_conv2d` and `DepthwiseConv2d` in a user's hands: any layout, same results and errors as PyTorch's."""

import gc
import warnings
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from filtercov.errors import FiltercovError
from filtercov.nn import DepthwiseConv2d, depthwise_conv2d, routing
from tests.nn.operator_calls import operator_calls

LEAST_WORK = routing.LEAST_WORK  # before conftest.py puts it out of force


def whole(*shape: int) -> Tensor:
    return torch.randint(-4, 5, shape).float()


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "nchw": lambda: whole(2, 20, 12, 12),
    "channels_last": lambda: whole(2, 20, 12, 12).to(memory_format=torch.channels_last),
    "transposed": lambda: whole(2, 20, 12, 12).transpose(2, 3),
    "every other column of channels_last": lambda: whole(2, 12, 24, 20).permute(0, 3, 1, 2)[..., ::2],
    "channels of a wider channels_last": lambda: whole(2, 12, 12, 30).permute(0, 3, 1, 2)[:, 7:27],
    "offset into a buffer": lambda: whole(2 * 20 * 144 + 3)[3:].reshape(2, 20, 12, 12),
    "expanded over the batch": lambda: whole(1, 20, 12, 12).expand(2, -1, -1, -1),
    "expanded over everything": lambda: whole(1, 1, 1, 1).expand(2, 20, 12, 12),
    "one channel, channels_last": lambda: whole(2, 1, 12, 12).to(memory_format=torch.channels_last),
    "one pixel, channels_last": lambda: whole(2, 20, 1, 1).to(memory_format=torch.channels_last),
    "one pixel, odd strides": lambda: whole(2, 20).as_strided((2, 20, 1, 1), (20, 1, 7, 5)),
    "no image": lambda: whole(0, 20, 12, 12),
}


@pytest.mark.parametrize("kernel", [1, 3, 11])
@pytest.mark.parametrize("grad_layout", ["nchw", "channels_last", "expanded"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_gives_the_exact_result(layout: str, grad_layout: str, kernel: int) -> None:
    x = LAYOUTS[layout]()
    channels = x.shape[1]
    weight, bias = whole(channels, 1, kernel, kernel), whole(channels)
    grad_y = {
        "nchw": whole(*x.shape),
        "channels_last": whole(*x.shape).to(memory_format=torch.channels_last),
        "expanded": torch.ones(()).expand(x.shape),
    }[grad_layout]
    results = []
    for dtype, convolve in ((torch.float32, depthwise_conv2d), (torch.float64, None)):
        inputs = [
            t.to(dtype).requires_grad_() if dtype != t.dtype else t.detach().requires_grad_() for t in (x, weight, bias)
        ]
        if convolve is None:
            y = functional.conv2d(*inputs, padding=kernel // 2, groups=channels)
        else:
            y = convolve(*inputs, padding=kernel // 2)
        results.append((y, *torch.autograd.grad(y, inputs, grad_y.to(dtype))))
    for ours, exact in zip(*results, strict=True):
        assert torch.equal(ours.double(), exact)


ARGUMENTS = [
    {"padding": "same"},
    {"padding": "valid"},
    {"padding": (2, 0)},
    {"padding": 12},
    {"stride": 2, "padding": 1},
    {"stride": (1, 2)},
    {"dilation": 2, "padding": 3},
    {"dilation": (1, 3), "padding": "same"},
    {"stride": np.int64(2), "padding": np.int32(1), "dilation": np.uint8(1)},
    {"stride": (np.int64(1), 2), "padding": [np.int64(2), np.int64(0)], "dilation": (1, np.int16(2))},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("dims", [3, 4])
def test_every_argument_means_what_it_means_to_conv2d(arguments: dict[str, object], dims: int) -> None:
    x, weight, bias = whole(*(2, 20, 13, 12)[4 - dims :]), whole(20, 1, 4, 5), whole(20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch tells that it copies for an even kernel
        theirs = functional.conv2d(x, weight, bias, groups=20, **arguments)  # type: ignore[arg-type]
        ours = depthwise_conv2d(x, weight, bias, **arguments)  # type: ignore[arg-type]
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_are_pytorchs(dtype: torch.dtype) -> None:
    x, weight, bias = whole(2, 20, 12, 12).to(dtype), whole(20, 1, 5, 5).to(dtype), whole(20).to(dtype)
    assert torch.equal(depthwise_conv2d(x, weight, bias), functional.conv2d(x, weight, bias, groups=20))


def test_other_devices_are_pytorchs() -> None:
    y = depthwise_conv2d(torch.empty(2, 20, 12, 12, device="meta"), torch.empty(20, 1, 5, 5, device="meta"))
    assert y.shape == (2, 20, 8, 8)


def test_several_filters_per_channel_are_pytorchs() -> None:
    x, weight = whole(2, 6, 9, 9), whole(18, 1, 5, 5)
    assert torch.equal(depthwise_conv2d(x, weight), functional.conv2d(x, weight, groups=6))


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_module_is_a_drop_in_for_conv2d(mode: str, bias: bool) -> None:
    arguments = {"padding": 2, "groups": 20, "bias": bias, "padding_mode": mode}
    ours, theirs = DepthwiseConv2d(20, 20, 5, **arguments), nn.Conv2d(20, 20, 5, **arguments)  # type: ignore[arg-type]
    theirs.load_state_dict(ours.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert isinstance(ours, nn.Conv2d)
    x = torch.randn(2, 20, 9, 9)
    assert torch.allclose(ours(x), theirs(x), atol=1e-6)


def test_the_module_refuses_what_is_not_depthwise() -> None:
    with pytest.raises(FiltercovError, match="groups=8"):
        DepthwiseConv2d(8, 8, 3)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("kernel", [3, 11])
def test_a_frozen_filter_does_not_keep_its_input_alive(kernel: int, layout: torch.memory_format) -> None:
    layer = DepthwiseConv2d(16, 16, kernel, padding="same", groups=16)
    source = torch.randn(2, 16, 9, 9).to(memory_format=layout).requires_grad_()

    def lives(frozen: bool) -> bool:
        layer.weight.requires_grad_(not frozen)
        x = source * 1
        alive = weakref.ref(x)
        y = layer(x)
        del x
        gc.collect()
        kept = alive() is not None
        y.sum().backward()
        return kept

    assert lives(frozen=False)
    assert not lives(frozen=True)


@pytest.mark.parametrize("kernel", [3, 5, 11])
def test_a_frozen_filter_costs_no_weight_gradient_and_the_rest_is_unchanged(kernel: int) -> None:
    layer = DepthwiseConv2d(16, 16, kernel, padding="same", groups=16)
    x = torch.randn(2, 16, 9, 9).to(memory_format=torch.channels_last).requires_grad_()
    layer(x).square().sum().backward()
    wanted = x.grad, layer.bias.grad
    x.grad = layer.bias.grad = layer.weight.grad = None
    layer.weight.requires_grad_(False)
    with torch.profiler.profile() as profile:
        layer(x).square().sum().backward()
    assert layer.weight.grad is None
    assert torch.equal(x.grad, wanted[0])
    if kernel > 3:  # trained 3x3 filters are PyTorch's, and so is the order in which it adds
        assert torch.equal(layer.bias.grad, wanted[1])
    torch.testing.assert_close(layer.bias.grad, wanted[1], rtol=1e-5, atol=1e-5)
    called = {event.key for event in profile.key_averages()}
    assert "filtercov::channel_sum" in called
    assert "filtercov::depthwise_conv_weight_grad" not in called


def test_a_frozen_filter_trains_its_bias_where_pytorch_convolves() -> None:
    layer, plain = (kind(8, 8, 3, stride=2, groups=8) for kind in (DepthwiseConv2d, nn.Conv2d))
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 8, 9, 9)
    for module in (layer, plain):
        module.weight.requires_grad_(False)
        module(x).square().sum().backward()
    assert torch.allclose(layer.bias.grad, plain.bias.grad, rtol=1e-5)


X, WEIGHT, BIAS = torch.zeros(2, 8, 9, 9), torch.zeros(8, 1, 3, 3), torch.zeros(8)
BAD = {
    "x no tensor": lambda f: f([1.0], WEIGHT, BIAS),
    "weight no tensor": lambda f: f(X, None, BIAS),
    "x two-dimensional": lambda f: f(X[0, 0], WEIGHT, BIAS),
    "x five-dimensional": lambda f: f(X[None], WEIGHT, BIAS),
    "weight three-dimensional": lambda f: f(X, WEIGHT[0], BIAS),
    "weight of a full convolution": lambda f: f(X, torch.zeros(8, 8, 3, 3), BIAS),
    "too few filters": lambda f: f(X, WEIGHT[:7], None),
    "bias too short": lambda f: f(X, WEIGHT, BIAS[:7]),
    "bias a matrix": lambda f: f(X, WEIGHT, BIAS[None]),
    "weight of another dtype": lambda f: f(X, WEIGHT.double(), BIAS.double()),
    "bias of another dtype": lambda f: f(X, WEIGHT, BIAS.double()),
    "filter larger than the image": lambda f: f(X, torch.zeros(8, 1, 12, 3), BIAS),
    "no pixels": lambda f: f(torch.zeros(2, 8, 0, 9), WEIGHT, BIAS),
    "filter without taps": lambda f: f(X, torch.zeros(8, 1, 0, 3), BIAS),
    "negative padding": lambda f: f(X, WEIGHT, BIAS, padding=-1),
    "padding of three": lambda f: f(X, WEIGHT, BIAS, padding=(1, 1, 1)),
    "padding misspelt": lambda f: f(X, WEIGHT, BIAS, padding="sane"),
    "padding an array": lambda f: f(X, WEIGHT, BIAS, padding=np.array([1, 1])),
    "padding a float": lambda f: f(X, WEIGHT, BIAS, padding=1.5),
    "same with a stride": lambda f: f(X, WEIGHT, BIAS, stride=2, padding="same"),
    "stride zero": lambda f: f(X, WEIGHT, BIAS, stride=0),
    "dilation zero": lambda f: f(X, WEIGHT, BIAS, dilation=0),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_raise_the_type_conv2d_raises_in_our_words(case: str) -> None:
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        BAD[case](lambda *args, **kwargs: functional.conv2d(*args, **kwargs, groups=8))
    with pytest.raises((RuntimeError, TypeError)) as ours:
        BAD[case](depthwise_conv2d)
    kind = TypeError if isinstance(theirs.value, TypeError) else RuntimeError
    assert isinstance(ours.value, kind)
    assert str(ours.value).startswith("depthwise_conv2d: ")


def test_tensors_on_two_devices_are_refused() -> None:
    # F.conv2d raises a RuntimeError for two real devices; beside a CPU, "meta" is the only other one at hand.
    with pytest.raises(RuntimeError, match="depthwise_conv2d: x is on cpu but weight on meta"):
        depthwise_conv2d(X, WEIGHT.to("meta"))


@pytest.mark.parametrize(("pixels", "called"), [(8, False), (64, True)])
def test_small_images_are_spared_the_cost_of_a_call(pixels: int, called: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "LEAST_WORK", LEAST_WORK)
    x, layer = torch.randn(1, 8, pixels, pixels), DepthwiseConv2d(8, 8, 9, padding=4, groups=8)
    calls = [function for function, _ in operator_calls(layer, x)]
    assert (torch.ops.filtercov.depthwise_conv.default in calls) is called
    torch.testing.assert_close(layer(x), functional.conv2d(x, layer.weight, layer.bias, padding=4, groups=8))


@pytest.mark.parametrize(("kernel", "trained", "called"), [(3, True, False), (3, False, True), (5, True, True)])
def test_trained_filters_without_a_native_pass_are_spared_the_cost_of_a_call(
    kernel: int, trained: bool, called: bool
) -> None:
    layer = DepthwiseConv2d(8, 8, kernel, groups=8)
    layer.weight.requires_grad_(trained)
    calls = [function for function, _ in operator_calls(layer, torch.randn(1, 8, 9, 9))]
    assert (torch.ops.filtercov.depthwise_conv.default in calls) is called
