"""BatchNorm with an activation, and GELU, as operators: PyTorch's values, gradients and accuracy."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from filtercov.errors import KernelError
from filtercov.nn.norm_act import batch_norm_act_eval, batch_norm_act_train, gelu
from tests.nn.support import assert_no_worse, doubles, images, results, same_for_any_threads

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


def plain(activation, first):
    activate = MODULES[activation]()

    def compute(x, weight, bias, *residual):
        y = functional.batch_norm(activate(x) if first else x, None, None, weight, bias, training=True)
        return sum(residual, y if first else activate(y))

    return compute


def fused(activation, first):
    return lambda x, w, b, *residual: batch_norm_act_train(x, w, b, 1e-5, activation, first, *residual)[0]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("activation", "first"), PAIRS)
def test_values_and_gradients_are_as_accurate_as_pytorchs(activation, first):
    for i, shape in enumerate(SHAPES):
        x = images(*shape) * 2 + 30 * (i % 2)
        weight, bias = (torch.randn(shape[1], 2)[:, 0] for _ in range(2))  # strided
        inputs = [x, weight * 3, bias, *([images(*shape)] if first else [])]
        grad_y = images(*shape)
        if not first:  # rounding may put what enters an activation on either side of a jump
            weight, bias = (vector.double() for vector in inputs[1:3])
            z = functional.batch_norm(x.double(), None, None, weight, bias, training=True)
            grad_y = grad_y * ((z[..., None] - JUMPS).abs().amin(-1) > 1e-4)
        ours = results(fused(activation, first), *inputs, grad_y=grad_y)
        theirs = results(plain(activation, first), *inputs, grad_y=grad_y)
        exact = results(plain(activation, first), *doubles(inputs), grad_y=grad_y.double())
        again = results(fused(activation, first), *doubles(inputs), grad_y=grad_y.double())
        torch.testing.assert_close(again, exact)
        assert_no_worse(ours, theirs, exact)
        _, mean, variance, _ = batch_norm_act_train(*inputs[:3], 1e-5, activation, first)
        entered = functional.gelu(x) if first else x
        torch.testing.assert_close(mean, entered.mean((0, 2, 3)), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(variance, entered.var((0, 2, 3), correction=0), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("activation", MODULES)
def test_activations_are_accurate_over_the_whole_range_of_float32(activation):
    line = torch.cat([torch.linspace(-15, 15, 6001), torch.tensor([-0.0, 1e-30, -1e-30, 40.0, -40.0, 1e4, -1e4])])
    z = line.double().requires_grad_()
    exact = MODULES[activation]()(z)
    (slope,) = torch.autograd.grad(exact.sum(), z)
    tolerance = 1e-6 if activation == "gelu" else 1e-7
    # After a norm with weight 0, the bias is what enters; two values a channel give it a variance.
    x = torch.stack([torch.full_like(line, -1.0), torch.ones_like(line)])[:, :, None, None]
    none, bias = torch.zeros_like(line), line.clone().requires_grad_()
    y = batch_norm_act_train(x, none, bias, 1.0, activation)[0]
    assert torch.allclose(y[0, :, 0, 0].double(), exact, rtol=3e-7, atol=tolerance)
    (grad,) = torch.autograd.grad(y.sum(), bias)
    assert torch.allclose(grad.double(), 2 * slope, rtol=1e-6, atol=1e-6)  # also at the jumps themselves
    if activation == "gelu":
        x = line.clone().requires_grad_()
        y = gelu(x)
        assert torch.allclose(y.double(), exact, rtol=3e-7, atol=2e-6)
        assert torch.allclose(torch.autograd.grad(y.sum(), x)[0].double(), slope, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("activation", "first"), PAIRS)
def test_nan_stays_in_its_channel_and_threads_change_nothing(activation, first):
    x, grad_y, weight, bias = images(6, 37, 15, 15), images(6, 37, 15, 15), torch.rand(37), torch.rand(37)
    assert same_for_any_threads(lambda: results(fused(activation, first), x, weight, bias, grad_y=grad_y))
    x[0, 7] = torch.nan
    y = fused(activation, first)(x, weight, bias)
    assert torch.equal(y.isnan().all(3).all(2).all(0), torch.arange(37) == 7)
    assert y.isnan().sum() == 6 * 15 * 15


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("activation", "first"), PAIRS)
def test_values_in_evaluation_are_the_definitions(activation, first):
    for shape in SHAPES:
        weight, bias, mean, variance = vectors = [torch.randn(shape[1], 2)[:, 0] for _ in range(4)]
        variance.abs_().add_(0.1)
        x, residual = images(*shape) * 2, images(*shape) if first and shape[1] % 2 else None
        activate = MODULES[activation]()
        entered = activate(x.double()) if first else x.double()
        wanted = functional.batch_norm(entered, *(v.double() for v in (mean, variance, weight, bias)), eps=1e-3)
        wanted = wanted if first else activate(wanted)
        y = batch_norm_act_eval(x, *vectors, 1e-3, activation, first, residual)
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert (y - (wanted if residual is None else wanted + residual)).abs().max() < 4e-5
    with pytest.raises(KernelError):
        batch_norm_act_eval(*(t.double() for t in (x, *vectors)), 1e-3, activation, first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (2, 3, 4, 5), (0, 4), (3, 16 * 1024 + 1)], ids=str)
def test_gelu_of_any_shape_and_layout_gives_what_pytorch_gives(shape, dtype):
    dense = torch.randn(shape, dtype=dtype)
    layouts = [dense, torch.randn(*shape, 2, dtype=dtype)[..., 0]]
    layouts += [dense.mT.contiguous().mT] if len(shape) > 1 else []
    for x in layouts:
        grad_y = torch.randn(shape, dtype=dtype)
        ours, theirs = (results(function, x, grad_y=grad_y) for function in (gelu, functional.gelu))
        assert ours[0].stride() == theirs[0].stride() or not x.numel()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
