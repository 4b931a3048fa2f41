"""FilterStatistics as plain records, and what is left of them in files and after resizing."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.errors import CheckpointError
from filtercov.files import read_description
from filtercov.statistics import statistics_file
from filtercov.structure import structure_of
from tests.peers import lite0_weights


def network() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(48, 48, 5, groups=48), nn.Conv2d(48, 48, (3, 7), groups=48))
    fc.init_(net, "figure", min_kernel_size=1, seed=0)
    return net


def test_records_are_plain_and_alike_and_say_what_the_filters_say() -> None:
    net = network()
    records = fc.FilterStatistics.from_model(net).to_records()
    assert json.loads(json.dumps(records, allow_nan=False)) == records
    assert len({tuple(record) for record in records}) == 1
    assert {type(value) for record in records for value in record.values()} <= {str, int, float, bool, type(None)}
    for record, layer in zip(records, net, strict=True):
        numbers = structure_of(layer.weight.detach()[:, 0]).numbers()
        for name, number in numbers.items():
            assert record[name] == pytest.approx(number.value)
            assert record[f"{name}_chance"] == number.chance
    assert records[1]["absent"] == ""


def test_a_file_keeps_what_was_measured_of_the_filters_and_resizing_loses_it(tmp_path: Path) -> None:
    statistics = fc.FilterStatistics.from_model(network())
    statistics.save(tmp_path / "s.safetensors")
    loaded = fc.FilterStatistics.load(tmp_path / "s.safetensors")
    assert loaded.to_records() == statistics.to_records()
    for changed in (statistics.resize(depth=3), fc.FilterStatistics(statistics.layers[:1]).kronecker()):
        record = changed.to_records()[len(changed) // 2]
        assert record["sparsity"] is record["orthogonality"] is record["gaussian_derivatives"] is None
        assert record["sparsity_beyond_chance"] is None
        assert "sparsity: the statistics hold no filters" in record["absent"]
        assert record["effective_rank"] > 1


def test_a_file_of_an_earlier_version_is_read_and_one_with_impossible_numbers_is_not(tmp_path: Path) -> None:
    statistics = fc.FilterStatistics.from_model(network())
    pairs = [(layer.mean, layer.covariance) for layer in statistics]

    def write(**more: object) -> Path:
        described = [
            {"name": layer.name, "kernel_size": list(layer.kernel_size), "count": layer.count, **more}
            for layer in statistics
        ]
        statistics_file.write(tmp_path / "s", pairs, {"source": "", "notes": [], "layers": described})
        return tmp_path / "s"

    assert fc.FilterStatistics.load(write()).to_records()[0]["sparsity"] is None
    measured = {"near_zero": 3, "mean_squared_cosine": 0.25, "types": {"G": 0.5, "Gx": 0.25}}
    kept = fc.FilterStatistics.load(write(of_filters=measured)).to_records()[0]
    assert (kept["sparsity"], kept["orthogonality"], kept["gaussian_derivatives"]) == (3 / 48, 0.5, 0.75)
    for bad in (
        {"near_zero": 49},
        {"mean_squared_cosine": -1},
        {"types": {"G": 2.0}},
        {"types": 3},
        {"types": {"G": -1.0, "Gx": 1.5}},
        {"near_zero": "x"},
    ):
        with pytest.raises(CheckpointError, match="the description of a layer cannot be read"):
            fc.FilterStatistics.load(write(of_filters=measured | bad))
    assert read_description(tmp_path / "s")["format"] == statistics_file.KIND.format


def test_efficientnet_lite0_is_half_a_pixel_off_where_it_is_seen_to_be() -> None:
    records = fc.FilterStatistics.from_checkpoint(lite0_weights()).to_records()
    far = [i + 1 for i, record in enumerate(records) if record["off_centre"] > 0.5]
    assert far == [4, 12]  # the two that docs/inspect.md names
    for i in (3, 11):
        assert records[i]["off_centre_beyond_chance"]
        assert records[i]["offset_y"] == pytest.approx(-0.5, abs=0.2)
        assert records[i]["offset_x"] == pytest.approx(-0.5, abs=0.2)
    assert all(record["effective_rank_beyond_chance"] for record in records)
    assert np.median([record["gaussian_derivatives"] for record in records]) > 0.4
    assert all(record["gaussian_derivatives_beyond_chance"] for record in records)
