"""The native convolution passes: exact on integers, accurate on real numbers, the same for every thread count."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from filtercov.nn import kernels, native_status
from filtercov.nn.library import Geometry
from tests.nn.oracle import float64_passes, out_padding, shapes, tensors

pytestmark = pytest.mark.skipif(not native_status().available, reason="native kernels not built")
ISAS = native_status().isas
SHAPES = 2100
PARTS = 10
UNIT = 2.0**-24  # unit roundoff of float32


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def passes(g: Geometry, x: Tensor, weight: Tensor, bias: Tensor, grad_y: Tensor, isa: str) -> tuple[Tensor, ...]:
    return (
        kernels.forward(g, x, weight, bias, isa=isa),
        kernels.input_grad(g, grad_y, weight, isa=isa),
        kernels.weight_grad(g, grad_y, x, isa=isa),
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_small_integers_give_float64_results_exactly(part: int) -> None:
    generator = torch.Generator().manual_seed(part)
    for g in list(shapes(SHAPES, seed=0))[part::PARTS]:
        inputs = tensors(g, largest=32, generator=generator)  # few enough terms that every sum stays below 2^24
        wanted = float64_passes(g, *inputs)
        for isa in ISAS:
            for name, a, b in zip(("y", "grad_x", "grad_weight"), passes(g, *inputs, isa), wanted, strict=True):
                assert torch.equal(a.double(), b), f"{name} differs with {isa} for {g}"


@pytest.mark.parametrize("width", [4, 7, 8, 14, 16])
def test_rows_as_wide_as_a_kernel_knows_by_heart_are_exact_too(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    for size in (1, 3, 5, 7, 9, 11):
        for height, channels in ((1, 16), (width, 35)):
            g = Geometry(3, channels, height, width, size, size, size // 2, size // 2, height, width)
            inputs = tensors(g, largest=32, generator=generator)
            wanted = float64_passes(g, *inputs)
            for isa in ISAS:
                results = passes(g, *inputs, isa)
                assert all(torch.equal(a.double(), b) for a, b in zip(results, wanted, strict=True)), (isa, g)


@pytest.mark.parametrize("isa", ISAS)
def test_outputs_too_large_for_a_cache_are_exact_too(isa: str) -> None:
    g = Geometry(2, 16, 444, 445, 3, 3, 1, 1, 444, 445)
    assert 4 * g.batch * g.channels * g.out_height * g.out_width > 24 << 20
    x, weight, bias, grad_y = tensors(g, largest=32, generator=torch.Generator().manual_seed(0))
    y, grad_x, _ = float64_passes(g, x, weight, bias, grad_y)
    assert torch.equal(kernels.forward(g, x, weight, bias, isa=isa).double(), y)
    assert torch.equal(kernels.input_grad(g, grad_y, weight, isa=isa).double(), grad_x)


def test_the_shapes_include_every_kind_asked_for() -> None:
    tried = list(shapes(SHAPES, seed=0))
    assert len(set(tried)) >= 2000
    assert {g.channels for g in tried} == {1, 7, 13, 20, 55, 113, 127, 129, 257}
    assert any(g.batch == 0 for g in tried)
    assert any(g.height == 1 for g in tried)
    assert any(g.width == 1 for g in tried)
    assert any(g.kernel_height > g.height and g.kernel_width > g.width for g in tried)
    assert any(g.kernel_height % 2 == 0 and g.kernel_width % 2 == 0 for g in tried)
    assert any(g.kernel_height != g.kernel_width for g in tried)
    assert any(out_padding(g)[0] != out_padding(g)[1] for g in tried)


REAL = [
    Geometry(8, 48, 16, 16, 9, 9, 4, 4, 16, 16),
    Geometry(4, 33, 30, 30, 7, 7, 3, 3, 30, 30),
    Geometry(4, 20, 14, 14, 15, 15, 7, 7, 14, 14),
    Geometry(2, 17, 70, 70, 5, 5, 2, 2, 70, 70),
    Geometry(3, 16, 8, 8, 31, 31, 15, 15, 8, 8),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("g", REAL, ids=lambda g: f"{g.batch}x{g.channels}x{g.height}x{g.width}-k{g.kernel_height}")
def test_real_numbers_stay_within_the_running_error_bound_and_twice_pytorchs_rms(g: Geometry, isa: str) -> None:
    torch.manual_seed(0)
    x, weight, bias, grad_y = (torch.randn_like(t) for t in tensors(g, largest=1, generator=torch.Generator()))
    wanted = float64_passes(g, x, weight, bias, grad_y)
    magnitude = float64_passes(g, x.abs(), weight.abs(), bias.abs(), grad_y.abs())
    kernel_area, pixels = g.kernel_height * g.kernel_width, g.batch * g.out_height * g.out_width
    terms = kernel_area + 1, kernel_area, pixels
    padding = [g.pad_top, g.pad_left]
    theirs = (
        torch.conv2d(x, weight, bias, padding=padding, groups=g.channels),
        *torch.ops.aten.convolution_backward(
            grad_y, x, weight, None, [1, 1], padding, [1, 1], False, [0, 0], g.channels, [True, True, False]
        )[:2],
    )
    for ours, exact, size, n, other in zip(
        passes(g, x, weight, bias, grad_y, isa), wanted, magnitude, terms, theirs, strict=True
    ):
        gamma = n * UNIT / (1 - n * UNIT)
        assert ((ours.double() - exact).abs() <= gamma * size).all()
        assert (ours.double() - exact).square().mean() <= 4 * (other.double() - exact).square().mean()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.usefixtures("threads")
def test_results_are_identical_for_any_number_of_threads_and_on_rerun(isa: str) -> None:
    torch.manual_seed(0)
    for g in (REAL[0], REAL[1], Geometry(7, 5, 12, 12, 5, 5, 2, 2, 12, 12)):
        inputs = [torch.randn_like(t) for t in tensors(g, largest=1, generator=torch.Generator())]
        results = []
        for count in (1, 2, 3, 2):
            torch.set_num_threads(count)
            results.append((*passes(g, *inputs, isa), kernels.channel_sum(inputs[0], isa=isa)))
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("isa", ISAS)
def test_channel_sum_of_integers_is_exact(isa: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for g in list(shapes(60, seed=1)):
        x, *_ = tensors(g, largest=32, generator=generator)
        assert torch.equal(kernels.channel_sum(x, isa=isa).double(), x.double().sum((0, 2, 3)))


@pytest.mark.parametrize("isa", ISAS)
def test_a_nan_in_one_channel_stays_in_that_channel(isa: str) -> None:
    g = Geometry(2, 20, 9, 9, 5, 5, 2, 2, 9, 9)
    x, weight, bias, grad_y = (torch.randn_like(t) for t in tensors(g, largest=1, generator=torch.Generator()))
    x[:, 3], grad_y[:, 3] = float("nan"), float("nan")
    for result, channel in zip(passes(g, x, weight, bias, grad_y, isa), (1, 1, 0), strict=True):
        bad = result.movedim(channel, 0).flatten(1).isnan()
        assert bad[3].all()
        assert bad.sum() == bad[3].sum()
