"""All of a ConvNeXt block that follows its depthwise layer in one operator: PyTorch's values and gradients."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from filtercov.errors import NormalisationError
from filtercov.nn import kernels, native_status
from filtercov.nn import norm_mlp as module
from filtercov.nn.norm_mlp import norm_mlp
from tests.nn.operator_calls import operator_calls

needs_native = pytest.mark.skipif(not native_status().available, reason="native kernels not built")
ISAS = native_status().isas or ("none",)
# Batch, channels, height, width, hidden: whole vectors and ragged ones, one pixel, few channels.
SHAPES = [
    (2, 40, 9, 7, 160),
    (1, 2, 3, 2, 5),
    (3, 7, 4, 4, 13),
    (2, 33, 1, 1, 66),
    (1, 16, 2, 2, 64),
    (4, 96, 5, 5, 384),
]
EPS = 1e-6


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def arguments(batch: int, channels: int, height: int, width: int, hidden: int, *, offset: float = 0.0) -> list[Tensor]:
    """Return x, shortcut, and weight, bias, w1, b1, w2, b2 and gamma."""
    images = [
        torch.randn(batch, channels, height, width).to(memory_format=torch.channels_last) + offset for _ in range(2)
    ]
    matrices = torch.randn(hidden, channels) / channels**0.5, torch.randn(channels, hidden) / hidden**0.5
    vectors = [torch.randn(n) for n in (channels, channels, hidden, channels, channels)]
    return [*images, *vectors[:2], matrices[0], vectors[2], matrices[1], *vectors[3:]]


def spelled_out(x: Tensor, shortcut: Tensor, *parts: Tensor) -> Tensor:
    weight, bias, w1, b1, w2, b2, gamma = parts
    normal = functional.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2], weight, bias, EPS)
    branch = functional.linear(functional.gelu(functional.linear(normal, w1, b1)), w2, b2)
    return shortcut + (branch * gamma).permute(0, 3, 1, 2)


def fused(x: Tensor, shortcut: Tensor | None, *parts: Tensor) -> Tensor:
    weight, bias, w1, b1, w2, b2, gamma = parts
    return norm_mlp(x, shortcut, (weight, bias, EPS), (w1, b1), (w2, b2), gamma)


def results(function: object, inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    out = function(*inputs)  # type: ignore[operator]
    return [out.detach(), *torch.autograd.grad(out, inputs, grad)]


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_as_accurate_as_pytorchs(shape: tuple[int, ...], offset: float) -> None:
    inputs = arguments(*shape, offset=offset)
    grad = torch.randn_like(inputs[0])
    exact = results(spelled_out, [tensor.double() for tensor in inputs], grad.double())
    for ours, theirs, truth in zip(
        results(fused, inputs, grad), results(spelled_out, inputs, grad), exact, strict=True
    ):
        assert ours.shape == theirs.shape
        error, other = (ours - truth).norm(), (theirs - truth).norm()
        assert error <= 3 * other + 2e-6 * truth.norm() + 1e-9


@needs_native
def test_many_chunks_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, grad = arguments(3, 24, 7, 9, 96), torch.randn(3, 24, 7, 9)
    whole = results(fused, inputs, grad)
    monkeypatch.setattr(module, "_CHUNK", 96)
    monkeypatch.setattr(module, "_LEAST_ROWS", 10)
    assert [chunk.stop - chunk.start for chunk in module._chunks(3 * 7 * 9, 96)] == [11] * 17 + [2]
    for one, many in zip(whole, results(fused, inputs, grad), strict=True):
        torch.testing.assert_close(one, many, rtol=1e-5, atol=1e-5)


def test_no_zeros_are_filled_in_for_the_gradients_of_what_is_kept() -> None:
    inputs = [tensor.requires_grad_() for tensor in arguments(2, 8, 6, 5, 32)]
    called = [function.name() for function, _ in operator_calls(Tensor.backward, fused(*inputs).sum())]
    assert "filtercov::norm_mlp_backward" in called
    assert "aten::zeros" not in called


@pytest.mark.parametrize("rows", [0, 1, 511, 512, 5000, 12544])
def test_chunks_cover_every_row_once(rows: int) -> None:
    chunks = list(module._chunks(rows, 384))
    assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(range(rows))


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("rows", "channels"), [(5, 3), (300, 40), (129, 17), (1, 1), (2, 1024)])
def test_kernels_match_their_definitions(rows: int, channels: int, isa: str) -> None:
    x, grad, shortcut = (torch.randn(rows, channels) * 2 for _ in range(3))
    weight, bias = torch.randn(channels), torch.randn(channels)

    truth = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    expected = functional.layer_norm(truth[0], (channels,), *truth[1:], 1e-5)
    y, again = torch.empty_like(x), torch.empty_like(x)
    moments = kernels.layer_norm(x, weight, bias, 1e-5, y, isa=isa)
    kernels.layer_norm_again(x, moments, weight, bias, again, isa=isa)
    assert torch.equal(y, again)
    to_x = grad.clone()
    ours = y, to_x, *kernels.layer_norm_backward_(to_x, x, moments, weight, isa=isa)
    for got, exact in zip(ours, (expected, *torch.autograd.grad(expected, truth, grad.double())), strict=True):
        torch.testing.assert_close(got.double(), exact.detach(), rtol=2e-5, atol=2e-5)

    moved = [tensor.double().requires_grad_() for tensor in (x, bias)]
    expected = functional.gelu(moved[0] + moved[1])
    kernels.bias_gelu(x, bias, y, isa=isa)
    to_x = grad.clone()
    to_bias = kernels.bias_gelu_backward_(to_x, x, bias, again, isa=isa)
    assert torch.equal(y, again)
    for got, exact in zip(
        (y, to_x, to_bias), (expected, *torch.autograd.grad(expected, moved, grad.double())), strict=True
    ):
        torch.testing.assert_close(got.double(), exact.detach(), rtol=2e-5, atol=2e-5)

    for scale in (weight, None):
        for residual in (shortcut, None):
            kernels.scaled_residual(x, bias, scale, residual, y, isa=isa)
            exact = (x + bias).double() * (1 if scale is None else scale) + (0 if residual is None else residual)
            torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-5)


@needs_native
def test_any_number_of_threads_gives_the_same_bits_around_the_products() -> None:
    x, weight, bias, grad = torch.randn(3000, 40), torch.randn(40), torch.randn(40), torch.randn(3000, 40)
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        y, to_x, again = torch.empty_like(x), grad.clone(), grad.clone()
        moments = kernels.layer_norm(x, weight, bias, EPS, y)
        sums = kernels.layer_norm_backward_(to_x, x, moments, weight)
        found.append([y, *moments, to_x, *sums, kernels.bias_gelu_backward_(again, x, bias, y), again, y])
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("shape", [(2, 3, 2, 3, 5), (1, 4, 1, 1, 2)], ids=str)
def test_gradients_of_both_orders(shape: tuple[int, ...]) -> None:
    inputs = [tensor.double().requires_grad_() for tensor in arguments(*shape)]
    assert torch.autograd.gradcheck(fused, inputs)
    assert torch.autograd.gradgradcheck(fused, inputs)


@needs_native
def test_double_backward_in_float32_is_that_of_the_definition() -> None:
    inputs, grad = arguments(2, 8, 3, 3, 16), torch.randn(2, 8, 3, 3)

    def penalty(function: object) -> list[Tensor]:
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        (slope,) = torch.autograd.grad(function(*leaves), leaves[0], grad, create_graph=True)  # type: ignore[operator]
        return list(torch.autograd.grad(slope.square().sum(), [leaves[0], *leaves[2:7]]))

    for ours, theirs in zip(penalty(fused), penalty(spelled_out), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("optional", [True, False])
def test_the_operator_keeps_its_contract(optional: bool, dtype: torch.dtype) -> None:
    x, shortcut, weight, bias, w1, b1, w2, b2, gamma = (
        tensor.to(dtype).requires_grad_() for tensor in arguments(2, 8, 3, 3, 16)
    )
    torch.library.opcheck(
        torch.ops.filtercov.norm_mlp.default,
        (x, shortcut if optional else None, weight, bias, EPS, w1, b1, w2, b2, gamma if optional else None, True),
    )


def test_without_shortcut_and_scale() -> None:
    inputs = arguments(2, 8, 3, 3, 16)
    x, shortcut, weight, bias, w1, b1, w2, b2, gamma = inputs
    alone = norm_mlp(x, None, (weight, bias, EPS), (w1, b1), (w2, b2), gamma)
    torch.testing.assert_close(alone + shortcut, spelled_out(*inputs), rtol=1e-5, atol=1e-5)
    plain = norm_mlp(x, shortcut, (weight, bias, EPS), (w1, b1), (w2, b2), None)
    torch.testing.assert_close(plain, spelled_out(*inputs[:-1], torch.ones(8)), rtol=1e-5, atol=1e-5)


def test_pointwise_kernels_keep_their_strides() -> None:
    x, shortcut, weight, bias, w1, b1, w2, b2, gamma = arguments(2, 8, 3, 3, 16)
    kernels_ = [w[:, :, None, None].to(memory_format=torch.channels_last).requires_grad_() for w in (w1, w2)]
    norm_mlp(x, shortcut, (weight, bias, EPS), (kernels_[0], b1), (kernels_[1], b2), gamma).sum().backward()
    for kernel in kernels_:
        assert kernel.grad is not None
        assert kernel.grad.shape == kernel.shape
        assert kernel.grad.stride() == kernel.stride()


def test_nothing_is_kept_without_gradients() -> None:
    inputs = arguments(2, 8, 3, 3, 16)
    kept = torch.ops.filtercov.norm_mlp(*inputs[:4], EPS, *inputs[4:], False)[1:]
    assert [tensor.numel() for tensor in kept] == [0, 0, 0]


def test_flops_are_those_of_the_products() -> None:
    inputs = [tensor.requires_grad_() for tensor in arguments(2, 8, 3, 3, 16)]
    counts = []
    for function in (fused, spelled_out):
        with FlopCounterMode(display=False) as counter:
            function(*inputs).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(
    ("position", "wrong", "says"),
    [
        (0, torch.zeros(2, 8, 3), "x must be (N, C, H, W)"),
        (1, torch.zeros(2, 8, 3, 4), "so must be shortcut"),
        (2, torch.zeros(7), "need a weight of (8,)"),
        (3, torch.zeros(8, dtype=torch.float64), "x is torch.float32 but bias torch.float64"),
        (4, torch.zeros(16, 7), "need a w1 of (16, 8)"),
        (5, torch.zeros(15), "needs a b1 of (16,)"),
        (6, torch.zeros(8, 15), "need a w2 of (8, 16)"),
        (6, torch.zeros(8, 16, 3, 3), "need a w2 of (8, 16)"),
        (7, torch.zeros(2), "need a b2 of (8,)"),
        (8, torch.zeros(2), "need a gamma of (8,)"),
    ],
)
def test_what_does_not_belong_together_is_refused(position: int, wrong: Tensor, says: str) -> None:
    inputs = arguments(2, 8, 3, 3, 16)
    inputs[position] = wrong
    with pytest.raises(NormalisationError) as raised:
        fused(*inputs)
    assert says in str(raised.value)


def test_the_backward_operator_refuses_what_the_forward_pass_did_not_keep() -> None:
    inputs = arguments(2, 8, 3, 3, 16)
    _, mean, inverse_std, between = torch.ops.filtercov.norm_mlp(*inputs[:4], EPS, *inputs[4:], True)
    backward = torch.ops.filtercov.norm_mlp_backward
    backward(inputs[1], inputs[0], mean, inverse_std, between, *inputs[2:])
    for kept in ((mean[:-1], inverse_std, between), (mean, inverse_std, between[:, 1:]), (mean, mean[::2], between)):
        with pytest.raises(NormalisationError, match="needs a contiguous"):
            backward(inputs[1], inputs[0], *kept, *inputs[2:])
