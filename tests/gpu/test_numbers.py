"""The Triton kernels in Triton's interpreter: their numbers, on a CPU."""
# ruff: noqa: E402

from itertools import count
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

triton = pytest.importorskip("triton", reason="triton is not installed: `make test-gpu` installs it")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton's interpreter is off: `make test-gpu` sets TRITON_INTERPRET=1", allow_module_level=True)

from filtercov.errors import KernelError
from filtercov.nn import gpu
from filtercov.nn.geometry import Geometry
from filtercov.nn.gpu import launch
from filtercov.nn.gpu.tiles import Tile
from tests.gpu.cases import LAUNCHES, PASSES, expected, rounded, stored
from tests.nn.support import Case

ERRORS = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-7}  # of rounding, relative; see `rounded`


def computed(which, image, weight, bias, grad, edges, tile=None):
    if which == "forward":
        return launch.forward(image, weight, bias, edges, tile=tile)
    if which == "input_grad":
        last = image.stride(1) == 1
        return launch.input_gradient(grad, weight, edges, image.shape[2:], channels_last=last, tile=tile)
    return launch.weight_gradient(grad, image, edges, weight.shape[2:], tile=tile)


@pytest.mark.parametrize("launch_", LAUNCHES, ids=str)
def test_small_integers_come_out_exactly(launch_):
    case, which, dtype, _, tile = launch_
    numbers = launch_.tensors(real=False)
    result = computed(which, *numbers, case.geometry.padding, tile)
    exact, _ = expected(which, *numbers, case.geometry.padding)
    assert result.dtype == dtype
    assert torch.equal(result, rounded(exact, dtype))  # sums are whole numbers below 2**24, rounded once


@pytest.mark.parametrize("launch_", LAUNCHES[::11], ids=str)
def test_real_numbers_err_by_the_rounding_of_sums_in_float32(launch_):
    case, which, dtype, _, tile = launch_
    numbers = launch_.tensors(real=True)
    result = computed(which, *numbers, case.geometry.padding, tile)
    exact, size = expected(which, *numbers, case.geometry.padding)
    # A sum of n products errs by at most n roundings of its size; n is the taps, or for the weight gradient the pixels.
    terms = numbers[3][:, 0].numel() if which == "weight_grad" else numbers[1][0].numel()
    bound = (terms + 1) * ERRORS[torch.float32] * size + ERRORS[dtype] * exact.abs() + 2**-25
    assert (result.double() - exact).abs().le(bound).all()


def small(layout="first", shape=(2, 3, 5, 6), kernel=(3, 4)):
    case = Case(shape[0], shape[1], shape[2:], kernel, Geometry((0,) * 4, (1, 1), (1, 1)))
    image, weight, bias, _ = case.tensors(torch.Generator().manual_seed(2), largest=16)
    return stored(image, layout), weight, bias


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("padding", [0, (2, 1), "same", "valid"])
def test_the_way_in_does_what_conv2d_does(layout, padding):
    image, weight, bias = small(layout, kernel=(3, 3))
    result = gpu.depthwise_conv2d(image, weight, bias, padding=padding)
    assert torch.equal(result, functional.conv2d(image, weight, bias, padding=padding, groups=3))
    assert (result.stride(1) == 1) == (layout == "last")


# Finite differences of a bilinear function are exact: steps of one, and numbers that float32 adds exactly.
@pytest.mark.filterwarnings("ignore:Input .* requires gradient and is not a double precision")
@pytest.mark.parametrize("layout", ["first", "last"])
def test_gradients_are_those_of_finite_differences(layout):
    image, weight, bias = small(layout, shape=(1, 2, 2, 3), kernel=(2, 2))
    inputs = [tensor.clone().requires_grad_() for tensor in (image, weight, bias)]

    def function(image, weight, bias):
        return gpu.depthwise_conv2d(image, weight, bias, padding=1)

    assert gradcheck(function, inputs, eps=1.0, atol=1e-6)
    assert gradgradcheck(function, [*inputs[:2], bias], [torch.ones(1, 2, 3, 4)], eps=1.0, atol=1e-6)


ODD = {  # images, and gradients of their outputs for padding of one or two
    "empty batch": (torch.zeros(0, 3, 5, 6), torch.zeros(0, 3, 5, 7)),
    "single pixel": (torch.ones(1, 3, 1, 1), torch.ones(1, 3, 1, 2)),
    "memory that repeats itself": (torch.arange(6.0).expand(2, 3, 5, 6), torch.ones(1).expand(2, 3, 5, 7)),
}


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("odd", ODD)
def test_odd_images_are_computed_like_others(which, odd):
    (image, grad), (_, weight, bias), edges = ODD[odd], small(), (1, 1, 2, 2)
    result = computed(which, image, weight, bias, grad, edges)
    assert torch.equal(result.double(), expected(which, image, weight, bias, grad, edges)[0])


@pytest.mark.parametrize("programs", [1, 4, 1024])
def test_the_weight_gradient_has_the_same_bits_in_every_run_and_is_right_however_it_is_divided(monkeypatch, programs):
    monkeypatch.setattr(launch, "PROGRAMS", programs)
    generator = torch.Generator().manual_seed(3)
    image, grad = torch.randn(2, 2, 3, 9, 10, generator=generator)
    results = [launch.weight_gradient(grad, image, (1, 1, 1, 1), (3, 3), tile=Tile(4, 8, 4, 3)) for _ in range(2)]
    assert torch.equal(*results)
    exact, size = expected("weight_grad", image, torch.zeros(3, 1, 3, 3), torch.zeros(3), grad, (1, 1, 1, 1))
    assert (results[0].double() - exact).abs().le(200 * 2**-24 * size).all()


@pytest.mark.parametrize(
    ("change", "padding"),
    [
        ({"image": torch.zeros(2, 3, 5)}, 0),
        ({"weight": torch.zeros(3, 2, 3, 3)}, 0),
        ({"weight": torch.zeros(3, 1, 3, 3, dtype=torch.float16)}, 0),
        ({"weight": torch.zeros(3, 1, 32, 3)}, 32),
        ({"bias": torch.zeros(4)}, 0),
        ({"image": torch.zeros(2, 3, 5, 6).double(), "weight": torch.zeros(3, 1, 3, 3).double(), "bias": None}, 0),
        ({"image": torch.zeros(2, 3, 2, 2)}, 0),
        ({}, -1),
    ],
)
def test_what_cannot_be_computed_is_refused(change, padding):
    numbers = dict(zip(("image", "weight", "bias"), small(), strict=True)) | change
    with pytest.raises(KernelError):
        gpu.depthwise_conv2d(*numbers.values(), padding=padding)


def test_images_beyond_the_reach_of_32_bits_are_refused(monkeypatch):
    monkeypatch.setattr(gpu, "LARGEST_OFFSET", 90)  # one image spans 3 * 5 * 6
    with pytest.raises(KernelError):
        gpu.depthwise_conv2d(*small())


@pytest.mark.parametrize(("name", "spilling"), [("convolve", PASSES[:2]), ("correlate", PASSES[2:])])
@pytest.mark.parametrize(("shape", "kernel"), [((2, 3, 8, 8), (5, 5)), ((2, 3, 20), (5,))])
def test_a_pass_whose_compiled_kernel_spills_is_told_from_others(monkeypatch, name, spilling, shape, kernel):
    class Kernel:
        def __getitem__(self, programs):
            return lambda *_, **__: SimpleNamespace(n_spills=4)

    monkeypatch.setattr(launch.kernels, name, Kernel())
    geometry = Geometry((2,) * 2 * len(kernel), (1,) * len(kernel), (1,) * len(kernel))
    assert not gpu.spills(spilling[0], torch.zeros(shape), kernel, geometry)  # in the interpreter
    monkeypatch.setattr(gpu, "INTERPRETED", False)
    assert tuple(w for w in PASSES if gpu.spills(w, torch.zeros(shape), kernel, geometry)) == spilling


def test_the_clock_adds_up_the_times_between_events(monkeypatch):
    made = count()

    def event(*, enable_timing):
        assert enable_timing
        at = 250.0 * next(made)
        return Mock(at=at, elapsed_time=lambda later: later.at - at)

    monkeypatch.setattr(torch.cuda, "Event", event)
    clock = gpu.cuda_clock()
    assert [clock(), clock(), clock()] == [0.25, 0.5, 0.75]
