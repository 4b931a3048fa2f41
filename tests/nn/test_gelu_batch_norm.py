"""GELU + BatchNorm in one operator: PyTorch's values, gradients, running statistics and behaviour."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from filtercov.nn import FusedSequential, gelu_batch_norm, kernels, native_status
from tests.nn.wrapping import double_output_

needs_native = pytest.mark.skipif(not native_status().available, reason="native kernels not built")
ISAS = native_status().isas or ("none",)
SHAPES = [(8, 48, 16, 16), (3, 101, 5, 5), (2, 1, 5, 5), (3, 7, 9, 4), (16, 33, 3, 3), (1, 16, 1, 2), (64, 5, 1, 1)]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def channels_last(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def unfused(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None = None) -> Tensor:
    y = functional.batch_norm(functional.gelu(x), None, None, weight, bias, training=True)
    return y if residual is None else y + residual


def all_results(
    x: Tensor, weight: Tensor, bias: Tensor, grad_y: Tensor, residual: Tensor | None = None
) -> tuple[Tensor, ...]:
    inputs = [t.detach().requires_grad_() for t in (x, weight, bias)]
    y = unfused(*inputs, residual)
    return y.detach(), *torch.autograd.grad(y, inputs, grad_y)


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_values_and_gradients_are_as_accurate_as_pytorchs(shape: tuple[int, ...], isa: str, offset: float) -> None:
    x, grad_y = channels_last(*shape) * 2 + offset, channels_last(*shape)
    weight, bias, residual = torch.randn(shape[1]), torch.randn(shape[1]), channels_last(*shape)
    y, moments = kernels.gelu_batch_norm(x, weight, bias, 1e-5, residual, isa=isa)
    ours = y, *kernels.gelu_batch_norm_backward(grad_y, x, weight, moments.mean, moments.inverse_std, isa=isa)
    theirs = all_results(x, weight, bias, grad_y, residual)
    exact = all_results(*(t.double() for t in (x, weight, bias, grad_y, residual)))
    without, _ = kernels.gelu_batch_norm(x, weight, bias, 1e-5, isa=isa)
    assert torch.equal(y, without + residual)
    for a, b, e in zip(ours, theirs, exact, strict=True):
        error, other = (a.double() - e).norm(), (b.double() - e).norm()
        assert error <= 2 * other + 1e-6 * e.norm() + 1e-9


@needs_native
@pytest.mark.parametrize("isa", ISAS)
def test_gelu_is_accurate_over_the_whole_range_of_float32(isa: str) -> None:
    # With weight 1 and eps 1 the operator is affine in GELU(x): undo it to see the activation itself.
    line = torch.cat([torch.linspace(-15, 15, 60001), torch.tensor([0.0, -0.0, 1e-30, -1e-30, 40.0, -40.0, 1e4, -1e4])])
    ends = torch.tensor([-1e4, 1e4])
    for values in line.split(16):
        x = torch.cat([values, ends])[:, None, None, None]
        exact = functional.gelu(x.double())
        _, moments = kernels.gelu_batch_norm(x, torch.ones(1), torch.zeros(1), 1.0, isa=isa)
        assert abs(moments.mean.double() - exact.mean()) <= 2e-7 * exact.abs().mean()
    y, moments = kernels.gelu_batch_norm(line[:60001, None, None, None], torch.ones(1), torch.zeros(1), 0.0, isa=isa)
    activation = y.double() / moments.inverse_std.double() + moments.mean.double()
    assert (activation.flatten() - functional.gelu(line[:60001].double())).abs().max() <= 2e-6


@needs_native
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.usefixtures("threads")
def test_results_are_identical_for_any_number_of_threads(isa: str) -> None:
    x, grad_y, weight, bias = channels_last(6, 37, 15, 15), channels_last(6, 37, 15, 15), torch.rand(37), torch.rand(37)
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        y, moments = kernels.gelu_batch_norm(x, weight, bias, 1e-5, grad_y, isa=isa)
        grads = kernels.gelu_batch_norm_backward(grad_y, x, weight, moments.mean, moments.inverse_std, isa=isa)
        results.append((y, *moments, *grads))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_gradients_agree_with_finite_differences_to_second_order() -> None:
    x = channels_last(3, 2, 2, 2).double().requires_grad_()
    weight, bias = (torch.randn(2, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def output(*tensors: Tensor) -> Tensor:
        return gelu_batch_norm(*tensors, 1e-5)[0]

    assert torch.autograd.gradcheck(output, (x, weight, bias))
    assert torch.autograd.gradgradcheck(output, (x, weight, bias))

    def output_with_residual(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        return gelu_batch_norm(x, weight, bias, 1e-5, residual)[0]

    residual = channels_last(3, 2, 2, 2).double().requires_grad_()
    assert torch.autograd.gradcheck(output_with_residual, (x, weight, bias, residual))
    assert torch.autograd.gradgradcheck(output_with_residual, (x, weight, bias, residual))


def test_the_gradient_of_the_residual_is_that_of_the_output_and_no_copy() -> None:
    x, residual, grad_y = (channels_last(2, 8, 3, 3) for _ in range(3))
    residual.requires_grad_()
    y, *_ = gelu_batch_norm(x, torch.ones(8), torch.zeros(8), 1e-5, residual)
    (grad,) = torch.autograd.grad(y, residual, grad_y)
    assert torch.equal(grad, grad_y)
    assert grad.data_ptr() == grad_y.data_ptr()


def test_a_residual_that_needs_no_gradient_gets_none() -> None:
    x = channels_last(2, 8, 3, 3).requires_grad_()
    residual = channels_last(2, 8, 3, 3)
    y, *_ = gelu_batch_norm(x, torch.ones(8), torch.zeros(8), 1e-5, residual)
    y.sum().backward()
    assert residual.grad is None


def pair(**options: object) -> tuple[nn.Sequential, FusedSequential]:
    plain = nn.Sequential(nn.Conv2d(3, 20, 1), nn.GELU(), nn.BatchNorm2d(20, **options))  # type: ignore[arg-type]
    fused = copy.deepcopy(plain)
    fused.__class__ = FusedSequential
    return plain, fused  # type: ignore[return-value]


@pytest.mark.parametrize(
    "options", [{}, {"momentum": None}, {"momentum": 0.3, "eps": 1e-2}, {"track_running_stats": False}]
)
def test_running_statistics_follow_batch_norms(options: dict[str, object]) -> None:
    plain, fused = pair(**options)
    for _ in range(3):
        x = channels_last(4, 3, 7, 7)
        assert torch.allclose(plain(x), fused(x), atol=1e-5)
    assert list(plain.state_dict()) == list(fused.state_dict())
    for key, value in plain.state_dict().items():
        assert torch.allclose(value, fused.state_dict()[key], rtol=1e-5, atol=1e-6), key
    x = channels_last(4, 3, 7, 7)
    assert torch.allclose(plain.eval()(x), fused.eval()(x), atol=1e-5)


def without_count(norm: nn.BatchNorm2d) -> None:
    norm.num_batches_tracked = None


def without_count_or_momentum(norm: nn.BatchNorm2d) -> None:
    norm.num_batches_tracked = norm.momentum = None  # type: ignore[assignment]


def without_statistics(norm: nn.BatchNorm2d) -> None:
    norm.running_mean = norm.running_var = None


def without_statistics_or_momentum(norm: nn.BatchNorm2d) -> None:
    norm.running_mean = norm.running_var = norm.momentum = None  # type: ignore[assignment]


def no_longer_tracking(norm: nn.BatchNorm2d) -> None:
    norm.track_running_stats = False


def tracking_nothing(norm: nn.BatchNorm2d) -> None:
    norm.running_mean = norm.running_var = norm.num_batches_tracked = None


def with_all_of_each_batch(norm: nn.BatchNorm2d) -> None:
    norm.momentum = 1.0


def without_bias(norm: nn.BatchNorm2d) -> None:
    norm.bias = None  # type: ignore[assignment]


def without_weight(norm: nn.BatchNorm2d) -> None:
    norm.weight = None  # type: ignore[assignment]


ALTERATIONS = [
    without_count,
    without_count_or_momentum,
    without_statistics,
    without_statistics_or_momentum,
    no_longer_tracking,
    tracking_nothing,
    with_all_of_each_batch,
    without_bias,
    without_weight,
]


def assert_same_statistics(plain: nn.Sequential, fused: nn.Sequential, at: int) -> None:
    """Run both three times; outputs, and the running statistics of the norm at that place, must agree."""
    for _ in range(3):
        x = channels_last(4, 3, 7, 7) + 1
        assert torch.allclose(plain(x), fused(x), atol=1e-5)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        theirs, ours = getattr(plain[at], name), getattr(fused[at], name)
        assert (theirs is None) == (ours is None)
        assert theirs is None or torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6), name


@pytest.mark.parametrize("alter", ALTERATIONS)
def test_statistics_are_kept_as_batch_norm_keeps_them_whatever_it_lacks(
    alter: Callable[[nn.BatchNorm2d], None],
) -> None:
    plain, fused = pair()
    for net in (plain, fused):
        alter(net[2])
    assert_same_statistics(plain, fused, 2)


@pytest.mark.parametrize("missing", ["running_mean", "running_var"])
def test_one_statistic_without_the_other_is_refused_as_by_batch_norm(missing: str) -> None:
    for net in pair():
        setattr(net[2], missing, None)
        with pytest.raises((RuntimeError, ValueError), match="running_mean"):
            net(channels_last(4, 3, 7, 7))


def test_no_eps_is_treated_as_by_batch_norm() -> None:
    outcomes = []
    for net in pair(eps=0.0):
        try:
            outcomes.append(net(channels_last(4, 3, 7, 7)).shape)
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_the_cumulative_average_does_not_depend_on_the_default_dtype() -> None:
    plain, fused = pair(momentum=None)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        x = torch.randn(4, 3, 7, 7, dtype=torch.float32).to(memory_format=torch.channels_last)
        assert torch.allclose(plain(x), fused(x), atol=1e-5)
    finally:
        torch.set_default_dtype(before)
    assert torch.allclose(plain[2].running_var, fused[2].running_var, rtol=1e-5)


def operators_of(net: nn.Module, x: Tensor) -> set[str]:
    with torch.profiler.profile() as profile:
        net(x)
    return {event.key for event in profile.key_averages()}


@needs_native
def test_the_pair_is_fused_only_where_nobody_can_notice() -> None:
    x = channels_last(4, 3, 7, 7)
    assert "filtercov::gelu_batch_norm" in operators_of(pair()[1], x)

    seen: list[Tensor] = []
    hooked = pair()[1]
    hooked[1].register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    assert "filtercov::gelu_batch_norm" not in operators_of(hooked, x)
    assert torch.equal(seen[0], functional.gelu(hooked[0](x)))

    for part in (1, 2):
        plain, patched = pair()
        for net in (plain, patched):
            double_output_(net[part])
        assert "filtercov::gelu_batch_norm" not in operators_of(patched, x)
        assert torch.allclose(patched(x), plain(x), atol=1e-5)

    assert "filtercov::gelu_batch_norm" not in operators_of(pair()[1].eval(), x)
    assert "filtercov::gelu_batch_norm" not in operators_of(pair()[1].double(), x.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert "filtercov::gelu_batch_norm" not in operators_of(pair()[1], x)


def test_slices_and_parts_of_a_fused_sequential_mean_what_they_say() -> None:
    plain, fused = pair()
    x = channels_last(4, 3, 7, 7)
    assert torch.allclose(fused[:2](x), plain[:2](x), atol=1e-6)
    assert torch.allclose(fused[1](x), functional.gelu(x))


def test_one_value_per_channel_is_refused_as_by_batch_norm() -> None:
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        pair()[1](channels_last(1, 3, 1, 1))


def test_a_compiled_fused_sequential_gives_the_same_result() -> None:
    _, fused = pair()
    other = copy.deepcopy(fused)
    x = channels_last(4, 3, 7, 7)
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), fused(x), atol=1e-6)
    assert torch.allclose(other[2].running_var, fused[2].running_var)
