"""The native convolution passes: exact on integers, accurate on real numbers, the same for every thread count."""

from collections.abc import Iterator
from math import prod

import pytest
import torch
from torch import Tensor

from filtercov.nn import kernels, native_status
from tests.nn.oracle import CONVOLVE, Case, centred, float64_passes, shapes, tensors

pytestmark = pytest.mark.skipif(not native_status().available, reason="native kernels not built")
ISAS = native_status().isas
SHAPES = {1: 1200, 2: 2100, 3: 1200}
PARTS = 6
UNIT = 2.0**-24  # unit roundoff of float32


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def passes(case: Case, x: Tensor, weight: Tensor, bias: Tensor, grad_y: Tensor, isa: str) -> tuple[Tensor, ...]:
    last = case.channels_last
    return (
        kernels.forward(x, weight, bias, case.how, case.out, channels_last=last, isa=isa),
        kernels.input_grad(grad_y, weight, case.how, case.size, channels_last=last, isa=isa),
        kernels.weight_grad(grad_y, x, case.how, case.kernel, isa=isa),
    )


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("axes", SHAPES)
def test_small_integers_give_float64_results_exactly(axes: int, part: int) -> None:
    generator = torch.Generator().manual_seed(part)
    for case in list(shapes(axes, SHAPES[axes], seed=0))[part::PARTS]:
        inputs = tensors(case, largest=32, generator=generator)  # few enough terms that every sum stays below 2^24
        wanted = float64_passes(case, *inputs)
        for isa in ISAS:
            for name, a, b in zip(("y", "grad_x", "grad_weight"), passes(case, *inputs, isa), wanted, strict=True):
                assert torch.equal(a.double(), b), f"{name} differs with {isa} for {case}"


@pytest.mark.parametrize("column", [(11, 1), (5, 1, 1), (1, 5, 1)])
def test_a_filter_that_is_a_column_runs_as_a_row_of_the_turned_image(column: tuple[int, ...]) -> None:
    axis = column.index(max(column)) + 2
    standing = centred(2, 20, (9, 8, 12)[-len(column) :], column)
    inputs = [torch.sin(t) for t in tensors(standing, largest=32, generator=torch.Generator().manual_seed(0))]
    turned = [tensor.transpose(axis, -1) if tensor.dim() > 2 else tensor for tensor in inputs]
    lying = centred(2, 20, tuple(turned[0].shape[2:]), tuple(turned[1].shape[2:]))
    for isa in ISAS:
        for a, b in zip(passes(standing, *inputs, isa), passes(lying, *turned, isa), strict=True):
            assert torch.equal(a.transpose(axis, -1), b)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_images_that_are_slices_of_others_are_read_where_they_lie(axes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    case = centred(2, 20, (9, 10, 11)[:axes], 5)
    x, weight, bias, grad_y = tensors(case, largest=32, generator=generator)
    wide = torch.randn(2, *case.size, 33).movedim(-1, 1)
    rows = torch.randn(2, 23, *case.size[:-1], case.size[-1] + 3)
    wanted = float64_passes(case, x, weight, bias, grad_y)
    for view in (wide[:, 7:27], rows[:, 2:22, ..., 1:-2]):
        view.copy_(x)
        for isa in ISAS:
            for a, b in zip(passes(case, view, weight, bias, grad_y, isa), wanted, strict=True):
                assert torch.equal(a.double(), b)


@pytest.mark.parametrize("width", [4, 7, 8, 14, 16])
def test_rows_as_wide_as_a_kernel_knows_by_heart_are_exact_too(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    for kernel in (1, 3, 5, 7, 9, 11):
        for height, channels in ((1, 16), (width, 35)):
            case = centred(3, channels, (height, width), kernel)
            inputs = tensors(case, largest=32, generator=generator)
            wanted = float64_passes(case, *inputs)
            for isa in ISAS:
                results = passes(case, *inputs, isa)
                assert all(torch.equal(a.double(), b) for a, b in zip(results, wanted, strict=True)), (isa, case)


@pytest.mark.parametrize("isa", ISAS)
def test_outputs_too_large_for_a_cache_are_exact_too(isa: str) -> None:
    case = centred(2, 16, (444, 445), 3)
    assert 4 * case.batch * case.channels * case.out[0] * case.out[1] > 24 << 20
    x, weight, bias, grad_y = tensors(case, largest=32, generator=torch.Generator().manual_seed(0))
    y, grad_x, _ = float64_passes(case, x, weight, bias, grad_y)
    ours, ours_grad, _ = passes(case, x, weight, bias, grad_y, isa)
    assert torch.equal(ours.double(), y)
    assert torch.equal(ours_grad.double(), grad_x)


@pytest.mark.parametrize("axes", SHAPES)
def test_the_shapes_include_every_kind_asked_for(axes: int) -> None:
    tried = list(shapes(axes, SHAPES[axes], seed=0))
    assert len(set(tried)) >= 0.95 * SHAPES[axes]
    assert {case.channels for case in tried} == {1, 7, 13, 20, 55, 113, 127, 129, 257}
    assert {case.channels_last for case in tried} == {True, False}
    assert any(case.batch == 0 for case in tried)
    for axis in range(axes):
        assert any(case.size[axis] == 1 for case in tried)
        assert any(case.kernel[axis] > case.size[axis] for case in tried)
        assert any(case.kernel[axis] % 2 == 0 for case in tried)
        assert {case.how.stride[axis] for case in tried} == {1, 2, 3}
        assert {case.how.dilation[axis] for case in tried} == {1, 2, 3, 4}
        assert any(case.how.padding[2 * axis] != case.how.padding[2 * axis + 1] for case in tried)
        assert any(case.how.stride[axis] > case.kernel[axis] for case in tried)


REAL = [
    centred(8, 48, (16, 16), 9),
    centred(4, 33, (30, 30), 7),
    centred(4, 20, (14, 14), 15),
    centred(2, 17, (70, 70), 5),
    centred(3, 16, (8, 8), 31),
    centred(3, 33, (700,), 31, channels_last=False),
    centred(2, 17, (12, 13, 14), 5),
    Case(4, 33, (29, 30), (7, 7), centred(1, 1, (1, 1), 7).how._replace(stride=(2, 2)), channels_last=False),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", REAL, ids=lambda case: "x".join(map(str, (*case.size, *case.kernel))))
def test_real_numbers_stay_within_the_running_error_bound_and_twice_pytorchs_rms(case: Case, isa: str) -> None:
    torch.manual_seed(0)
    x, weight, bias, grad_y = (torch.randn_like(t) for t in tensors(case, largest=1, generator=torch.Generator()))
    wanted = float64_passes(case, x, weight, bias, grad_y)
    magnitude = float64_passes(case, x.abs(), weight.abs(), bias.abs(), grad_y.abs())
    taps, pixels = prod(case.kernel), case.batch * prod(case.out)
    terms = taps + 1, taps, pixels
    stride, padding, dilation = list(case.how.stride), list(case.how.padding[::2]), list(case.how.dilation)
    none = [0] * len(stride)
    theirs = (
        CONVOLVE[len(case.size)](x, weight, bias, stride, padding, dilation, case.channels),
        *torch.ops.aten.convolution_backward(
            grad_y, x, weight, None, stride, padding, dilation, False, none, case.channels, [True, True, False]
        )[:2],
    )
    for ours, exact, size, n, other in zip(
        passes(case, x, weight, bias, grad_y, isa), wanted, magnitude, terms, theirs, strict=True
    ):
        gamma = n * UNIT / (1 - n * UNIT)
        assert ((ours.double() - exact).abs() <= gamma * size).all()
        assert (ours.double() - exact).square().mean() <= 4 * (other.double() - exact).square().mean()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.usefixtures("threads")
def test_results_are_identical_for_any_number_of_threads_and_on_rerun(isa: str) -> None:
    torch.manual_seed(0)
    for case in (*REAL[:2], *REAL[5:], centred(7, 5, (12, 12), 5)):
        inputs = [torch.randn_like(t) for t in tensors(case, largest=1, generator=torch.Generator())]
        results = []
        for count in (1, 2, 3, 2):
            torch.set_num_threads(count)
            sums = kernels.channel_sum(inputs[0].movedim(1, -1).contiguous().movedim(-1, 1), isa=isa)
            results.append((*passes(case, *inputs, isa), sums))
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_channel_sum_of_integers_is_exact(axes: int, isa: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for case in list(shapes(axes, 60, seed=1)):
        x, *_ = tensors(case._replace(channels_last=True), largest=32, generator=generator)
        assert torch.equal(kernels.channel_sum(x, isa=isa).double(), x.double().sum((0, *range(2, 2 + axes))))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("channels_last", [True, False])
def test_a_nan_in_one_channel_stays_in_that_channel(channels_last: bool, isa: str) -> None:
    case = centred(2, 20, (9, 9), 5, channels_last=channels_last)
    x, weight, bias, grad_y = (torch.randn_like(t) for t in tensors(case, largest=1, generator=torch.Generator()))
    x[:, 3], grad_y[:, 3] = float("nan"), float("nan")
    for result, channel in zip(passes(case, x, weight, bias, grad_y, isa), (1, 1, 0), strict=True):
        bad = result.movedim(channel, 0).flatten(1).isnan()
        assert bad[3].all()
        assert bad.sum() == bad[3].sum()
