"""What is left of statistics at another kernel size is measured, kept, shown, and doubted where it is little."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.errors import CheckpointError, FiltercovWarning
from filtercov.files import NAME
from filtercov.statistics import statistics_file


def network(kernel_size, layers=2, width=64):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Conv2d(width, width, kernel_size, groups=width) for _ in range(layers)))


def drawn(kernel_size, sigma, **more):
    net = network(kernel_size, **more)
    fc.init_(net, lambda _layer: sigma, min_kernel_size=1)
    return fc.FilterStatistics.from_model(net)


def resized(statistics, **to):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FiltercovWarning)
        return statistics.resize(**to)


def by_loops(before, k, after, to):
    """(survives, padding), pixel pair by pixel pair: both filters on one grid, their centres together."""
    largest = max(k, to)
    pixels = [(i, j) for i in range(largest) for j in range(largest)]

    def entry(cov, size, p, q):
        shift = (largest - size) // 2
        (a, b), (c, d) = ((i - shift, j - shift) for i, j in (p, q))
        inside = all(0 <= x < size for x in (a, b, c, d))
        return cov[a * size + b, c * size + d] if inside else 0.0

    old, new = (
        np.array([entry(cov, s, p, q) for p in pixels for q in pixels]) for cov, s in ((before, k), (after, to))
    )
    side = (largest - k) // 2
    own = [entry(after, to, p, p) for p in pixels if all(side <= i < side + k for i in p)]
    cosine = old @ new / np.linalg.norm(old) / np.linalg.norm(new)
    return cosine**2, 1 - sum(own) / np.trace(after)


@pytest.mark.parametrize(("k", "to"), [(3, 7), (7, 3), (5, 7), (7, 5), (5, 5), (4, 6)])
def test_what_survives_is_what_a_loop_over_pixels_finds(k, to):
    statistics = drawn(k, 0.8)
    layer = resized(statistics, kernel_size=to)[0]
    if k == to:
        assert layer.resized is None
        return
    survives, padding = by_loops(statistics[0].covariance, k, layer.covariance, to)
    assert layer.resized.from_size == (k, k)
    assert layer.resized.survives == pytest.approx(survives)
    assert layer.resized.padding == pytest.approx(padding, abs=1e-12)


def test_enlarging_much_is_doubted_and_a_little_is_not():
    small = drawn(3, 2.0)
    with pytest.warns(
        FiltercovWarning, match=r"2 layers resized from 3x3 to 7x7: .* lies in the padding; statistics of"
    ):
        large = small.resize(kernel_size=7)
    assert all(layer.resized.padding > 0.5 for layer in large)
    assert len(large.notes) == len(small.notes) + 1
    little = drawn(7, 0.8).resize(kernel_size=9)
    assert little.notes == ()
    assert all(layer.resized.survives > 0.7 for layer in little)


def test_two_steps_are_one_resizing_from_where_it_began():
    layer = resized(resized(drawn(3, 0.8), kernel_size=5), kernel_size=9)[0]
    first = resized(drawn(3, 0.8), kernel_size=5)[0]
    second = fc.LayerStatistics("", (5, 5), 64, first.mean, first.covariance).resize(9)
    assert layer.resized.from_size == (3, 3)
    assert layer.resized.survives == pytest.approx(first.resized.survives * second.resized.survives)


def test_a_layer_between_two_has_the_mean_of_what_survives():
    statistics = drawn(5, 0.8)
    whole = resized(statistics, kernel_size=9)
    between = statistics.at(0.25, 9)
    expected = 0.75 * whole[0].resized.survives + 0.25 * whole[1].resized.survives
    assert between.resized.survives == pytest.approx(expected)


def test_files_keep_what_survived(tmp_path):
    layers = resized(drawn(3, 2.0), kernel_size=7)
    layers.save(tmp_path / "large.stats")
    again = fc.FilterStatistics.load(tmp_path / "large.stats")
    assert [layer.resized for layer in again] == [layer.resized for layer in layers]
    assert again.notes == layers.notes
    with pytest.warns(FiltercovWarning, match="init_: 2 layers resized from 3x3 to 7x7"):
        report = fc.init_(network(7), again)
    assert report[0].resized == layers[0].resized
    assert "note: 2 layers resized from 3x3 to 7x7" in str(report)
    assert "0, 3x3" in str(report)


def test_shares_stay_within_zero_and_one_and_can_be_loaded_again(tmp_path):
    """Where all that varies is in the middle row, all of it survives, to the last bit or one more."""
    for seed in range(16):
        torch.manual_seed(seed)
        layer = nn.Conv2d(16, 16, 3, groups=16)
        layer.weight.data[:, :, ::2] = 0
        narrow = fc.FilterStatistics.from_model(layer).resize(kernel_size=(1, 3))
        narrow.save(tmp_path / "narrow")
        again = fc.FilterStatistics.load(tmp_path / "narrow")
        assert again[0].resized.survives == pytest.approx(1.0)


def test_files_with_impossible_shares_are_refused(tmp_path):
    layer = drawn(3, 2.0)[0]
    entry = {"name": "a", "kernel_size": [3, 3], "count": 4}
    bad = {"from_size": [3, 3], "survives": 7.0, "padding": 0.0}
    statistics_file.write(
        tmp_path / "bad",
        [(layer.mean, layer.covariance)],
        {"source": "", "notes": [], "layers": [{**entry, "resized": bad}]},
    )
    with pytest.raises(CheckpointError, match="needed shares from 0 to 1"):
        fc.FilterStatistics.load(tmp_path / "bad")


def test_large_kernels_that_stay_mostly_empty_are_doubted():
    net = network(31, layers=5, width=4)
    with pytest.warns(FiltercovWarning, match=r"31x31 filters empty in 5 layers: 9 to 69 of 961 pixels"):
        report = fc.init_(net)
    assert [row.filled for row in report][::4] == [9, 69]
    assert fc.init_(net, lambda _layer: 12.0).notes == ()
    assert fc.init_(network(9, layers=5, width=4)).notes == ()  # first layers are meant to be one spot
    assert fc.init_(network(15, layers=5, width=4), "cifar-p2").notes == ()


def test_filled_counts_pixels_by_the_standard_deviation_of_many_filters():
    net = network(7, layers=1, width=60_000)
    report = fc.init_(net, lambda _layer: 0.3, generator=torch.Generator().manual_seed(0))
    deviation = net[0].weight.detach().double().std(dim=0)[0]
    assert report[0].filled == int((deviation > 0.01 * deviation.max()).sum())


def test_statistics_resized_in_depth_again_and_again_can_be_saved_and_loaded(tmp_path):
    statistics = drawn(3, 0.8, layers=3)
    for depth in (4, 5, 4, 5, 4, 5, 4, 5, 4):
        statistics = statistics.resize(depth=depth)
    statistics.save(tmp_path / "often.stats")
    loaded = fc.FilterStatistics.load(tmp_path / "often.stats")
    assert [layer.name for layer in loaded] == [layer.name for layer in statistics]
    assert max(len(layer.name) for layer in loaded) == NAME
