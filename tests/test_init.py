"""What `init_`, `copy_filters_`, `freeze_` and `thaw_` do to the layers of a model, and what they report."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import filtercov as fc
from filtercov.errors import CovarianceError, FiltercovWarning, ModelError, SourceError
from filtercov.lab import models
from tests.depthwise_layers import depthwise, network, seeded, state, unchanged
from tests.reference import usable_covariance

# The inner product of all weights with cos 0, cos 1, cos 2, …, which any other draw, covariance or order changes and
# rounding hardly does. A SHA-256 of the weights, even as bfloat16, would depend on the processor: where filters fade to
# 1e-9, the digits differ between the kernels of linear algebra libraries.
FINGERPRINTS = {
    ("convmixer_16_4_k9_p2", "cifar-p2"): 7.298368,
    ("convmixer_16_4_k9_p2", "stats:convmixer-64-8-k9-p2"): 3.397543,
    ("convmixer_16_4_k15_p2", "cifar-p1"): -0.840021,
    ("convmixer_16_4_k15_p2", "stats:convmixer-64-8-k15-p2"): 5.873445,
    ("convmixer_16_4_k31_p2", "cifar-p2"): -7.743555,
    ("convnext_atto_div8_p1", "imagenet-thawed"): 1.413961,
    ("convnext_atto_div8_p1", "stats:efficientnet-lite0"): -3.276018,
    ("convnext_tiny_div8_p4", "imagenet-frozen"): 60.828373,
}


@pytest.mark.filterwarnings("ignore::filtercov.errors.FiltercovWarning")
@pytest.mark.parametrize(("model", "source"), FINGERPRINTS)
def test_a_seed_gives_the_filters_it_always_gave(model, source):
    net = models.create(model, num_classes=10)
    fc.init_(net, source, seed=3)
    all_weights = torch.cat([layer.weight.detach().double().flatten() for layer in fc.depthwise_layers(net)])
    found = float(all_weights @ torch.arange(len(all_weights), dtype=torch.double).cos())
    assert found == pytest.approx(FINGERPRINTS[model, source], abs=1e-5)


def test_depth_counts_every_depthwise_layer_also_those_left_alone():
    net = network(3, 7, (1, 3), 7)
    before = state(net)
    report = fc.init_(net, "figure", filter_fn=lambda layer: layer.name != "3")
    assert [row.initialised for row in report] == [False, True, False, False]
    assert report[1].sigma == pytest.approx(fc.PRESETS["figure"](1 / 3))
    assert [report[i].reason for i in (0, 3)] == ["3x3 is under min_kernel_size=5", "not chosen by filter_fn"]
    assert torch.equal(net[0].weight, before["0.weight"])
    assert (len(report.skipped), len(report.initialised), report.preset) == (3, 1, "figure")


def test_small_filters_are_left_alone_by_the_closed_form_only():
    net = network(3, (1, 1), 7)
    statistics = fc.FilterStatistics.from_model(net)
    for source, initialised in (
        ("figure", [False, False, True]),
        (statistics, [True, True, True]),
        (lambda layer: np.eye(math.prod(layer.kernel_size)), [True, True, True]),
        (lambda layer: np.eye(9) if layer.index == 0 else 0.5, [True, False, True]),
    ):
        assert [row.initialised for row in fc.init_(net, source)] == initialised
        assert [row.initialised for row in fc.init_(net, source, min_kernel_size=1)] == [True] * 3
        assert [row.initialised for row in fc.init_(net, source, min_kernel_size=3)] == [True, False, True]


@pytest.mark.filterwarnings("ignore::filtercov.errors.FiltercovWarning")  # 51 pixels are too many for σ = .8
@pytest.mark.parametrize(
    "layer",
    [
        depthwise(2048),
        depthwise(2048, kind=nn.Conv1d, kernel_size=11),
        depthwise(1024, kind=nn.Conv3d, kernel_size=(3, 5, 5)),
        depthwise(512, multiplier=3, stride=2, dilation=3),
        depthwise(1024, kernel_size=(1, 11)),
        depthwise(1024, kernel_size=(51, 5)),
    ],
    ids=lambda layer: str(layer)[:60],
)
def test_every_kind_of_depthwise_layer_gets_filters_of_the_variance_of_its_sigma_and_keeps_its_bias(layer):
    bias = layer.bias.detach().clone()
    [row] = fc.init_(layer, fc.QuadraticSchedule(0.8, 0, 0), generator=seeded())
    cov = usable_covariance(fc.gaussian_covariance(layer.kernel_size, row.sigma), "clip")
    assert layer.weight.var(correction=0).item() == pytest.approx(np.trace(cov) / len(cov), rel=0.1)
    assert torch.equal(layer.bias, bias)


def test_a_weight_shared_between_modules_is_initialised_once():
    net = network(7, 7, 7, 7)
    net[2].weight = net[0].weight
    net[3].weight = nn.Parameter(net[1].weight.data)  # another parameter in the same memory
    report = fc.init_(net, generator=seeded())
    assert [row.initialised for row in report] == [True, True, False, False]
    assert report[2].reason == "shares its weight with 0"
    fc.init_(alone := network(7, 7, 7, 7), generator=seeded())
    assert torch.equal(net[1].weight, alone[1].weight)


def test_parametrised_filters_are_set_through_their_parametrisation():
    fc.init_(plain := depthwise(), seed=0)
    fc.init_(normed := parametrizations.weight_norm(depthwise()), seed=0)
    torch.testing.assert_close(normed.weight, plain.weight)


def test_scale_match_keeps_the_variance_of_each_layer_and_a_number_multiplies():
    net = network(7, 7, width=64)
    before = [layer.weight.detach().double().var(correction=0).item() for layer in net]
    fc.init_(net, "cifar-p2", scale="match", generator=seeded())
    for layer, variance in zip(net, before, strict=True):
        assert layer.weight.detach().double().var(correction=0).item() == pytest.approx(variance, rel=1e-5)
    fc.init_(plain := depthwise(), seed=0)
    fc.init_(half := depthwise(), scale=0.5, seed=0)
    torch.testing.assert_close(half.weight, 0.5 * plain.weight)
    nn.init.zeros_(plain.weight)
    with pytest.raises(ModelError):
        fc.init_(plain, scale="match")


def test_the_sawtooth_schedule_starts_again_in_every_stage():
    net, ramp = network(*[7] * 6), fc.QuadraticSchedule(1.0, 1.0, 0.0)
    report = fc.init_(net, fc.SawtoothSchedule(ramp, (3, 1, 2)))
    assert [row.sigma for row in report] == [1.0, 1.5, 2.0, 1.0, 1.0, 2.0]
    with pytest.raises(SourceError):
        fc.init_(net, fc.SawtoothSchedule(ramp, (2, 2)))
    for stages in ((2, 0), (1.5,)):
        with pytest.raises(CovarianceError):
            fc.SawtoothSchedule(ramp, stages)


def test_large_kernels_that_stay_mostly_empty_are_warned_of():
    words = r"most of the 15x15 filters empty in 2 layers: at most \d+ of 225 pix"
    with pytest.warns(FiltercovWarning, match=words) as found:
        fc.init_(network(15, 15), fc.QuadraticSchedule(0.1, 0.2, 0))
    assert found[0].filename == __file__  # the line that called init_
    fc.init_(depthwise(kernel_size=15), lambda _: 6.0)  # warnings are errors here


def bad_second(bad):
    return lambda layer: bad if layer.index else np.eye(49)


@pytest.mark.parametrize(
    ("source", "options", "error"),
    [
        (bad_second(np.eye(9)), {}, CovarianceError),
        (bad_second(True), {}, CovarianceError),
        (bad_second(None), {}, CovarianceError),
        (bad_second("0.5"), {}, CovarianceError),
        (bad_second(np.zeros((49, 49))), {}, CovarianceError),
        (bad_second(1e90 * np.eye(49)), {}, CovarianceError),  # too large for float32
        (lambda layer: 1 / (1 - layer.index), {}, ZeroDivisionError),
        ("figure", {"negative": "drop"}, CovarianceError),
        ("figure", {"scale": "fit"}, SourceError),
        ("figure", {"scale": 0.0}, SourceError),
        ("figure", {"scale": 1e-50}, CovarianceError),  # all would round to zero
        ("figure", {"min_kernel_size": "5"}, SourceError),
        ("figure", {"filter_fn": lambda _: False}, ModelError),
    ],
)
def test_bad_input_is_refused_before_any_layer_is_changed(source, options, error):
    net = network(7, 7)
    before = state(net)
    with pytest.raises(error):
        fc.init_(net, source, **options)
    assert unchanged(net, before)


# --- Copying and freezing ---


def trains(net):
    return [layer.weight.requires_grad for layer in net]


def test_freezing_touches_the_filters_and_nothing_else():
    net = nn.Sequential(depthwise(), nn.BatchNorm2d(8), parametrizations.weight_norm(depthwise()))
    fc.freeze_(net)
    frozen = [name for name, p in net.named_parameters() if not p.requires_grad]
    assert frozen == ["0.weight", *(f"2.parametrizations.weight.original{i}" for i in range(2))]


def test_a_report_freezes_and_thaws_just_what_was_initialised():
    net = network(3, 7, 3, 5)
    report = fc.init_(net)
    assert fc.freeze_(net, report) is net
    assert trains(net) == [True, False, True, False]
    fc.freeze_(net)
    fc.thaw_(nn.DataParallel(net), report, filter_fn=lambda layer: layer.kernel_size != (5, 5))
    assert trains(net) == [False, True, False, False]


@pytest.mark.filterwarnings("error::filtercov.errors.FiltercovWarning")
def test_freezing_filters_of_the_preset_for_thawed_ones_is_doubted():
    net = network(7)
    with pytest.raises(FiltercovWarning, match=r"'imagenet-thawed'.* 'imagenet-frozen'"):
        fc.freeze_(net, fc.init_(net))
    for source in ("imagenet-frozen", "cifar-p2", fc.PRESETS["imagenet-thawed"]):
        fc.freeze_(net, fc.init_(net, source))


@pytest.mark.parametrize("change", [fc.freeze_, fc.thaw_])
def test_a_choice_that_is_none_or_of_another_model_is_refused(change):
    net = network(3, 7)
    report = fc.init_(net)
    with pytest.raises(ModelError):
        change(net, report, filter_fn=lambda layer: layer.kernel_size == (3, 3))
    for wrong in (fc.init_(network(3, 9)), fc.init_(network(7, 7, 7)), {"0": True}):
        with pytest.raises(ModelError):
            change(net, wrong)
    assert trains(net) == [True, True]


def test_each_layer_takes_the_filters_at_its_relative_depth():
    source, target = network(5, 5, 5, seed=1), network(5, 5, 5, 5, 5)
    report = fc.copy_filters_(target, source)
    assert [row.source_layer for row in report] == ["0", "1", "1", "2", "2"]
    for row, layer in zip(report, target, strict=True):
        assert torch.equal(layer.weight, source[int(row.source_layer)].weight)
    assert not torch.equal(target[0].bias, source[0].bias)
    assert trains(fc.freeze_(target, report)) == [False] * 5


def test_copied_filters_are_rounded_once():
    source, target = depthwise(2000, kernel_size=5).double(), depthwise(2000, kernel_size=5).half()
    fc.init_(source, generator=seeded())
    fc.copy_filters_(target, source)
    np.testing.assert_array_equal(target.weight.detach().numpy(), source.weight.detach().numpy().astype(np.float16))


def test_filters_that_do_not_fit_are_refused_and_change_nothing():
    target = network(5, 7)
    before = state(target)
    for source in (network(5, 5, seed=1), nn.Sequential(depthwise(kernel_size=5), depthwise(16))):
        with pytest.raises(ModelError):
            fc.copy_filters_(target, source)
    assert unchanged(target, before)


def test_a_shared_weight_is_copied_once():
    target = network(5, 5)
    target[1].weight = target[0].weight
    report = fc.copy_filters_(target, source := network(5, 5, seed=1))
    assert [row.initialised for row in report] == [True, False]
    assert torch.equal(target[0].weight, source[0].weight)
