"""`copy_filters_`, `freeze_` and `thaw_`: which layers they change, and how."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import filtercov as fc
from filtercov.errors import FiltercovWarning, ModelError
from tests.depthwise_layers import depthwise, network, seeded, state, unchanged


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
