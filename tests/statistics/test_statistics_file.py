"""A statistics file is read back exactly, and any damage to it is noticed."""

import hashlib
import json
import stat

import numpy as np
import pytest
import safetensors.numpy
import torch
from torch import nn

import filtercov as fc
from filtercov.errors import CheckpointError
from filtercov.statistics import statistics_file


@pytest.fixture
def statistics():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(16, 16, 5, groups=16), nn.Conv1d(8, 8, 9, groups=8), nn.Conv2d(4, 4, (1, 7), groups=4)
    )
    return fc.FilterStatistics.from_model(net, source="three layers, ütf-8")


@pytest.fixture
def path(statistics, tmp_path):
    path = tmp_path / "statistics.safetensors"
    statistics.save(path)
    return path


def test_what_is_saved_is_what_is_loaded(statistics, path):
    loaded = fc.FilterStatistics.load(path)
    assert loaded.source == "three layers, ütf-8"
    assert len(loaded.layers) == 3
    for a, b in zip(statistics.layers, loaded.layers, strict=True):
        assert (a.name, a.kernel_size, a.count) == (b.name, b.kernel_size, b.count)
        np.testing.assert_array_equal(a.mean, b.mean)
        np.testing.assert_array_equal(a.covariance, b.covariance)


def test_the_file_is_safetensors_that_others_can_read(path):
    tensors = safetensors.numpy.load_file(path)
    assert tensors["layer.0.covariance"].shape == (25, 25)
    assert len(tensors) == 6


def test_saving_replaces_a_file_whole_and_leaves_nothing_else_behind(statistics, path, tmp_path):
    path.write_bytes(b"old")
    statistics.save(path)
    assert fc.FilterStatistics.load(path).layers
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600


def test_every_one_of_2000_mutations_is_detected(path):
    original = path.read_bytes()
    rng = np.random.default_rng(0)
    positions = np.unique(np.concatenate([np.arange(900), rng.integers(0, len(original), 1400)]))[:2000]
    assert len(positions) >= 2000
    for position in positions:
        mutated = bytearray(original)
        mutated[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(mutated)
        with pytest.raises(CheckpointError, match=r"statistics\.safetensors"):
            fc.FilterStatistics.load(path)


def test_every_truncation_and_addition_is_detected(path):
    original = path.read_bytes()
    for length in [*range(0, 600, 7), len(original) // 2, len(original) - 1]:
        path.write_bytes(original[:length])
        with pytest.raises(CheckpointError):
            fc.FilterStatistics.load(path)
    path.write_bytes(original + b"\0")
    with pytest.raises(CheckpointError):
        fc.FilterStatistics.load(path)


def rewritten(path, **changes):
    """Write a file as ours, with a right checksum, but with parts of its description or tensors replaced."""
    tensors = safetensors.numpy.load_file(path)
    header = json.loads(path.read_bytes()[8:].split(b"\0", 1)[0][: int.from_bytes(path.read_bytes()[:8], "little")])
    about = json.loads(header["__metadata__"]["filtercov"])
    tensors |= {name: value for name, value in changes.items() if name.startswith("layer.")}
    about |= {name: value for name, value in changes.items() if not name.startswith("layer.")}
    about["sha256"] = "0" * 64
    blank = safetensors.numpy.save(tensors, metadata={"filtercov": json.dumps(about)})
    path.write_bytes(blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1))


def test_a_file_is_what_safetensors_makes_of_its_contents_with_its_checksum_in_it(path):
    original = path.read_bytes()
    rewritten(path)
    assert path.read_bytes() == original


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "written with schema 2, this filtercov reads up to 1; update filtercov"),
        ({"format": "other"}, "not a filtercov statistics file"),
        ({"layers": [{"name": "a"}] * 3}, "description of a layer cannot be read"),
        ({"layers": [{"name": "a", "count": 1, "kernel_size": [3, 3]}] * 3}, r"should hold a \(9,\) mean"),
        ({"layers": [{"name": "a", "count": 1, "kernel_size": [3, 3]}] * 9}, "tensors cannot be read"),
        ({"layers": 7}, "tensors cannot be read"),
        ({"layer.0.mean": np.full(25, np.nan)}, "not finite"),
        ({"layer.0.mean": np.zeros(24)}, r"should hold a \(25,\) mean"),
        ({"layer.0.covariance": np.zeros((25, 25), np.float16)}, "needed float64 or float32, got float16"),
    ],
)
def test_files_with_a_right_checksum_and_wrong_contents_are_refused(path, changes, message):
    rewritten(path, **changes)
    with pytest.raises(CheckpointError, match=message):
        fc.FilterStatistics.load(path)


def test_foreign_files_are_refused(tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file({"a": np.zeros(3)}, foreign)
    with pytest.raises(CheckpointError, match=r"not a filtercov statistics file.*filtercov stats CHECKPOINT"):
        fc.FilterStatistics.load(foreign)
    foreign.write_bytes((2**62).to_bytes(8, "little") + b"{" * 5000)
    with pytest.raises(CheckpointError, match="not a filtercov statistics file"):
        fc.FilterStatistics.load(foreign)
    with pytest.raises(CheckpointError, match="cannot be read"):
        fc.FilterStatistics.load(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="cannot be read"):
        fc.FilterStatistics.load(tmp_path)


@pytest.mark.parametrize(("layers", "pixels"), [(1, 4097), (5, 4096)])
def test_what_could_not_be_read_again_is_not_written(path, layers, pixels):
    before = path.read_bytes()
    pair = np.broadcast_to(0.0, (pixels,)), np.broadcast_to(0.0, (pixels, pixels))
    with pytest.raises(CheckpointError, match="at most 537 MB and 4096 pixels a filter, which can be read again, got"):
        statistics_file.write(path, [pair] * layers, {})
    assert path.read_bytes() == before


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    holder = nn.Module()
    holder.add_module("m" * 1100, nn.Conv2d(4, 4, 3, groups=4))
    with pytest.raises(CheckpointError, match="names of at most 1024 characters"):
        fc.FilterStatistics.from_model(holder).save(tmp_path / "long")
    assert list(tmp_path.iterdir()) == []
