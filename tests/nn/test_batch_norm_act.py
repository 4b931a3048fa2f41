"""BatchNorm and an activation in one operator: PyTorch's values, gradients, running statistics and behaviour."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from filtercov.nn import FusedSequential, accelerate_, kernels, native_status, restore_
from filtercov.nn.batch_norm_act import batch_norm_act
from tests.nn.test_gelu_batch_norm import (
    ALTERATIONS,
    SHAPES,
    assert_same_statistics,
    channels_last,
    operators_of,
)
from tests.nn.wrapping import double_output_

needs_native = pytest.mark.skipif(not native_status().available, reason="native kernels not built")
ISAS = native_status().isas or ("none",)
MODULES: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "hardswish": nn.Hardswish,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}
JUMPS = torch.tensor([-3.0, 0.0, 3.0, 6.0])  # where one of the activations' slopes jumps


def all_results(activation: str, x: Tensor, weight: Tensor, bias: Tensor, grad_y: Tensor) -> tuple[Tensor, ...]:
    inputs = [t.detach().requires_grad_() for t in (x, weight, bias)]
    y = MODULES[activation]()(functional.batch_norm(inputs[0], None, None, *inputs[1:], training=True))
    return y.detach(), *torch.autograd.grad(y, inputs, grad_y)


def without_jumps(x: Tensor, weight: Tensor, bias: Tensor, grad_y: Tensor) -> Tensor:
    """Return a gradient that is zero where rounding may put what enters an activation on either side of a jump."""
    z = functional.batch_norm(x.double(), None, None, weight.double(), bias.double(), training=True)
    return grad_y * ((z[..., None] - JUMPS).abs().amin(-1) > 1e-4)


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", MODULES)
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_values_and_gradients_are_as_accurate_as_pytorchs(
    shape: tuple[int, ...], activation: str, isa: str, offset: float
) -> None:
    x = channels_last(*shape) * 2 + offset
    weight, bias = torch.randn(shape[1]) * 3, torch.randn(shape[1])
    grad_y = without_jumps(x, weight, bias, channels_last(*shape)).contiguous(memory_format=torch.channels_last)
    y, moments = kernels.batch_norm_act(x, weight, bias, 1e-5, activation, isa=isa)
    grads = kernels.batch_norm_act_backward(
        grad_y, x, weight, bias, moments.mean, moments.inverse_std, activation, isa=isa
    )
    theirs = all_results(activation, x, weight, bias, grad_y)
    exact = all_results(activation, *(t.double() for t in (x, weight, bias, grad_y)))
    for a, b, e in zip((y, *grads), theirs, exact, strict=True):
        error, other = (a.double() - e).norm(), (b.double() - e).norm()
        assert error <= 2 * other + 1e-6 * e.norm() + 1e-9
    assert torch.allclose(moments.variance.double(), x.double().var((0, 2, 3), correction=0), rtol=1e-5)


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activation", MODULES)
def test_activations_are_accurate_over_the_whole_range_of_float32(isa: str, activation: str) -> None:
    # Two values a channel, far apart: the variance hardly moves what enters from where `bias` puts it.
    line = torch.cat([torch.linspace(-15, 15, 6001), torch.tensor([-0.0, 1e-30, -1e-30, 40.0, -40.0, 1e4, -1e4])])
    x = torch.stack([torch.full_like(line, -1.0), torch.ones_like(line)])[:, :, None, None]
    y, _ = kernels.batch_norm_act(x, torch.zeros_like(line), line, 1.0, activation, isa=isa)
    exact = MODULES[activation]()(line.double())
    assert torch.allclose(y[0, :, 0, 0].double(), exact, rtol=3e-7, atol=1e-6 if activation == "gelu" else 1e-7)
    grads = kernels.batch_norm_act_backward(
        torch.ones_like(x), x, torch.zeros_like(line), line, *torch.zeros(2, len(line)), activation, isa=isa
    )
    z = line.double().requires_grad_()
    (slope,) = torch.autograd.grad(MODULES[activation]()(z).sum(), z)
    assert torch.allclose(grads[2].double(), 2 * slope, rtol=1e-6, atol=1e-6)  # also at the jumps themselves


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("activation", MODULES)
def test_nan_stays_nan(isa: str, activation: str) -> None:
    x = channels_last(2, 20, 3, 3)
    x[0, 7] = torch.nan
    y, _ = kernels.batch_norm_act(x, torch.ones(20), torch.zeros(20), 1e-5, activation, isa=isa)
    assert torch.equal(y.isnan().any(3).any(2).any(0), torch.arange(20) == 7)
    assert y[:, 7].isnan().all()


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("channels", [37, 101])
def test_results_are_identical_for_any_number_of_threads(isa: str, channels: int) -> None:
    shape, before = (6, channels, 15, 15), torch.get_num_threads()
    x, grad_y, weight, bias = channels_last(*shape), channels_last(*shape), torch.rand(channels), torch.rand(channels)
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            y, moments = kernels.batch_norm_act(x, weight, bias, 1e-5, "silu", isa=isa)
            mean, inverse_std = moments.mean, moments.inverse_std
            grads = kernels.batch_norm_act_backward(grad_y, x, weight, bias, mean, inverse_std, "silu", isa=isa)
            results.append((y, *moments, *grads))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("activation", MODULES)
def test_gradients_agree_with_finite_differences_to_second_order(activation: str) -> None:
    x = channels_last(3, 2, 2, 2).double().requires_grad_()
    weight, bias = (torch.randn(2, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def output(*tensors: Tensor) -> Tensor:
        return batch_norm_act(*tensors, 1e-5, activation)[0]

    assert torch.autograd.gradcheck(output, (x, weight, bias))
    assert torch.autograd.gradgradcheck(output, (x, weight, bias))


def sequences(activation: str = "relu", **options: object) -> tuple[nn.Sequential, FusedSequential]:
    norm = nn.BatchNorm2d(20, **options)  # type: ignore[arg-type]
    plain = nn.Sequential(nn.Conv2d(3, 20, 1), norm, MODULES[activation]())
    fused = copy.deepcopy(plain)
    fused.__class__ = FusedSequential
    return plain, fused  # type: ignore[return-value]


@pytest.mark.parametrize("alter", ALTERATIONS)
def test_statistics_are_kept_as_batch_norm_keeps_them_whatever_it_lacks(
    alter: Callable[[nn.BatchNorm2d], None],
) -> None:
    plain, fused = sequences()
    for net in (plain, fused):
        alter(net[1])
    assert_same_statistics(plain, fused, 1)


@needs_native
@pytest.mark.parametrize("activation", MODULES)
def test_a_sequence_is_fused_only_where_nobody_can_notice(activation: str) -> None:
    x, operator = channels_last(4, 3, 7, 7), "filtercov::batch_norm_act"
    plain, fused = sequences(activation)
    assert operator in operators_of(fused, x)
    assert torch.allclose(fused(x), plain(x), atol=1e-5)
    for part in (1, 2):
        plain, patched = sequences(activation)
        for net in (plain, patched):
            double_output_(net[part])
        assert operator not in operators_of(patched, x)
        assert torch.allclose(patched(x), plain(x), atol=1e-5)
    hooked = sequences(activation)[1]
    hooked[1].register_forward_hook(lambda _module, _inputs, _output: None)
    assert operator not in operators_of(hooked, x)
    assert operator not in operators_of(sequences(activation)[1].eval(), x)
    assert operator not in operators_of(sequences(activation)[1].double(), x.double())
    assert operator not in operators_of(sequences(activation)[1], x.contiguous())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert operator not in operators_of(sequences(activation)[1], x)


def test_activations_with_another_formula_are_left_alone() -> None:
    for activation in (nn.GELU("tanh"), nn.LeakyReLU(), nn.Tanh(), type("Mine", (nn.ReLU,), {})()):
        net = nn.Sequential(nn.BatchNorm2d(8), activation)
        assert accelerate_(net).fused == ()
        assert type(net) is nn.Sequential


@needs_native
@pytest.mark.parametrize("act", ["relu", "hard_swish", "silu", "gelu", None])
def test_timms_norm_with_activation_is_fused_and_restored(act: str | None) -> None:
    timm_layers = pytest.importorskip("timm.layers")
    plain = nn.Sequential(
        nn.Conv2d(3, 16, 1),
        timm_layers.BatchNormAct2d(16, apply_act=act is not None, act_layer=timm_layers.get_act_layer(act or "relu")),
    )
    net = copy.deepcopy(plain)
    assert accelerate_(net).fused == ("1",)
    x = channels_last(8, 3, 64, 64)
    assert "filtercov::batch_norm_act" in operators_of(net, x)
    plain(x)  # as often as the other
    results = []
    for model in (plain, net):
        y = model(x)
        y.square().mean().backward()
        results.append([y, *(p.grad for p in model.parameters()), *model.buffers()])
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert torch.allclose(net.eval()(x), plain.eval()(x), atol=1e-5)
    double_output_(net.train()[1].act)
    assert "filtercov::batch_norm_act" not in operators_of(net, x)
    restore_(net)
    assert type(net[1]) is timm_layers.BatchNormAct2d


@needs_native
def test_torchvisions_convolution_norm_and_activation_are_fused_and_restored() -> None:
    misc = pytest.importorskip("torchvision.ops.misc")
    plain = nn.Sequential(misc.Conv2dNormActivation(3, 16, 3, activation_layer=nn.Hardswish))
    net = copy.deepcopy(plain)
    assert accelerate_(net).fused == ("0.1+2",)
    x = channels_last(4, 3, 9, 9)
    assert "filtercov::batch_norm_act" in operators_of(net, x)
    plain(x)
    assert torch.allclose(net(x), plain(x), atol=1e-5)
    assert torch.allclose(net.eval()(x), plain.eval()(x), atol=1e-5)
    assert restore_(net) == ("0",)
    assert type(net[0]) is misc.Conv2dNormActivation


@needs_native
def test_small_images_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert "filtercov::batch_norm_act" not in operators_of(sequences()[1], channels_last(4, 3, 7, 7))
    assert "filtercov::batch_norm_act" in operators_of(sequences()[1], channels_last(16, 3, 32, 32))


def test_dropped_blocks_between_norm_and_activation_are_timms() -> None:
    timm_layers = pytest.importorskip("timm.layers")
    net = nn.Sequential(timm_layers.BatchNormAct2d(16, drop_layer=nn.Dropout))
    accelerate_(net)
    assert "filtercov::batch_norm_act" not in operators_of(net, channels_last(8, 16, 64, 64))


def test_a_compiled_sequence_gives_the_same_result() -> None:
    _, fused = sequences("silu")
    other = copy.deepcopy(fused)
    x = channels_last(4, 3, 7, 7)
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), fused(x), atol=1e-6)
    assert torch.allclose(other[1].running_var, fused[1].running_var)
