"""The torch operators: gradients of every order, fake tensors, and the transformations users wrap models in."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from filtercov.nn import DepthwiseConv2d, depthwise_conv1d, depthwise_conv2d, depthwise_conv3d, gelu_batch_norm, ops
from filtercov.nn.batch_norm_act import batch_norm_act

CHANNELS_LAST = torch.channels_last
FUNCTIONS = {
    1: (depthwise_conv1d, functional.conv1d),
    2: (depthwise_conv2d, functional.conv2d),
    3: (depthwise_conv3d, functional.conv3d),
}


def image(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype).movedim(1, -1).contiguous().movedim(-1, 1).requires_grad_()


def vector(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype).requires_grad_()


ARGUMENTS: list[dict[str, Any]] = [
    {"padding": 0},
    {"padding": 2},
    {"padding": "same"},
    {"padding": "valid"},
    {"padding": 1, "stride": 2},
    {"padding": 2, "dilation": 2},
    {"padding": 2, "dilation": 2, "stride": 2},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("axes", FUNCTIONS)
def test_gradients_agree_with_finite_differences_to_second_order(axes: int, arguments: dict[str, Any]) -> None:
    x, weight, bias = (
        image(1, 2, *(4, 3, 2)[:axes], dtype=torch.float64),
        vector(2, 1, *(2, 3, 2)[:axes], dtype=torch.float64),
        vector(2, dtype=torch.float64),
    )

    def convolve(*tensors: Tensor) -> Tensor:
        return FUNCTIONS[axes][0](*tensors, **arguments)

    assert torch.autograd.gradcheck(convolve, (x, weight, bias))
    assert torch.autograd.gradgradcheck(convolve, (x, weight, bias))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("axes", FUNCTIONS)
def test_native_second_derivatives_agree_with_pytorchs(axes: int, stride: int) -> None:
    def second(convolve: object, *inputs: Tensor) -> tuple[Tensor, ...]:
        y = convolve(*inputs)  # type: ignore[operator]
        first = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), inputs)

    ours_of, theirs_of = FUNCTIONS[axes]
    size, kernel = {1: ((40,), (31,)), 2: ((12, 12), (11, 11)), 3: ((6, 7, 8), (5, 3, 5))}[axes]
    inputs = image(2, 20, *size), vector(20, 1, *kernel), vector(20)
    ours = second(lambda *t: ours_of(*t, padding=5, stride=stride), *inputs)
    theirs = second(lambda *t: theirs_of(*t, padding=5, stride=stride, groups=20), *(t.double() for t in inputs))
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm()


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(
    ("size", "kernel", "how"),
    [
        ((9, 9), (11, 11), ((5, 5, 4, 6), (1, 1), (1, 1))),
        ((9, 9), (7, 7), ((4, 2, 3, 3), (2, 2), (1, 1))),
        ((40,), (31,), ((30, 30), (1,), (2,))),
        ((6, 7, 8), (3, 5, 3), ((1, 1, 3, 1, 1, 1), (1, 1, 2), (1, 1, 1))),
    ],
    ids=["2d", "2d strided", "1d dilated", "3d"],
)
def test_operators_pass_torchs_own_checks(
    size: tuple[int, ...], kernel: tuple[int, ...], how: tuple[tuple[int, ...], ...], channels_last: bool
) -> None:
    x = torch.randn(2, 16, *size)
    x = (x.movedim(1, -1).contiguous().movedim(-1, 1) if channels_last else x).requires_grad_()
    weight, bias = vector(16, 1, *kernel), vector(16)
    close = {"rtol": 1e-5, "atol": 1e-4}  # PyTorch's own float32 sums, where no compiler built ours, differ by layout
    y = ops.convolve(x, weight, bias, *how).detach().requires_grad_()
    torch.library.opcheck(ops.convolve, (x, weight, bias, *how), **close)
    torch.library.opcheck(ops.input_grad, (y, weight, *how, size, channels_last), **close)
    torch.library.opcheck(ops.weight_grad, (y, x, *how, kernel), **close)
    torch.library.opcheck(ops.channel_sum, (y,), **close)


def test_compiled_modules_give_the_same_result_in_one_graph() -> None:
    layer = DepthwiseConv2d(16, 16, 9, padding="same", groups=16)
    x = image(2, 16, 9, 9)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), layer(x))
    grads = [torch.autograd.grad(run(x).square().sum(), [x, *layer.parameters()]) for run in (compiled, layer)]
    for a, b in zip(*grads, strict=True):
        assert torch.allclose(a, b, rtol=1e-6)


def test_autocast_gives_what_conv2d_gives() -> None:
    layer, plain = DepthwiseConv2d(16, 16, 9, padding=4, groups=16), nn.Conv2d(16, 16, 9, padding=4, groups=16)
    plain.load_state_dict(layer.state_dict())
    x = image(2, 16, 9, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = layer(x), plain(x)
    assert ours.dtype == torch.bfloat16
    assert torch.equal(ours, theirs)
    grads = [torch.autograd.grad(y.float().sum(), x)[0] for y in (ours, theirs)]
    assert torch.equal(*grads)


def test_function_transforms_fall_back() -> None:
    weight, batches = vector(8, 1, 3, 3).detach(), torch.randn(5, 2, 8, 6, 6)

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return depthwise_conv2d(x, weight, padding=1).square().sum()

    def plain(weight: Tensor, x: Tensor) -> Tensor:
        return functional.conv2d(x, weight, padding=1, groups=8).square().sum()

    for transform in (
        lambda f: torch.func.vmap(f, (None, 0))(weight, batches),
        lambda f: torch.func.grad(f)(weight, batches[0]),
        lambda f: torch.func.vmap(torch.func.grad(f), (None, 0))(weight, batches),
        lambda f: torch.func.jvp(lambda w: f(w, batches[0]), (weight,), (weight,))[1],
    ):
        assert torch.allclose(transform(loss), transform(plain), rtol=1e-5)


def test_forward_mode_differentiation_falls_back() -> None:
    weight, x = vector(8, 1, 11, 11).detach(), torch.randn(2, 8, 9, 9)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x * 2)
        tangent = torch.autograd.forward_ad.unpack_dual(depthwise_conv2d(dual, weight, padding=5)).tangent
    assert tangent is not None
    assert torch.allclose(tangent, 2 * depthwise_conv2d(x, weight, padding=5), atol=1e-4)


def test_hooks_on_modules_and_tensors_are_called() -> None:
    seen = []
    layer = DepthwiseConv2d(8, 8, 9, padding=4, groups=8)
    layer.register_forward_hook(lambda *_: seen.append("forward"))
    layer.register_full_backward_hook(lambda *_: seen.append("backward"))
    layer.weight.register_post_accumulate_grad_hook(lambda _: seen.append("weight"))
    layer(image(2, 8, 9, 9)).sum().backward()
    assert sorted(seen) == ["backward", "forward", "weight"]


def test_distributed_data_parallel_trains_it_without_a_complaint(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        layer = DepthwiseConv2d(8, 8, 9, padding=4, groups=8).to(memory_format=CHANNELS_LAST)
        alone = DepthwiseConv2d(8, 8, 9, padding=4, groups=8)
        alone.load_state_dict(layer.state_dict())
        x = image(2, 8, 9, 9)
        DistributedDataParallel(layer)(x).square().sum().backward()
        alone(x).square().sum().backward()
        assert torch.equal(layer.weight.grad, alone.weight.grad)
    finally:
        torch.distributed.destroy_process_group()


def test_gelu_batch_norm_operator_passes_torchs_own_checks() -> None:
    x, weight, bias = image(3, 8, 4, 4), vector(8), vector(8)
    operator = torch.ops.filtercov.gelu_batch_norm.default
    # The gradient of y alone is defined; torch's check of the composed graph sums all outputs, which suits it too.
    torch.library.opcheck(operator, (x, weight, bias, 1e-5))
    torch.library.opcheck(operator, (x, weight, bias, 1e-5, image(3, 8, 4, 4)))
    y, mean, _ = gelu_batch_norm(x.detach(), weight.detach(), bias.detach(), 1e-5)
    backward = torch.ops.filtercov.gelu_batch_norm_backward.default
    arguments = y, x.detach(), weight.detach(), mean, torch.ones(8)
    torch.library.opcheck(backward, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("activation", ["identity", "relu", "hardswish", "silu"])
def test_batch_norm_act_operator_passes_torchs_own_checks(activation: str) -> None:
    x, weight, bias = image(3, 8, 4, 4), vector(8), vector(8)
    torch.library.opcheck(torch.ops.filtercov.batch_norm_act.default, (x, weight, bias, 1e-5, activation))
    y, mean, _ = batch_norm_act(x.detach(), weight.detach(), bias.detach(), 1e-5, activation)
    backward = torch.ops.filtercov.batch_norm_act_backward.default
    arguments = y, x.detach(), weight.detach(), bias.detach(), mean, torch.ones(8), activation
    torch.library.opcheck(backward, arguments, test_utils=("test_schema", "test_faketensor"))


def test_default_dtype_and_device_of_the_caller_do_not_leak_in() -> None:
    layer = DepthwiseConv2d(16, 16, 11, padding=5, groups=16)
    x = image(2, 16, 9, 9)
    wanted = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            got = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    finally:
        torch.set_default_dtype(before)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
