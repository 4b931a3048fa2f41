"""FilterStatistics: measured as NumPy measures, carried to other depths and sizes, and files that notice any damage."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
import torch
from torch import nn

import filtercov as fc
from filtercov.covariance import nearest_kronecker, resize_covariance
from filtercov.errors import CheckpointError, CovarianceError, FiltercovWarning, SourceError
from filtercov.files import NAME, read_description
from filtercov.structure import structure_of
from tests.depthwise_layers import depthwise, network, told


def measured(*sizes):
    return fc.FilterStatistics.from_model(network(*sizes, width=40))


def drawn(kernel_size, sigma):
    fc.init_(net := network(kernel_size, kernel_size, width=64), lambda _layer: sigma, min_kernel_size=1)
    return fc.FilterStatistics.from_model(net)


def same(some, others):
    return some.notes == others.notes and told(some) == told(others)


# --- Measuring ---


def test_statistics_are_the_empirical_ones_of_each_layer(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 20, 1), nn.Conv2d(20, 40, (3, 5), groups=20), nn.Conv1d(8, 8, 9, groups=8))
    torch.save(net.state_dict(), tmp_path / "net.pth")
    statistics = fc.FilterStatistics.from_model(net)
    assert [layer.name for layer in statistics] == ["1", "2"]
    for layer, module in zip(statistics, net[1:], strict=True):
        filters = module.weight.detach().double().flatten(1).numpy()
        assert layer.count == len(filters)  # every filter of a channel multiplier
        np.testing.assert_allclose(layer.mean, filters.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(layer.covariance, np.cov(filters, rowvar=False), atol=1e-12)
    for source in (tmp_path / "net.pth", net.state_dict()):
        assert same(fc.FilterStatistics.from_checkpoint(source), statistics)
        assert same(fc.FilterStatistics.from_checkpoint(source, like=net), statistics)
    assert "of net.pth:" in repr(fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth"))


def test_a_state_dict_without_depthwise_weights_or_with_bad_ones_is_refused():
    nested, meta = {"model": network(7).state_dict()}, torch.empty(4, 1, 3, 3, device="meta")
    for state in (nested, {"0.weight": meta}, {"0.weight": torch.full((4, 1, 3, 3), torch.nan)}):
        with pytest.raises(CheckpointError):
            fc.FilterStatistics.from_checkpoint(state)
    net = network(7, 7)
    nn.init.constant_(net[1].weight, torch.nan)
    with pytest.raises(CovarianceError, match=r"^1: .*nan"):
        fc.FilterStatistics.from_model(net)


def test_records_are_plain_and_alike_and_say_what_the_filters_say():
    net = nn.Sequential(nn.Conv2d(48, 48, 5, groups=48), nn.Conv2d(48, 48, (3, 7), groups=48))
    fc.init_(net, "figure", min_kernel_size=1, seed=0)
    statistics = fc.FilterStatistics.from_model(net)
    records = statistics.to_records()
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    assert len({tuple(record) for record in records}) == 1
    for record, layer, depth in zip(records, net, (0.0, 1.0), strict=True):
        assert (record["filters"], record["depth"], record["absent"]) == (48, depth, "")
        for name, number in structure_of(layer.weight.detach()[:, 0]).numbers().items():
            assert record[name] == pytest.approx(number.value)
            assert (record[f"{name}_chance"], record[f"{name}_beyond_chance"]) == (number.chance, number.beyond_chance)
    for changed in (statistics.resize(depth=3)[1:2], statistics[:1].kronecker(), statistics.centred()):
        record = changed.to_records()[0]
        assert record["sparsity"] is record["sparsity_chance"] is None
        assert "sparsity: the statistics hold no filters" in record["absent"]
        assert record["effective_rank"] > 1
    single = fc.LayerStatistics("single", 5, 1, np.zeros(25), np.zeros((25, 25)))
    [record] = fc.FilterStatistics((single,)).to_records()
    assert record["sigma"] is record["likeness"] is record["likeness_beyond_chance"] is None


def test_statistics_are_a_sequence_of_layers_that_are_known_by_name_too():
    statistics = measured(7, 7, 7, 7)
    first = statistics[:2]
    assert (len(first), first.source, first[1]) == (2, "Sequential", statistics["1"])
    with pytest.raises(KeyError, match="no layer is called '11'; there are 0, 1, 2, 3"):
        statistics["11"]
    for wrong in ((), [1]):
        with pytest.raises(SourceError, match="LayerStatistics of at least one layer, got"):
            fc.FilterStatistics(wrong)
    noted = fc.FilterStatistics(first.layers, notes=("odd",))
    assert repr(noted) == "<FilterStatistics: 2 layers of 7x7 filters, with 1 note>"


# --- Other depths and kernel sizes ---


def test_depth_is_interpolated_linearly():
    statistics = measured(7, 7, 7)
    five = statistics.resize(depth=5)
    a, b, c = statistics
    for got, (one, other) in zip(five, [(a, a), (a, b), (b, b), (b, c), (c, c)], strict=True):
        np.testing.assert_allclose(got.covariance, (one.covariance + other.covariance) / 2, atol=1e-15)
        np.testing.assert_allclose(got.mean, (one.mean + other.mean) / 2, atol=1e-15)
    assert statistics.resize(depth=3).layers == statistics.layers
    assert len(statistics.resize(depth=1)) == 1
    assert statistics.at(0.125).name == "layers 0 and 1, weighted 0.75 : 0.25"
    with pytest.raises(SourceError, match="depth: needed a whole number"):
        statistics.resize(depth=0)


def test_kernel_size_and_depth_are_resized_together():
    statistics = measured(7, 7)
    both = statistics.resize(depth=4, kernel_size=9)
    assert [layer.kernel_size for layer in both] == [(9, 9)] * 4
    np.testing.assert_allclose(both[0].covariance, resize_covariance(statistics[0].covariance, 7, 9))
    assert [layer.kernel_size for layer in statistics.resize(kernel_size=9)] == [(9, 9)] * 2
    assert [layer.kernel_size[0] for layer in measured(5, 9).resize(depth=4)] == [5, 5, 9, 9]  # the nearer one's


def test_kronecker_squares_and_centred_statistics():
    statistics = measured(7, 7)
    for before, squared, centred in zip(statistics, statistics.kronecker(), statistics.centred(), strict=True):
        A = nearest_kronecker(before.covariance, 7)
        np.testing.assert_allclose(squared.covariance, np.kron(A, A), atol=1e-15)
        np.testing.assert_array_equal(squared.mean, before.mean)
        assert np.any(before.mean)
        assert not np.any(centred.mean)
        np.testing.assert_array_equal(centred.covariance, before.covariance)
        assert squared.near_zero is centred.near_zero is None  # which were counted of other filters


def test_enlarging_much_is_doubted_and_a_little_is_not():
    small = drawn(3, 2.0)
    with pytest.warns(FiltercovWarning, match="resize: 2 layers resized from 3x3 to 7x7: .*; statist"):
        large = small.resize(kernel_size=7)
    assert all(layer.resized.survives < 0.25 for layer in large)
    assert len(large.notes) == len(small.notes) + 1
    with pytest.warns(FiltercovWarning):
        assert large.resize(kernel_size=7).notes == large.notes  # the same note once
    little = drawn(7, 0.8).resize(kernel_size=9)
    assert little.notes == ()
    assert all(layer.resized.survives > 0.7 for layer in little)


# --- Files ---


@pytest.fixture
def statistics():
    torch.manual_seed(0)
    net = nn.Sequential(depthwise(16, 5), depthwise(8, 9, nn.Conv1d), depthwise(4, (1, 7)))
    return replace(fc.FilterStatistics.from_model(net), source="three layers, ütf-8")


@pytest.fixture
def path(statistics, tmp_path):
    path = tmp_path / "statistics.safetensors"
    path.write_bytes(b"old")
    statistics.save(path)
    return path


def test_what_is_saved_is_what_is_loaded(statistics, path, tmp_path):
    loaded = fc.FilterStatistics.load(path)
    assert loaded.source == "three layers, ütf-8"
    assert same(loaded, statistics)
    with pytest.raises(CheckpointError, match="cannot be written"):
        statistics.save(tmp_path / "no" / "file.safetensors")
    assert list(tmp_path.iterdir()) == [path]
    tensors = safetensors.numpy.load_file(path)  # which others can read
    assert len(tensors) == 6
    np.testing.assert_array_equal(tensors["layer.0.covariance"], statistics[0].covariance)
    with pytest.warns(FiltercovWarning):
        noted = drawn(3, 2.0).resize(kernel_size=7)
    noted.save(path)
    assert same(fc.FilterStatistics.load(path), noted)
    with pytest.warns(FiltercovWarning, match="init_: 2 layers resized from 3x3 to 7x7"):
        report = fc.init_(network(7, 7), fc.FilterStatistics.load(path))
    assert report[0].resized == noted[0].resized


def rewritten(path, **changes):
    """Write a file as ours, with a right checksum, but with parts of its description or tensors replaced."""
    tensors, about = safetensors.numpy.load_file(path), read_description(path)
    tensors |= {name: value for name, value in changes.items() if name.startswith("layer.")}
    about |= {name: value for name, value in changes.items() if not name.startswith("layer.")}
    about["sha256"] = "0" * 64
    blank = safetensors.numpy.save(tensors, metadata={"filtercov": json.dumps(about)})
    path.write_bytes(blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1))


LAYER = {"name": "a", "count": 4, "kernel_size": [5, 5]}
EARLIER = {"near_zero": 3, "mean_squared_cosine": 0.25, "types": {"G": 0.5, "Gx": 0.25}}
RESIZED = {"from_size": [3, 3], "survives": 1.0, "padding": 0.0}


def test_files_of_earlier_versions_are_read(path):
    original = path.read_bytes()
    rewritten(path)
    assert path.read_bytes() == original
    rewritten(path, layers=[LAYER | {"name": "a" * NAME}])
    assert fc.FilterStatistics.load(path).to_records()[0]["sparsity"] is None
    rewritten(path, layers=[LAYER | {"of_filters": EARLIER, "resized": RESIZED}])
    [layer] = fc.FilterStatistics.load(path)
    assert (layer.near_zero, layer.resized.survives) == (3, 1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": [{"name": "a"}]},
        {"layers": []},
        {"layer.0.mean": np.full(25, np.nan)},
        {"layer.0.covariance": np.triu(np.ones((25, 25)))},
        {"layers": [LAYER | {"resized": RESIZED | {"survives": "all"}}]},
        *({"layers": [LAYER | bad]} for bad in ({"kernel_size": [3, 3]}, {"count": 0}, {"near_zero": "a"})),
        {"layers": [LAYER | {"name": "a" * (NAME + 1)}]},
    ],
)
def test_files_with_a_right_checksum_and_wrong_contents_are_refused(path, changes):
    rewritten(path, **changes)
    with pytest.raises(CheckpointError, match=r"statistics\.safetensors"):
        fc.FilterStatistics.load(path)
