"""What `freeze_` and `thaw_` choose: everything, what a report says was initialised, or what a function picks."""

import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.errors import FiltercovWarning, ModelError, NothingChosenError


def network(*sizes):
    return nn.Sequential(*(nn.Conv2d(8, 8, k, padding=k // 2, groups=8) for k in sizes))


def trains(net):
    return [layer.weight.requires_grad for layer in net]


def test_a_report_freezes_and_thaws_just_what_was_initialised():
    net = network(3, 7, 3, 5)
    report = fc.init_(net)
    assert fc.freeze_(net, report) is net
    assert trains(net) == [True, False, True, False]
    assert all(layer.bias.requires_grad for layer in net)
    fc.freeze_(net)
    fc.thaw_(net, report)
    assert trains(net) == [False, True, False, True]


def test_filter_fn_chooses_among_what_a_report_says():
    net = network(3, 7, 5)
    fc.freeze_(net, fc.init_(net), filter_fn=lambda layer: layer.kernel_size != (7, 7))
    assert trains(net) == [True, True, False]


def test_the_report_of_copied_filters_freezes_them():
    net = network(3, 7)
    fc.freeze_(net, fc.copy_filters_(net, network(3, 7)))
    assert trains(net) == [False, False]


def test_a_shared_weight_is_frozen_with_the_layer_that_was_initialised():
    net = network(7, 7)
    net[1].weight = net[0].weight
    fc.freeze_(net, fc.init_(net))
    assert trains(net) == [False, False]


@pytest.mark.parametrize(("change", "done"), [(fc.freeze_, "frozen"), (fc.thaw_, "thawed")])
def test_a_layer_that_is_left_out_but_shares_a_weight_that_is_not_is_warned_of(change, done):
    net = network(7, 7, 7)
    net[1].weight = net[0].weight
    with pytest.warns(FiltercovWarning, match=f"{change.__name__}: 0 is {done} too, for it shares its weight with 1"):
        change(net, filter_fn=lambda layer: layer.name == "1")
    change(net, filter_fn=lambda layer: layer.name != "2")


def test_a_report_holds_for_the_model_inside_wrappers():
    net = network(3, 7)
    report = fc.init_(net)
    fc.freeze_(nn.DataParallel(net), report)
    assert trains(net) == [True, False]


@pytest.mark.parametrize("change", [fc.freeze_, fc.thaw_])
def test_choosing_nothing_is_refused(change):
    net = network(3, 7)
    with pytest.raises(NothingChosenError, match=r"got none of 2 depthwise ones from filter_fn; .* names such as '0'"):
        change(net, filter_fn=lambda layer: layer.name == "conv_dw")
    report = fc.init_(net)
    with pytest.raises(NothingChosenError, match="from report and filter_fn"):
        change(net, report, filter_fn=lambda layer: layer.kernel_size == (3, 3))
    assert trains(net) == [True, True]


@pytest.mark.parametrize("other", [network(7), network(3, 5)])
def test_the_report_of_another_model_is_refused(other):
    net = network(3, 7)
    report = fc.init_(net)
    with pytest.raises(ModelError, match="which this model has not; pass the report of this very model"):
        fc.freeze_(other, report)
    assert all(trains(other))


def test_what_is_not_a_report_is_refused():
    with pytest.raises(
        ModelError, match=r"needed the report that init_ or copy_filters_ returned, got function; .*filter_fn="
    ):
        fc.freeze_(network(7), lambda _: True)


def test_copying_a_model_to_itself_is_refused():
    net = network(3, 7)
    with pytest.raises(NothingChosenError, match="needed two models, got one as target and as source"):
        fc.copy_filters_(net, nn.DataParallel(net))
    twin = network(3, 7)
    fc.copy_filters_(twin, net)
    assert torch.equal(twin[1].weight, net[1].weight)


def of_integers(layer):
    layer.weight = nn.Parameter(layer.weight.detach().to(torch.int8), requires_grad=False)


def made_in_inference_mode(layer):
    with torch.inference_mode():
        layer.weight = nn.Parameter(torch.ones_like(layer.weight), requires_grad=False)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            of_integers,
            r"got one of torch\.int8; dequantise or convert it first, or leave this layer out with filter_fn",
        ),
        (made_in_inference_mode, r"got one made in torch\.inference_mode\(\); make the model outside of it, or leave"),
    ],
)
def test_thawing_what_cannot_train_is_refused_and_changes_nothing(spoil, message):
    net = fc.freeze_(network(5, 7, 5))
    spoil(net[1])
    with pytest.raises(ModelError, match=rf"^thaw_: 1: needed a weight that can have gradients, {message}"):
        fc.thaw_(net)
    assert trains(net) == [False, False, False]
    fc.freeze_(net)
    fc.thaw_(net, filter_fn=lambda layer: layer.kernel_size == (5, 5))
    assert trains(net) == [True, False, True]
