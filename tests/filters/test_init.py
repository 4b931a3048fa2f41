"""What `init_` does to the layers of a model, and what it says of it."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import filtercov as fc
from filtercov.errors import CovarianceError, SourceError
from filtercov.filters.assign import first_shared
from tests.filters.layers import depthwise, same, seeded, weights
from tests.reference import brute_force_covariance, usable_covariance


def variance_of(kernel_size, sigma):
    cov = usable_covariance(fc.gaussian_covariance(kernel_size, sigma), "clip")
    return np.trace(cov) / len(cov)


def test_each_layer_gets_the_variance_of_its_sigma():
    net = nn.Sequential(*(depthwise(2048) for _ in range(4)))
    report = fc.init_(net, "cifar-p2", generator=seeded())
    for row, layer in zip(report, net, strict=True):
        assert row.sigma == pytest.approx(fc.PRESETS["cifar-p2"](row.depth))
        assert layer.weight.var().item() == pytest.approx(variance_of(7, row.sigma), rel=0.1)
        assert layer.bias.abs().max() <= 1 / 7  # PyTorch's own; the method does not concern biases


def test_depth_counts_every_depthwise_layer_also_those_left_alone():
    net = nn.Sequential(depthwise(kernel_size=3), depthwise(), depthwise(kernel_size=(1, 3)), depthwise())
    before = weights(net)
    report = fc.init_(net, "figure")
    assert [row.initialised for row in report] == [False, True, False, True]
    assert report[1].sigma == pytest.approx(fc.PRESETS["figure"](1 / 3))
    assert report[0].reason == "3x3 is under min_kernel_size=5"
    assert torch.equal(net[0].weight, before[0])
    assert len(report.skipped) == len(report.initialised) == 2


def test_filter_fn_and_min_kernel_size_choose_the_layers():
    net = nn.Sequential(depthwise(kernel_size=3), depthwise(), depthwise())
    report = fc.init_(net, filter_fn=lambda layer: layer.name != "1", min_kernel_size=1)
    assert [row.initialised for row in report] == [True, False, True]
    assert report[1].reason == "not chosen by filter_fn"


def test_small_filters_are_left_alone_by_the_closed_form_only():
    net = nn.Sequential(depthwise(kernel_size=3), depthwise(kernel_size=(1, 1)), depthwise())
    statistics = fc.FilterStatistics.from_model(net)
    sources = {
        "preset": ("figure", [False, False, True]),
        "σ": (lambda _: 0.5, [False, False, True]),
        "statistics": (statistics, [True, True, True]),
        "layer statistics": (lambda layer: statistics.at(layer.depth), [True, True, True]),
        "covariance": (lambda layer: np.eye(math.prod(layer.kernel_size)), [True, True, True]),
        "some of each": (lambda layer: np.eye(9) if layer.index == 0 else 0.5, [True, False, True]),
    }
    for name, (source, initialised) in sources.items():
        assert [row.initialised for row in fc.init_(net, source)] == initialised, name
        assert [row.initialised for row in fc.init_(net, source, min_kernel_size=1)] == [True] * 3, name
        assert [row.initialised for row in fc.init_(net, source, min_kernel_size=3)] == [True, False, True], name


@pytest.mark.parametrize(
    "sigma",
    [
        np.float64(0.5),
        np.float32(0.5),
        np.float16(0.5),
        np.longdouble(0.5),
        np.array(0.5),
        torch.tensor(0.5),
        torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True),
        Fraction(1, 2),
    ],
    ids=lambda sigma: type(sigma).__name__ + str(getattr(sigma, "dtype", "")),
)
def test_sigma_and_scale_may_be_any_kind_of_real_number(sigma):
    """Also those inside a schedule, and where a schedule of one's own returns them."""
    sources = [lambda _: sigma, fc.QuadraticSchedule(sigma, 0, 0), fc.SawtoothSchedule(lambda _: sigma, (np.int64(2),))]
    nets = [nn.Sequential(depthwise(), depthwise()) for _ in range(4)]
    fc.init_(nets[0], lambda _: 0.5, scale=0.5, generator=seeded())
    for net, source in zip(nets[1:], sources, strict=True):
        report = fc.init_(net, source, scale=sigma, generator=seeded())
        assert all(type(row.sigma) is float and row.sigma == 0.5 for row in report)
        assert same(weights(nets[0])[::2], nn.ParameterList([layer.weight for layer in net]))
    assert fc.gaussian_covariance(3, sigma).tolist() == fc.gaussian_covariance(3, 0.5).tolist()


def test_a_function_may_return_a_closed_form_off_the_middle_or_of_unequal_axes():
    forms = [fc.ClosedForm(0.4, centre=(-0.5, 0.5)), fc.ClosedForm((0.2, 1.5)), fc.ClosedForm((0.2, 1.5))]
    net = nn.Sequential(*(nn.Conv2d(4000, 4000, 5, groups=4000) for _ in forms), nn.Conv2d(4, 4, 3, groups=4))
    report = fc.init_(net, lambda layer: forms[min(layer.index, 2)], seed=0)
    for layer, form in zip(net, forms, strict=False):
        _, found = fc.empirical_covariance(layer.weight.detach()[:, 0])
        wanted = usable_covariance(brute_force_covariance((5, 5), form.sigma, form.centre), "clip")
        assert np.linalg.norm(found - wanted) < 0.12 * np.linalg.norm(wanted)
    assert not torch.equal(net[1].weight, net[2].weight)
    assert report[0].sigma == forms[0]
    assert "σ = 0.4, centre -0.5, 0.5" in str(report)
    assert "σ = 0.2, 1.5 " in str(report)
    assert report[3].reason == "3x3 is under min_kernel_size=5"
    with pytest.raises(CovarianceError, match=r"0: centre: needed a number of pixels from the middle, up to 2.5"):
        fc.init_(net, lambda _: fc.ClosedForm(0.5, centre=9))


def test_a_covariance_may_be_a_tensor_of_any_type():
    cov = torch.eye(49, dtype=torch.bfloat16, requires_grad=True)
    nets = [depthwise(), depthwise()]
    for net, given in zip(nets, (cov, np.eye(49)), strict=True):
        fc.init_(net, lambda _, given=given: given, generator=seeded())
    assert torch.equal(nets[0].weight, nets[1].weight)
    for complex_one in (1j * np.eye(49), 1j * torch.eye(49)):
        with pytest.raises(CovarianceError, match="0: covariance: needed an array of real numbers, got"):
            fc.init_(nn.Sequential(depthwise()), lambda _, given=complex_one: given)


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float8_e4m3fn])
def test_weights_of_eight_bits_are_filled(dtype):
    net = depthwise()
    net.weight = nn.Parameter(net.weight.detach().to(dtype), requires_grad=False)
    fc.init_(net, lambda _: 0.5, generator=seeded())
    assert net.weight.float().isfinite().all()


@pytest.mark.filterwarnings("ignore::filtercov.errors.FiltercovWarning")  # 51 pixels are too many for σ = .8
@pytest.mark.parametrize(
    "layer",
    [
        depthwise(kind=nn.Conv1d, kernel_size=11),
        depthwise(kind=nn.Conv3d, kernel_size=(3, 5, 5)),
        depthwise(multiplier=3),
        depthwise(stride=2, dilation=3),
        depthwise(kernel_size=(51, 5)),
        depthwise(kernel_size=(1, 11)),
        depthwise(kernel_size=8),
        depthwise(channels=2, kernel_size=51),
    ],
    ids=lambda layer: str(layer)[:60],
)
def test_every_kind_of_depthwise_layer_is_initialised(layer):
    [row] = fc.init_(layer, fc.QuadraticSchedule(0.8, 0, 0), generator=seeded())
    assert row.initialised
    assert torch.isfinite(layer.weight).all()
    expected = variance_of(layer.kernel_size, 0.8) if layer.weight[0].numel() < 600 else None
    if expected:
        assert layer.weight.var(correction=0).item() == pytest.approx(expected, rel=0.6)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.double])
def test_types_and_layouts_are_kept_and_do_not_change_the_filters(dtype):
    nets = [nn.Sequential(depthwise(), depthwise()) for _ in range(2)]
    nets[1] = nets[1].to(memory_format=torch.channels_last).to(dtype)
    for net in nets:
        fc.init_(net, generator=seeded())
    for plain, other in zip(*nets, strict=True):
        assert other.weight.dtype == dtype
        torch.testing.assert_close(other.weight.float(), plain.weight.to(dtype).float(), rtol=1e-6, atol=1e-7)


def test_a_weight_shared_between_modules_is_initialised_once():
    net = nn.Sequential(depthwise(), depthwise(), depthwise())
    net[2].weight = net[0].weight
    report = fc.init_(net, generator=seeded())
    assert [row.initialised for row in report] == [True, True, False]
    assert report[2].reason == "shares its weight with 0"
    alone = nn.Sequential(depthwise(), depthwise(), depthwise())
    fc.init_(alone, generator=seeded())
    assert torch.equal(net[0].weight, alone[0].weight)


def test_a_layer_that_is_left_out_but_shares_a_weight_that_is_not_says_so():
    net = nn.Sequential(depthwise(), depthwise(), nn.utils.parametrizations.weight_norm(depthwise()), depthwise())
    prune.identity(net[3], "weight")  # its weight is no parameter, which is no matter where it is left out
    net[1].weight = net[0].weight
    report = fc.init_(net, seed=0, filter_fn=lambda layer: layer.name == "1")
    left_out = "not chosen by filter_fn"
    shares = f"{left_out}, but shares its weight with 1, which was initialised"
    assert [row.reason for row in report] == [shares, "", left_out, left_out]


def test_parametrised_filters_are_set_through_their_parametrisation():
    plain, normed = nn.Sequential(depthwise()), nn.Sequential(parametrizations.weight_norm(depthwise()))
    fc.init_(plain, generator=seeded())
    fc.init_(normed, generator=seeded())
    torch.testing.assert_close(normed[0].weight, plain[0].weight)
    assert [name for name, _ in normed.named_parameters()][1].startswith("0.parametrizations.weight")


def test_compiled_and_parallel_models_are_initialised_inside():
    nets = [nn.Sequential(depthwise()) for _ in range(3)]
    wrapped = [nets[0], torch.compile(nets[1]), nn.DataParallel(nets[2])]
    reports = [fc.init_(net, generator=seeded()) for net in wrapped]
    assert all(torch.equal(net[0].weight, nets[0][0].weight) for net in nets)
    assert [report[0].name for report in reports] == ["0", "0", "0"]


def test_example_input_gives_sigma_by_order_of_execution():
    class Backwards(nn.Sequential):
        def forward(self, x):
            return self[0](self[1](x))

    net = Backwards(depthwise(padding=3), depthwise(padding=3))
    report = fc.init_(net, "figure", example_input=torch.zeros(1, 8, 9, 9))
    assert [(row.name, row.sigma) for row in report] == [("1", 0.5), ("0", 2.5)]


def test_scale_match_keeps_the_variance_of_each_layer():
    net = nn.Sequential(depthwise(64), depthwise(64))
    before = [layer.weight.detach().double().var(correction=0).item() for layer in net]
    fc.init_(net, "cifar-p2", scale="match", generator=seeded())
    for layer, variance in zip(net, before, strict=True):
        assert layer.weight.detach().double().var(correction=0).item() == pytest.approx(variance, rel=1e-5)


def test_a_number_scales_the_filters():
    nets = [nn.Sequential(depthwise()) for _ in range(2)]
    fc.init_(nets[0], generator=seeded())
    fc.init_(nets[1], scale=0.5, generator=seeded())
    torch.testing.assert_close(nets[1][0].weight, 0.5 * nets[0][0].weight)


def test_layers_with_the_same_sigma_share_a_factor_but_not_their_filters():
    net = nn.Sequential(depthwise(), depthwise(kernel_size=9), depthwise())
    fc.init_(net, lambda _: 0.7, generator=seeded())
    again = nn.Sequential(depthwise(), depthwise(kernel_size=9), depthwise())
    fc.init_(again, lambda layer: fc.gaussian_covariance(layer.kernel_size, 0.7), generator=seeded())
    assert not torch.equal(net[0].weight, net[2].weight)
    for a, b in zip(net, again, strict=True):
        torch.testing.assert_close(a.weight, b.weight, rtol=0, atol=1e-5)


def test_the_sawtooth_schedule_follows_the_stages():
    net = nn.Sequential(*(depthwise() for _ in range(5)))
    saw = fc.SawtoothSchedule(fc.QuadraticSchedule(0.1, 1.0, 0.0), (2, 3))
    assert [round(row.sigma, 6) for row in fc.init_(net, saw)] == [0.1, 1.1, 0.1, 0.6, 1.1]
    with pytest.raises(SourceError, match=r"5 depthwise layers, but stages=\(2, 2\) add up to 4"):
        fc.init_(net, fc.SawtoothSchedule(fc.QuadraticSchedule(0.1, 1.0, 0.0), (2, 2)))


def test_the_report_prints_as_a_table():
    net = nn.Sequential(depthwise(kernel_size=3), depthwise(kernel_size=9))
    text = str(fc.init_(net, "cifar-p2"))
    header, first, second, total = text.splitlines()
    assert header.split() == ["layer", "kernel", "channels", "depth", "source", "negative", "outcome"]
    assert "skipped: 3x3 is under" in first
    assert "σ = 1.9" in second
    assert total == "1 of 2 depthwise layers initialised"


def two_parameters_in_the_same_memory():
    net = nn.Sequential(depthwise(), depthwise())
    net[1].weight = nn.Parameter(net[0].weight.data)
    return net


def two_parts_of_a_buffer(parts):
    """A model with two layers whose weights are parts of the same buffer."""
    buffer = torch.randn(16, 2, 7, 7)
    net = nn.Sequential(depthwise(), depthwise())
    for layer, part in zip(net, parts, strict=True):
        layer.weight = nn.Parameter(buffer[part])
    return net


@pytest.mark.parametrize(
    "make",
    [
        two_parameters_in_the_same_memory,
        lambda: two_parts_of_a_buffer([np.s_[:8, :1], np.s_[7:15, :1]]),
        lambda: two_parts_of_a_buffer([np.s_[7:15, :1], np.s_[:8, :1]]),
    ],
    ids=["same", "overlapping", "overlapping, the later one first"],
)
def test_weights_that_share_memory_are_initialised_once(make):
    net = make()
    report = fc.init_(net, seed=0)
    assert [row.reason for row in report] == ["", "shares its weight with 0"]
    fc.init_(alone := nn.Sequential(depthwise(), depthwise()), seed=0)
    assert torch.equal(net[0].weight, alone[0].weight)


def test_weights_beside_each_other_in_a_buffer_are_all_initialised():
    net = two_parts_of_a_buffer([np.s_[:8, :1], np.s_[8:, :1]])
    assert len(fc.init_(net, seed=0).initialised) == 2
    fc.init_(alone := nn.Sequential(depthwise(), depthwise()), seed=0)
    assert all(torch.equal(layer.weight, other.weight) for layer, other in zip(net, alone, strict=True))


def test_weights_without_memory_are_told_apart_as_objects():
    with torch.device("meta"):
        net = nn.Sequential(depthwise(), depthwise(), depthwise())
    net[2].weight = net[0].weight
    layers = fc.depthwise_layers(net)
    assert first_shared(layers) == {layers[2]: layers[0]}
