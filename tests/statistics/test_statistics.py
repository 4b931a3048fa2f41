import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.covariance import nearest_kronecker, resize_covariance
from filtercov.errors import CheckpointError, CovarianceError, ModelError, SourceError


def network(depth=3, width=40, kernel_size=7, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(*(nn.Conv2d(width, width, kernel_size, groups=width) for _ in range(depth)))


def test_statistics_are_the_empirical_ones_of_each_layer():
    net = network()
    statistics = fc.FilterStatistics.from_model(net)
    assert [layer.name for layer in statistics.layers] == ["0", "1", "2"]
    for layer, module in zip(statistics.layers, net, strict=True):
        filters = module.weight.detach().double().reshape(40, 49).numpy()
        assert layer.count == 40
        np.testing.assert_allclose(layer.mean, filters.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(layer.covariance, np.cov(filters, rowvar=False), atol=1e-12)


def test_every_filter_of_a_channel_multiplier_counts():
    statistics = fc.FilterStatistics.from_model(nn.Conv2d(4, 12, 5, groups=4))
    assert statistics.layers[0].count == 12


def test_depth_is_interpolated_linearly():
    statistics = fc.FilterStatistics.from_model(network(depth=3))
    five = statistics.resize(depth=5).layers
    a, b, c = statistics.layers
    for got, expected in zip(five, [(a, a), (a, b), (b, b), (b, c), (c, c)], strict=True):
        np.testing.assert_allclose(got.covariance, (expected[0].covariance + expected[1].covariance) / 2, atol=1e-15)
        np.testing.assert_allclose(got.mean, (expected[0].mean + expected[1].mean) / 2, atol=1e-15)
    assert [layer.name for layer in statistics.resize(depth=3).layers] == ["0", "1", "2"]
    assert five[1].name == "0.5 0 + 0.5 1"
    assert len(statistics.resize(depth=1).layers) == 1


def test_kernel_size_and_depth_are_resized_together():
    resized = fc.FilterStatistics.from_model(network(depth=2)).resize(depth=4, kernel_size=9)
    assert [layer.kernel_size for layer in resized.layers] == [(9, 9)] * 4
    first = fc.FilterStatistics.from_model(network(depth=2)).layers[0]
    np.testing.assert_allclose(resized.layers[0].covariance, resize_covariance(first.covariance, 7, 9))


def test_layers_of_different_kernel_sizes_are_interpolated_at_the_nearer_ones_size():
    net = nn.Sequential(nn.Conv2d(16, 16, 5, groups=16), nn.Conv2d(16, 16, 9, groups=16))
    statistics = fc.FilterStatistics.from_model(net)
    assert [layer.kernel_size[0] for layer in statistics.resize(depth=4).layers] == [5, 5, 9, 9]


def test_kronecker_replaces_every_covariance_by_its_nearest_square():
    statistics = fc.FilterStatistics.from_model(network())
    for before, after in zip(statistics.layers, statistics.kronecker().layers, strict=True):
        A = nearest_kronecker(before.covariance, 7)
        np.testing.assert_allclose(after.covariance, np.kron(A, A), atol=1e-15)
        np.testing.assert_array_equal(after.mean, before.mean)


def test_centred_statistics_have_no_means_and_the_same_covariances():
    statistics = fc.FilterStatistics.from_model(network())
    for before, after in zip(statistics, statistics.centred(), strict=True):
        assert np.any(before.mean)
        assert not np.any(after.mean)
        np.testing.assert_array_equal(after.covariance, before.covariance)
        assert after.of_filters is None  # what was measured is of filters that have a mean


def test_covariance_transfer_gives_a_wider_model_the_statistics_of_a_narrow_one():
    source = network(depth=2, width=60, kernel_size=5)
    with torch.no_grad():
        for i, layer in enumerate(source):
            layer.weight.mul_(1 + i).add_(0.3)
    statistics = fc.FilterStatistics.from_model(source)
    target = network(depth=2, width=20_000, kernel_size=5, seed=1)
    report = fc.init_(target, statistics, generator=torch.Generator().manual_seed(0))
    assert [row.source_layer for row in report] == ["0", "1"]
    got = fc.FilterStatistics.from_model(target)
    for mine, theirs in zip(got.layers, statistics.layers, strict=True):
        np.testing.assert_allclose(mine.mean, theirs.mean, atol=0.01)
        error = np.linalg.norm(mine.covariance - theirs.covariance) / np.linalg.norm(theirs.covariance)
        assert error < 0.05


def test_covariance_transfer_to_a_deeper_model_names_the_layers_it_mixed():
    report = fc.init_(network(depth=3), fc.FilterStatistics.from_model(network(depth=2)))
    assert [row.source_layer for row in report] == ["0", "0.5 0 + 0.5 1", "1"]


def test_another_kernel_size_is_refused_with_the_call_that_would_resize():
    target = network(kernel_size=9)
    before = target[0].weight.detach().clone()
    statistics = fc.FilterStatistics.from_model(network())
    with pytest.raises(SourceError, match=r"0: 9x9 filters, but .* 7x7 .*statistics\.resize\(kernel_size=9\)"):
        fc.init_(target, statistics)
    assert torch.equal(target[0].weight, before)
    assert fc.init_(target, statistics.resize(kernel_size=9))[0].initialised
    assert fc.init_(target, lambda layer: statistics.at(layer.depth, layer.kernel_size))[0].source_layer == "0"


def test_direct_transfer_copies_filters_by_relative_depth():
    source, target = network(depth=2), network(depth=3, seed=5)
    biases = [layer.bias.detach().clone() for layer in target]
    report = fc.copy_filters_(target, source)
    assert [row.source_layer for row in report] == ["0", "1", "1"]
    for layer, row in zip(target, report, strict=True):
        assert torch.equal(layer.weight, source[int(row.source_layer)].weight)
    assert all(torch.equal(layer.bias, bias) for layer, bias in zip(target, biases, strict=True))


@pytest.mark.parametrize("other", [{"width": 41}, {"kernel_size": 5}])
def test_direct_transfer_between_widths_or_kernel_sizes_is_refused(other):
    target = network()
    before = target[0].weight.detach().clone()
    with pytest.raises(ModelError, match=r"copy_filters_: 0 has 40 filters of 7x7, but .*FilterStatistics"):
        fc.copy_filters_(target, network(**other))
    assert torch.equal(target[0].weight, before)


def test_filters_that_are_not_finite_have_no_statistics():
    net = network()
    with torch.no_grad():
        net[1].weight[0, 0, 0, 0] = torch.nan
    with pytest.raises(ModelError, match="1: empirical_covariance: needed finite filters, got 1 nan or inf"):
        fc.FilterStatistics.from_model(net)


def test_statistics_of_nothing_or_at_no_depth_are_refused():
    with pytest.raises(SourceError, match="at least one layer"):
        fc.FilterStatistics(())
    statistics = fc.FilterStatistics.from_model(network())
    with pytest.raises(SourceError, match="depth of at least one layer, got 0"):
        statistics.resize(depth=0)
    with pytest.raises(CovarianceError, match="depth: needed"):
        statistics.at(1.5)
    with pytest.raises(CheckpointError, match="cannot be written"):
        statistics.save("no/such/directory/file.safetensors")


def test_statistics_are_a_sequence_of_layers_that_are_known_by_name_too():
    statistics = fc.FilterStatistics.from_model(network(depth=4))
    first = statistics[:2]
    assert isinstance(first, fc.FilterStatistics)
    assert (len(first), first.source, first[1]) == (2, statistics.source, statistics[1])
    assert statistics[1].name in statistics
    assert statistics[1] in statistics
    assert "nothing" not in statistics
    assert statistics[3] not in first


def test_a_layer_between_one_with_a_single_filter_and_another_has_the_others_count():
    single = fc.LayerStatistics("single", 5, 1, np.zeros(25), np.zeros((25, 25)))
    other = fc.LayerStatistics("other", 5, 64, np.zeros(25), fc.gaussian_covariance(5, 0.8))
    between = fc.FilterStatistics((single, other)).resize(depth=3)
    assert [layer.count for layer in between] == [1, 64, 64]
    assert "nan" not in str(fc.fit_schedule(between).fit)


def test_a_layers_statistics_are_what_they_say_in_plain_types(tmp_path):
    layer = fc.LayerStatistics("conv", [7, 7], np.int64(3), torch.zeros(7, 7), torch.eye(49))
    assert (layer.kernel_size, type(layer.count), layer.mean.shape) == ((7, 7), int, (49,))
    statistics = fc.FilterStatistics((layer for _ in range(1)), source=tmp_path)
    statistics.save(tmp_path / "one")
    again = fc.FilterStatistics.load(tmp_path / "one")
    assert again.to_records() == statistics.to_records()
    assert again.source == str(tmp_path)
    assert fc.LayerStatistics("conv", 7, 3, layer.mean, layer.covariance).kernel_size == (7, 7)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"kernel_size": "7x7"}, "conv: kernel_size: needed a whole number or a tuple"),
        ({"kernel_size": 5}, r"conv: 5x5 filters need a \(25,\) mean"),
        ({"count": 0}, "conv: count: needed a whole number of at least one filter, got 0"),
        ({"count": 2.5}, "conv: count: needed a whole number of at least one filter, got 2.5"),
        ({"mean": np.full(49, np.nan)}, "conv: mean: needed finite numbers"),
        ({"covariance": np.full((49, 49), np.nan)}, "conv: covariance: needed finite numbers"),
        ({"covariance": np.eye(25)}, r"conv: 7x7 filters need a \(49, 49\) covariance"),
    ],
)
def test_a_layers_statistics_that_cannot_be_are_refused(wrong, sentence):
    given = {"name": "conv", "kernel_size": 7, "count": 3, "mean": np.zeros(49), "covariance": np.eye(49)}
    with pytest.raises(CovarianceError, match=f"^{sentence}"):
        fc.LayerStatistics(**{**given, **wrong})


def test_statistics_of_what_are_no_layers_are_refused():
    with pytest.raises(SourceError, match="needed a LayerStatistics for each layer, got 1"):
        fc.FilterStatistics([1])
