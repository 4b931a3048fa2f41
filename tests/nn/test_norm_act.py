"""BatchNorm with an activation, and GELU, as operators: PyTorch's values, gradients and accuracy."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from filtercov.nn import batch_norm_act, gelu_batch_norm, native
from filtercov.nn.norm_act import batch_norm_act_eval, gelu
from tests.nn.support import ISAS, assert_no_worse, images, needs_native, same_for_any_threads

SHAPES = [(8, 48, 16, 16), (3, 101, 5, 5), (2, 1, 5, 5), (3, 7, 9, 4), (1, 16, 1, 2), (64, 5, 1, 1)]
MODULES = {
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "hardswish": nn.Hardswish,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}
JUMPS = torch.tensor([-3.0, 0.0, 3.0, 6.0])  # where one of the activations' slopes jumps
PAIRS = [*((name, False) for name in MODULES), ("gelu", True)]


def plain(x, weight, bias, activation, first, residual=None):
    activate = MODULES[activation]()
    y = functional.batch_norm(activate(x) if first else x, None, None, weight, bias, training=True)
    y = y if first else activate(y)
    return y if residual is None else y + residual


def fused(x, weight, bias, activation, first, residual=None):
    if first:
        return gelu_batch_norm(x, weight, bias, 1e-5, residual)[0]
    return batch_norm_act(x, weight, bias, 1e-5, activation)[0]


def results(function, inputs, grad_y, *pair):
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    y = function(*inputs[:3], *pair, *inputs[3:])
    return y.detach(), *torch.autograd.grad(y, inputs, grad_y)


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("activation", "first"), PAIRS)
def test_values_and_gradients_are_as_accurate_as_pytorchs(activation, first, isa):
    for i, shape in enumerate(SHAPES):
        x = images(*shape) * 2 + 30 * (i % 2)
        inputs = [x, torch.randn(shape[1]) * 3, torch.randn(shape[1]), *([images(*shape)] if first else [])]
        grad_y = images(*shape)
        if not first:  # rounding may put what enters an activation on either side of a jump
            weight, bias = (vector.double() for vector in inputs[1:3])
            z = functional.batch_norm(x.double(), None, None, weight, bias, training=True)
            grad_y = grad_y * ((z[..., None] - JUMPS).abs().amin(-1) > 1e-4)
        with native.instruction_set(isa):
            ours = results(fused, inputs, grad_y, activation, first)
        theirs = results(plain, inputs, grad_y, activation, first)
        doubles = [t.double() for t in inputs]
        exact = results(plain, doubles, grad_y.double(), activation, first)
        torch.testing.assert_close(results(fused, doubles, grad_y.double(), activation, first), exact)
        assert_no_worse(ours, theirs, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_statistics_returned_are_the_mean_and_biased_variance(dtype):
    x, one, none = torch.randn(4, 8, 5, 5, dtype=dtype) + 1, torch.ones(8, dtype=dtype), torch.zeros(8, dtype=dtype)
    for (_, mean, variance), entered in (
        (batch_norm_act(x, one, none, 1e-5, "relu"), x),
        (gelu_batch_norm(x, one, none, 1e-5), functional.gelu(x)),
    ):
        torch.testing.assert_close(mean, entered.mean((0, 2, 3)), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(variance, entered.var((0, 2, 3), correction=0), rtol=1e-5, atol=1e-6)


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activation", MODULES)
def test_activations_are_accurate_over_the_whole_range_of_float32(isa, activation):
    line = torch.cat([torch.linspace(-15, 15, 6001), torch.tensor([-0.0, 1e-30, -1e-30, 40.0, -40.0, 1e4, -1e4])])
    z = line.double().requires_grad_()
    exact = MODULES[activation]()(z)
    (slope,) = torch.autograd.grad(exact.sum(), z)
    tolerance = 1e-6 if activation == "gelu" else 1e-7
    with native.instruction_set(isa):
        # After a norm with weight 0, the bias is what enters; two values a channel give it a variance.
        x = torch.stack([torch.full_like(line, -1.0), torch.ones_like(line)])[:, :, None, None]
        none, bias = torch.zeros_like(line), line.clone().requires_grad_()
        y = batch_norm_act(x, none, bias, 1.0, activation)[0]
        assert torch.allclose(y[0, :, 0, 0].double(), exact, rtol=3e-7, atol=tolerance)
        (grad,) = torch.autograd.grad(y.sum(), bias)
        assert torch.allclose(grad.double(), 2 * slope, rtol=1e-6, atol=1e-6)  # also at the jumps themselves
        if activation == "gelu":
            x = line.clone().requires_grad_()
            y = gelu(x)
            assert torch.allclose(y.double(), exact, rtol=3e-7, atol=2e-6)
            assert torch.allclose(torch.autograd.grad(y.sum(), x)[0].double(), slope, rtol=1e-6, atol=1e-6)


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("activation", "first"), PAIRS)
def test_nan_stays_in_its_channel_and_threads_change_nothing(isa, activation, first):
    x, grad_y, weight, bias = images(6, 37, 15, 15), images(6, 37, 15, 15), torch.rand(37), torch.rand(37)
    with native.instruction_set(isa):
        assert same_for_any_threads(lambda: results(fused, (x, weight, bias), grad_y, activation, first))
        x[0, 7] = torch.nan
        y = fused(x, weight, bias, activation, first)
    assert torch.equal(y.isnan().all(3).all(2).all(0), torch.arange(37) == 7)
    assert y.isnan().sum() == 6 * 15 * 15


def test_the_gradient_of_the_residual_is_that_of_the_output_and_no_copy():
    x, residual, grad_y = (images(2, 8, 3, 3) for _ in range(3))
    y, *_ = gelu_batch_norm(x.requires_grad_(), torch.ones(8), torch.zeros(8), 1e-5, residual.requires_grad_())
    _, grad = torch.autograd.grad(y, (x, residual), grad_y)
    assert grad.data_ptr() == grad_y.data_ptr()


def test_strided_vectors_are_read_by_their_strides():
    x, dense = images(2, 8, 5, 5), [torch.rand(8) for _ in range(4)]
    strided = [torch.stack([v, -v], 1)[:, 0] for v in dense]
    backward = torch.ops.filtercov.batch_norm_act_backward
    for function in (
        lambda *v: gelu_batch_norm(x, *v[:2], 1e-5),
        lambda *v: batch_norm_act(x, *v[:2], 1e-5, "silu"),
        lambda *v: (batch_norm_act_eval(x, *v, 1e-5, "silu", False),),
        lambda *v: backward(x, x, *v, "silu", False),
        lambda *v: backward(x, x, *v, "gelu", True),
    ):
        assert all(torch.equal(a, b) for a, b in zip(function(*strided), function(*dense), strict=True))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("activation", MODULES)
def test_values_in_evaluation_are_the_definitions(activation, first, isa):
    for shape in SHAPES:
        channels = shape[1]
        vectors = torch.randn(channels) * 3, torch.randn(channels), torch.randn(channels), torch.rand(channels) + 0.1
        x = images(*shape) * 2
        residual = images(*shape) if first and channels % 2 else None
        weight, bias, mean, variance = (vector.double()[:, None, None] for vector in vectors)
        activate = MODULES[activation]()
        entered = activate(x.double()) if first else x.double()
        wanted = (entered - mean) / (variance + 1e-3).sqrt() * weight + bias
        wanted = wanted if first else activate(wanted)
        wanted = wanted if residual is None else wanted + residual
        if isa != "none":
            with native.instruction_set(isa):
                y = batch_norm_act_eval(x, *vectors, 1e-3, activation, first, residual)
            assert y.is_contiguous(memory_format=torch.channels_last)
            assert (y - wanted).abs().max() < 4e-5
        doubles = [t if t is None else t.double() for t in (x, *vectors, residual)]
        y = batch_norm_act_eval(*doubles[:5], 1e-3, activation, first, doubles[5])
        torch.testing.assert_close(y, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 3, 4, 5), (0, 4), (3, 16 * 1024 + 1)], ids=str)
def test_gelu_of_any_shape_and_layout_gives_what_pytorch_gives(shape, dtype):
    dense = torch.randn(shape, dtype=dtype)
    layouts = [dense, torch.randn(*shape, 2, dtype=dtype)[..., 0]]
    layouts += [dense.mT.contiguous().mT] if len(shape) > 1 else []
    for x in layouts:
        z, grad_y = x.detach().requires_grad_(), torch.randn(shape, dtype=dtype)
        ours, theirs = gelu(z), functional.gelu(z)
        assert ours.stride() == theirs.stride() or not x.numel()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        grads = [torch.autograd.grad(y, z, grad_y)[0] for y in (ours, theirs)]
        torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-6)
