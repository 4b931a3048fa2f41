"""All of a ConvNeXt block that follows its depthwise layer in one operator: PyTorch's values and gradients.

The kernels alone are compared with their definitions in `tests/csrc`.
"""

import pytest
import torch
from torch.nn import functional

from filtercov.nn import native
from filtercov.nn import norm_mlp as module
from filtercov.nn.norm_mlp import norm_mlp
from tests.nn.support import assert_no_worse, doubles, images, needs_native, results, same_for_any_threads

# Batch, channels, height, width, hidden: whole vectors and ragged ones, one pixel, few channels.
SHAPES = [(2, 40, 9, 7, 160), (1, 2, 3, 2, 5), (3, 7, 4, 4, 13), (2, 33, 1, 1, 66), (4, 96, 5, 5, 384)]
EPS = 1e-6


def arguments(batch, channels, height, width, hidden, *, offset=0.0):
    """Return x, shortcut, and weight, bias, w1, b1, w2, b2 and gamma."""
    x, shortcut = (images(batch, channels, height, width) + offset for _ in range(2))
    w1, w2 = torch.randn(hidden, channels) / channels**0.5, torch.randn(channels, hidden) / hidden**0.5
    weight, bias, b2, gamma = torch.randn(4, channels)
    return [x, shortcut, weight, bias, w1, torch.randn(hidden), w2, b2, gamma]


def plain(x, shortcut, weight, bias, w1, b1, w2, b2, gamma):
    normal = functional.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2], weight, bias, EPS)
    branch = functional.linear(functional.gelu(functional.linear(normal, w1, b1)), w2, b2)
    branch = (branch if gamma is None else branch * gamma).permute(0, 3, 1, 2)
    return branch if shortcut is None else branch + shortcut


def fused(x, shortcut, weight, bias, w1, b1, w2, b2, gamma):
    return norm_mlp(x, shortcut, module.Weights(weight, bias, w1, b1, w2, b2, gamma), EPS)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_as_accurate_as_pytorchs(shape, monkeypatch):
    for missing, offset in ((None, 0.0), (1, 10.0), (-1, 0.0)):  # without shortcut, without scale
        inputs = arguments(*shape, offset=offset)
        if missing is not None:
            inputs[missing] = None
            monkeypatch.setattr(module, "_CHUNK", 96)  # so that there are many
            monkeypatch.setattr(module, "_LEAST_ROWS", 10)
        grad = torch.randn_like(inputs[0])
        exact = results(plain, *doubles(inputs), grad_y=grad.double())
        torch.testing.assert_close(results(fused, *doubles(inputs), grad_y=grad.double()), exact)
        ours, theirs = (results(function, *inputs, grad_y=grad) for function in (fused, plain))
        assert_no_worse(ours, theirs, exact, times=3)


@needs_native
def test_any_number_of_threads_gives_the_same_bits_around_the_products():
    x, weight, bias, grad = torch.randn(3000, 40), torch.randn(40), torch.randn(40), torch.randn(3000, 40)

    def run():
        y, to_x, again, sums = torch.empty_like(x), grad.clone(), grad.clone(), torch.empty(3, 40)
        moments = torch.empty(2, 3000)
        native.call("layer_norm_forward", 3000, 40, x, weight, bias, EPS, y, *moments)
        native.call("layer_norm_backward", 3000, 40, to_x, x, *moments, weight, to_x, *sums[:2])
        native.call("bias_gelu_backward", 3000, 40, x, bias, again, y, again, sums[2])
        return y, moments, to_x, again, sums

    assert same_for_any_threads(run)


def test_pointwise_kernels_keep_their_strides():
    x, shortcut, weight, bias, w1, b1, w2, b2, gamma = arguments(2, 8, 3, 3, 16)
    for layout in (torch.channels_last, torch.contiguous_format):
        first, second = (w[:, :, None, None].to(memory_format=layout).requires_grad_() for w in (w1, w2))
        fused(x, shortcut, weight, bias, first, b1, second, b2, gamma).sum().backward()
        for kernel in (first, second):
            assert (kernel.grad.shape, kernel.grad.stride()) == (kernel.shape, kernel.stride())


def test_a_graph_recorded_without_gradients_can_be_trained():
    def keep_nothing(*inputs):
        return torch.ops.filtercov.norm_mlp_forward(*inputs[:4], EPS, *inputs[4:], False)[0]

    inputs = arguments(2, 8, 3, 3, 16)
    torch.testing.assert_close(results(keep_nothing, *inputs), results(plain, *inputs), rtol=1e-4, atol=1e-4)


@needs_native
def test_nothing_is_kept_without_gradients_and_there_may_be_no_image():
    inputs = arguments(2, 8, 3, 3, 16)
    kept = torch.ops.filtercov.norm_mlp_forward(*inputs[:4], EPS, *inputs[4:], False)[1:]
    assert [tensor.numel() for tensor in kept] == [0, 0, 0]
    assert fused(*arguments(0, 8, 3, 3, 16)).shape == (0, 8, 3, 3)
