"""What `init_` refuses, in a sentence and with every layer as it was."""

import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import filtercov as fc
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, ModelError, NothingChosenError, SourceError
from tests.filters.layers import depthwise, same, weights


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"none of 3 depthwise ones \(2 × 3x3 is under min_kernel_size=5, 1 × 1x3 .*pass min_kernel_size=3 .*Stat"),
        ({"min_kernel_size": 9}, r"\(2 × 3x3 is under min_kernel_size=9, .*pass min_kernel_size=3"),
        ({"source": lambda _: 0.5}, "2 × 3x3 is under min_kernel_size=5"),
        ({"filter_fn": lambda _: False}, r"\(3 × not chosen by filter_fn\); filter_fn is given layers, .* as '0'"),
        ({"filter_fn": lambda layer: layer.index == 1}, r"2 × not chosen by filter_fn, .*pass min_kernel_size=3"),
    ],
)
def test_a_call_that_would_initialise_nothing_says_so(options, message):
    net = nn.Sequential(depthwise(kernel_size=3), depthwise(kernel_size=3), depthwise(kernel_size=(1, 3)))
    before, state = weights(net), torch.random.get_rng_state()
    with pytest.raises(NothingChosenError, match=message) as caught:
        fc.init_(net, **options)
    assert len(str(caught.value).splitlines()) == 1
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert same(before, net)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("bad", [True, np.bool_(True), 10**400, 0, -0.5, np.float32("inf"), torch.tensor(float("nan"))])
def test_a_bad_sigma_is_blamed_on_its_own_layer(bad):
    net = nn.Sequential(*(depthwise() for _ in range(5)))
    before = weights(net)
    with pytest.raises(CovarianceError, match=r"^3: sigma: needed a positive, finite number, got"):
        fc.init_(net, lambda layer: bad if layer.index == 3 else 0.5 + layer.index)
    with pytest.raises(SourceError, match="scale: needed None, 'match' or a positive number, got"):
        fc.init_(net, scale=bad)
    assert same(before, net)


@pytest.mark.parametrize("given", [None, "0.5", {}, fc.FilterStatistics.from_model(depthwise())])
def test_what_is_neither_a_sigma_nor_a_covariance_is_named(given):
    came = "None" if given is None else type(given).__name__
    with pytest.raises(SourceError, match=rf"^0: needed a σ, a covariance \(49, 49\) .*got {came}"):
        fc.init_(nn.Sequential(depthwise()), lambda _: given)


def test_statistics_of_as_many_pixels_in_another_shape_are_refused():
    statistics = fc.FilterStatistics.from_model(depthwise(kernel_size=(3, 5))).at(0)
    with pytest.raises(SourceError, match="5x3 filters, but the statistics at depth 0 are of 3x5 filters"):
        fc.init_(depthwise(kernel_size=(5, 3)), lambda _: statistics)
    with pytest.raises(CovarianceError, match=r"5x5 filters need a \(25,\) mean, got \(9,\)"):
        fc.init_(depthwise(kernel_size=5), lambda _: LayerStatistics("a", (5, 5), 4, np.ones(9), np.eye(25)))


@pytest.mark.parametrize(
    ("dtype", "source", "options"),
    [
        (torch.float16, 0.5, {"scale": 1e6}),
        (torch.bfloat16, 0.5, {"scale": 1e39}),
        (torch.float32, 1e90 * np.eye(49), {}),
    ],
)
def test_filters_too_large_for_the_weights_type_are_refused(dtype, source, options):
    net = nn.Sequential(depthwise(), depthwise()).to(dtype)
    before = weights(net)
    with pytest.raises(CovarianceError, match=rf"^0: needed filters that {dtype} can hold.*smaller σ or scale"):
        fc.init_(net, lambda _: source, **options)
    assert same(before, net)


@pytest.mark.parametrize(("source", "options"), [(1e-3, {}), (0.5, {"scale": 1e-50}), (1e300, {"scale": 1e-60})])
def test_filters_that_would_all_be_rounded_to_zero_are_refused(source, options):
    """Around the middle between pixels, where even kernels are centred, a small σ leaves less than float32 can hold."""
    net = depthwise(kernel_size=8)
    before = weights(net)
    with pytest.raises(CovarianceError, match=r"or too small for torch.float32, or every filter would be zero"):
        fc.init_(net, lambda _: source, **options)
    assert same(before, net)


def test_min_kernel_size_must_be_a_number():
    with pytest.raises(SourceError, match="min_kernel_size: needed a whole number or None, got '5'"):
        fc.init_(depthwise(), min_kernel_size="5")


class Irreversible(nn.Module):
    """A parametrisation that stops to be invertible."""

    broken = False

    def forward(self, weight):
        return weight * 2

    def right_inverse(self, weight):
        if self.broken:
            raise RuntimeError("no inverse")
        return weight / 2


class BadSource:
    """Fails, or returns something bad, for the second layer only."""

    def __init__(self, bad):
        self.bad = bad

    def __call__(self, layer):
        return self.bad if layer.index else np.eye(math.prod(layer.kernel_size))


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("cifar", SourceError, "unknown preset 'cifar', the known ones are cifar-p2, .*did you mean 'cifar-p"),
        (3.0, SourceError, "needed a preset name, a schedule, FilterStatistics or a function"),
        (BadSource(np.eye(9)), CovarianceError, r"1: 7x7 filters need a \(49, 49\) covariance, got \(9, 9\)"),
        (BadSource(np.full((49, 49), np.nan)), CovarianceError, "1: .*2401 nan or inf"),
        (BadSource(-1.0), CovarianceError, "^1: sigma: needed a positive"),
        (BadSource(float("nan")), CovarianceError, "^1: sigma: needed a positive"),
        (BadSource(np.triu(np.ones((49, 49)))), CovarianceError, "1: .*differs from its transpose"),
        (BadSource(np.zeros((49, 49))), CovarianceError, "1: needed a covariance that is not all zero"),
        (lambda layer: 1 / (1 - layer.index), ZeroDivisionError, "division"),
    ],
)
def test_a_bad_source_changes_no_layer(source, error, message):
    net = nn.Sequential(depthwise(), depthwise())
    before = weights(net)
    with pytest.raises(error, match=message):
        fc.init_(net, source)
    assert same(before, net)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"negative": "drop"}, CovarianceError, "needed 'clip' or 'abs'"),
        ({"scale": "fit"}, SourceError, "scale: needed None, 'match' or a positive number"),
        ({"scale": -1.0}, SourceError, "scale: needed"),
    ],
)
def test_bad_options_change_no_layer(options, error, message):
    net = nn.Sequential(depthwise())
    before = weights(net)
    with pytest.raises(error, match=message):
        fc.init_(net, **options)
    assert same(before, net)


def test_a_failure_while_writing_restores_the_layers_already_written():
    net = nn.Sequential(depthwise(), parametrizations.weight_norm(depthwise()), depthwise())
    with torch.no_grad():
        parametrize.register_parametrization(net[2], "weight", Irreversible())
    before = weights(net)
    net[2].parametrizations.weight[0].broken = True
    with pytest.raises(ModelError, match=r"2: its filters cannot be set \(no inverse\); nothing was changed"):
        fc.init_(net)
    assert same(before, net)


def test_weights_that_a_hook_computes_are_refused():
    net = nn.Sequential(depthwise(), depthwise())
    prune.random_unstructured(net[1], "weight", amount=0.5)
    before = weights(net)
    with pytest.raises(ModelError, match="1: needed a weight of its own"):
        fc.init_(net)
    assert same(before, net)
    assert fc.init_(net, filter_fn=lambda layer: layer.name == "0")[0].initialised


def test_the_meta_device_is_refused():
    with torch.device("meta"):
        net = nn.Sequential(depthwise())
    with pytest.raises(ModelError, match=r"0: .*meta device; materialise the model first with model\.to_empty"):
        fc.init_(net)


def test_scale_match_on_constant_weights_is_refused():
    net = nn.Sequential(depthwise())
    nn.init.zeros_(net[0].weight)
    with pytest.raises(ModelError, match="scale='match' needs weights"):
        fc.init_(net, scale="match")


def expanded():
    layer = depthwise()
    layer.weight = nn.Parameter(torch.randn(1, 1, 7, 7).expand(8, 1, 7, 7))
    return layer


def sliding():
    layer = depthwise()
    layer.weight = nn.Parameter(torch.randn(56).as_strided((8, 1, 7, 7), (1, 1, 7, 1)))
    return layer


@pytest.mark.parametrize("odd", [expanded, sliding])
@pytest.mark.parametrize(
    "change", [fc.init_, lambda net: fc.copy_filters_(net, nn.Sequential(*map(depthwise, [8] * 3)))]
)
def test_a_weight_whose_numbers_share_memory_changes_no_layer(odd, change):
    net = nn.Sequential(depthwise(), odd(), depthwise())
    before = weights(net)
    with pytest.raises(
        ModelError, match=r"^1: its filters cannot be set \(its numbers share memory .*nothing was chan"
    ):
        change(net)
    assert same(before, net)


class Interrupted(nn.Module):
    """A parametrisation that Ctrl-C stops."""

    def forward(self, weight):
        return weight

    def right_inverse(self, weight):
        if (weight == weight.flatten()[0]).all():
            return weight
        raise KeyboardInterrupt


class Stubborn(nn.Parameter):
    """A parameter that takes its first new values and no others."""

    taken = 0

    def copy_(self, values):
        self.taken += 1
        if self.taken > 1:
            raise RuntimeError("no more")
        return super().copy_(values)


def test_an_interruption_while_writing_restores_the_layers_already_written():
    net = nn.Sequential(depthwise(), depthwise())
    nn.init.ones_(net[1].weight)
    parametrize.register_parametrization(net[1], "weight", Interrupted())
    before = weights(net)
    with pytest.raises(KeyboardInterrupt):
        fc.init_(net)
    assert same(before, net)


def test_a_tensor_that_cannot_be_restored_does_not_keep_others_from_it():
    net = nn.Sequential(depthwise(), depthwise(), parametrizations.spectral_norm(depthwise()))
    net[1].weight = Stubborn(net[1].weight.detach())
    before = weights(net)
    with pytest.raises(ModelError, match=r"^2: its filters cannot be set"):
        fc.init_(net)
    assert torch.equal(net[0].weight, before[0])
