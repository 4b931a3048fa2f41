"""All of a ConvNeXt block that follows its depthwise layer in one operator: PyTorch's values and gradients."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from filtercov.nn import native
from filtercov.nn import norm_mlp as module
from filtercov.nn.norm_mlp import norm_mlp
from tests.nn.support import ISAS, assert_no_worse, called, images, needs_native, same_for_any_threads

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
    return shortcut + (branch * gamma).permute(0, 3, 1, 2)


def fused(x, shortcut, weight, bias, w1, b1, w2, b2, gamma):
    return norm_mlp(x, shortcut, (weight, bias, EPS), (w1, b1), (w2, b2), gamma)


def results(function, inputs, grad):
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    out = function(*inputs)
    return [out.detach(), *torch.autograd.grad(out, inputs, grad)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_as_accurate_as_pytorchs(shape, isa):
    for offset in (0.0, 10.0):
        inputs = arguments(*shape, offset=offset)
        grad = torch.randn_like(inputs[0])
        exact = results(plain, [tensor.double() for tensor in inputs], grad.double())
        torch.testing.assert_close(results(fused, [tensor.double() for tensor in inputs], grad.double()), exact)
        if isa != "none":
            with native.instruction_set(isa):
                ours = results(fused, inputs, grad)
            assert_no_worse(ours, results(plain, inputs, grad), exact, times=3)


@needs_native
def test_many_chunks_give_what_one_gives(monkeypatch):
    inputs, grad = arguments(3, 24, 7, 9, 96), torch.randn(3, 24, 7, 9)
    whole = results(fused, inputs, grad)
    monkeypatch.setattr(module, "_CHUNK", 96)
    monkeypatch.setattr(module, "_LEAST_ROWS", 10)
    assert [chunk.stop - chunk.start for chunk in module._chunks(3 * 7 * 9, 96)] == [11] * 17 + [2]
    torch.testing.assert_close(results(fused, inputs, grad), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [0, 1, 511, 512, 5000, 12544])
def test_chunks_cover_every_row_once_and_stay_in_the_cache(rows):
    chunks = list(module._chunks(rows, 384))
    assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(range(rows))
    assert all(chunk.stop - chunk.start < max(2 * module._CHUNK // 384, 2 * module._LEAST_ROWS) for chunk in chunks)


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("rows", "channels"), [(5, 3), (300, 40), (129, 17), (1, 1), (2, 1024)])
def test_kernels_match_their_definitions(rows, channels, isa):
    x, grad, shortcut = (torch.randn(rows, channels) * 2 for _ in range(3))
    weight, bias = torch.randn(channels), torch.randn(channels)
    y, again, to_x = torch.empty_like(x), torch.empty_like(x), grad.clone()
    mean, inverse_std, to_weight, to_bias = torch.empty(rows), torch.empty(rows), *torch.empty(2, channels)
    leaves = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]

    def close(found, wanted, inputs):
        exact = wanted, *torch.autograd.grad(wanted, inputs, grad.double())
        for ours, truth in zip(found, exact, strict=True):
            torch.testing.assert_close(ours.double(), truth.detach(), rtol=2e-5, atol=2e-5)

    with native.instruction_set(isa):
        native.call("layer_norm_forward", rows, channels, x, weight, bias, 1e-5, y, mean, inverse_std)
        native.call("layer_norm_again", rows, channels, x, mean, inverse_std, weight, bias, again)
        assert torch.equal(y, again)
        outputs = to_x, to_weight, to_bias
        native.call("layer_norm_backward", rows, channels, to_x, x, mean, inverse_std, weight, *outputs)
        close((y, *outputs), functional.layer_norm(leaves[0], (channels,), *leaves[1:], 1e-5), leaves)

        to_x = grad.clone()
        native.call("bias_gelu_forward", rows, channels, x, bias, y)
        native.call("bias_gelu_backward", rows, channels, x, bias, to_x, again, to_x, to_bias)
        assert torch.equal(y, again)
        close((y, to_x, to_bias), functional.gelu(leaves[0] + leaves[2]), (leaves[0], leaves[2]))

        for scale, residual in ((weight, shortcut), (None, shortcut), (weight, None)):
            native.call("scaled_residual", rows, channels, x, bias, scale, residual, y)
            exact = (x + bias).double() * (1 if scale is None else scale) + (0 if residual is None else residual)
            torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize("shape", [(2, 3, 2, 3, 5), (1, 4, 1, 1, 2)], ids=str)
def test_gradients_of_both_orders(shape):
    inputs = [tensor.double().requires_grad_() for tensor in arguments(*shape)]
    assert torch.autograd.gradcheck(fused, inputs)
    assert torch.autograd.gradgradcheck(fused, inputs)


@needs_native
def test_double_backward_in_float32_is_that_of_the_definition():
    inputs, grad = arguments(2, 8, 3, 3, 16), torch.randn(2, 8, 3, 3)

    def penalty(function):
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        (slope,) = torch.autograd.grad(function(*leaves), leaves[0], grad, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), [leaves[0], *leaves[2:7]])

    torch.testing.assert_close(penalty(fused), penalty(plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("optional", [True, False])
def test_the_operator_passes_torchs_own_checks(optional):
    x, shortcut, weight, bias, w1, b1, w2, b2, gamma = (t.requires_grad_() for t in arguments(2, 8, 3, 3, 16))
    given = x, shortcut if optional else None, weight, bias, EPS, w1, b1, w2, b2, gamma if optional else None, True
    torch.library.opcheck(torch.ops.filtercov.norm_mlp_forward.default, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_shortcut_and_scale(dtype):
    inputs = [tensor.to(dtype) for tensor in arguments(2, 8, 3, 3, 16)]
    alone = fused(inputs[0], None, *inputs[2:])
    torch.testing.assert_close(alone + inputs[1], plain(*inputs), rtol=1e-5, atol=1e-5)
    leaves = [tensor.requires_grad_() for tensor in inputs[:-1]]
    found = [function(*leaves, scale) for function, scale in ((fused, None), (plain, torch.ones(8, dtype=dtype)))]
    grads = [torch.autograd.grad(y.sin().sum(), leaves) for y in found]
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_pointwise_kernels_keep_their_strides():
    x, shortcut, weight, bias, w1, b1, w2, b2, gamma = arguments(2, 8, 3, 3, 16)
    for layout in (torch.channels_last, torch.contiguous_format):
        first, second = (w[:, :, None, None].to(memory_format=layout).requires_grad_() for w in (w1, w2))
        fused(x, shortcut, weight, bias, first, b1, second, b2, gamma).sum().backward()
        for kernel in (first, second):
            assert (kernel.grad.shape, kernel.grad.stride()) == (kernel.shape, kernel.stride())


def test_nothing_is_kept_without_gradients_and_no_zeros_are_filled_in_with_them():
    inputs = arguments(2, 8, 3, 3, 16)
    kept = torch.ops.filtercov.norm_mlp_forward(*inputs[:4], EPS, *inputs[4:], False)[1:]
    assert [tensor.numel() for tensor in kept] == [0, 0, 0]
    out = fused(*(tensor.requires_grad_() for tensor in inputs)).sum()
    names = called(Tensor.backward, out)
    assert "filtercov::norm_mlp_backward" in names
    assert "aten::zeros" not in names


def test_flops_are_those_of_the_products():
    inputs, counts = [tensor.requires_grad_() for tensor in arguments(2, 8, 3, 3, 16)], []
    for function in (fused, plain):
        with FlopCounterMode(display=False) as counter:
            function(*inputs).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
