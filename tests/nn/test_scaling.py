"""Depthwise filters of one tap: PyTorch's results without a convolution."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from filtercov.nn import DepthwiseConv2d, depthwise_conv2d, scaling
from tests.nn.test_ops import FUNCTIONS

SIZES = {1: (9,), 2: (4, 5), 3: (2, 3, 4)}


def convolves(function: Callable[[], object]) -> bool:
    """Whether PyTorch convolves anywhere in it, also inside an operator of ours."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    return any("conv2d" in event.key or "aten::convolution" in event.key for event in profile.key_averages())


@pytest.mark.parametrize("chunk", [1, 200, 2**20])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_values_and_gradients_are_pytorchs(
    axes: int, with_bias: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "_CHUNK", chunk)
    x, weight = torch.randn(5, 7, *SIZES[axes]), torch.randn(7, 1, *[1] * axes)
    given = [x, weight, torch.randn(7)] if with_bias else [x, weight]
    inputs = [tensor.requires_grad_() for tensor in given]
    doubles = [tensor.detach().double().requires_grad_() for tensor in given]
    convolve, oracle = FUNCTIONS[axes]
    y, wanted = convolve(*inputs), oracle(*doubles, groups=7)
    torch.testing.assert_close(y.double(), wanted, rtol=1e-6, atol=1e-6)
    grad = torch.randn_like(y)
    for ours, theirs in zip(
        torch.autograd.grad(y, inputs, grad), torch.autograd.grad(wanted, doubles, grad.double()), strict=True
    ):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_no_pass_convolves_and_the_layout_stays(memory_format: torch.memory_format, frozen: bool) -> None:
    layer = DepthwiseConv2d(8, 8, 1, groups=8)
    layer.passes = 0  # measured to be faster so, whatever the number of threads
    layer.weight.requires_grad_(not frozen)
    x = torch.randn(2, 8, 6, 6).to(memory_format=memory_format).requires_grad_()
    assert not convolves(lambda: layer(x).square().sum().backward())
    assert convolves(lambda: nn.Conv2d.forward(layer, x))
    assert layer(x).is_contiguous(memory_format=memory_format)
    assert x.grad is not None
    assert x.grad.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize(
    ("batch", "threads", "memory_format", "multiplied"),
    [
        (2, 1, torch.channels_last, True),
        (16, 1, torch.channels_last, False),
        (2, 2, torch.channels_last, False),
        (16, 2, torch.contiguous_format, True),
    ],
)
def test_where_pytorch_goes_pixel_by_pixel_it_does_the_work(
    batch: int, threads: int, memory_format: torch.memory_format, multiplied: bool
) -> None:
    layer, x = DepthwiseConv2d(8, 8, 1, groups=8), torch.randn(batch, 8, 6, 6).to(memory_format=memory_format)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert convolves(lambda: layer(x)) is not multiplied
        layer.weight.requires_grad_(False)
        assert convolves(lambda: layer(x)) is not multiplied
        assert not convolves(lambda: depthwise_conv2d(x, layer.weight, passes=0))
    finally:
        torch.set_num_threads(before)


def test_a_single_image_is_multiplied() -> None:
    x, weight = torch.randn(8, 6, 6), torch.randn(8, 1, 1, 1)
    assert not convolves(lambda: depthwise_conv2d(x, weight))
    assert torch.equal(depthwise_conv2d(x, weight), functional.conv2d(x, weight, groups=8))


@pytest.mark.parametrize("how", [{"stride": 2}, {"padding": 1}])
def test_strides_and_padding_are_no_multiplication(how: dict[str, int]) -> None:
    x, weight = torch.randn(2, 8, 6, 6), torch.randn(8, 1, 1, 1)
    y = depthwise_conv2d(x, weight, **how)
    torch.testing.assert_close(y, functional.conv2d(x, weight, groups=8, **how))


def test_its_gradients_have_gradients() -> None:
    inputs = [
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 5, 3, 3), (5, 1, 1, 1), (5,))
    ]
    assert torch.autograd.gradgradcheck(depthwise_conv2d, inputs)


def test_flops_are_counted_as_pytorchs() -> None:
    x, plain = torch.randn(2, 8, 6, 6), nn.Conv2d(8, 8, 1, groups=8)
    counts = []
    for layer in (plain, DepthwiseConv2d(8, 8, 1, groups=8)):
        with FlopCounterMode(display=False) as counter:
            layer(x).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
