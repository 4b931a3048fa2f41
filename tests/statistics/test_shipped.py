"""Statistics that ship with the package: what they hold, where they came from, and every way to name them."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

import filtercov as fc
from filtercov.errors import CheckpointError, SourceError
from filtercov.files import read_description
from filtercov.lab.experiments.initialisations import located
from filtercov.lab.experiments.runspec import RunSpec, read_inputs
from filtercov.statistics import shipped
from tests.depthwise_layers import network, state, told, unchanged
from tests.peers import lite0_weights
from tests.processes import ROOT, command
from tools import ship_reference

NAME = "efficientnet-lite0"
FILE = shipped.FOLDER / f"{NAME}.safetensors"


@pytest.mark.parametrize("name", list(fc.REFERENCES))
def test_every_reference_is_whole_and_says_where_it_came_from(name: str) -> None:
    statistics, reference = fc.FilterStatistics.shipped(name), fc.REFERENCES[name]
    assert statistics.source == name
    texts = (reference.network, reference.data, reference.command, reference.version, reference.licence)
    assert all((*texts, reference.credit))
    assert f"network         {reference.network}\n" in str(reference)
    assert len(reference.weights_sha256) == 64
    assert reference.precision == "float32"
    assert (reference.accuracy is None) == (reference.judged_on is None) == (reference.epochs is None)
    assert "/" not in reference.data + reference.command  # no path of the machine that made it
    for layer in statistics:
        values = np.linalg.eigvalsh(layer.covariance)
        assert values[0] > -1e-6 * values[-1]
        assert (layer.covariance.astype(np.float32) == layer.covariance).all()
    lines = (ROOT / "docs" / "howto" / "transfer.md").read_text(encoding="utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith(f"| `{name}` |")]
    assert f"{len(statistics)} layers" in row
    assert all("×".join(map(str, layer.kernel_size)) in row for layer in statistics)
    assert reference.epochs is None or f"{reference.epochs} epochs" in row or "the same" in row
    assert reference.accuracy is None or f"{reference.accuracy:.2f} %" in row


def test_references_are_the_files_of_the_folder_which_the_package_has_room_for() -> None:
    assert len(fc.REFERENCES) == len(list(shipped.FOLDER.glob("*.safetensors"))) > 1
    assert NAME in repr(fc.REFERENCES)
    assert sum(path.stat().st_size for path in shipped.FOLDER.iterdir()) <= 8_000_000
    assert {path.suffix for path in shipped.FOLDER.iterdir()} == {".safetensors", ".LICENSE"}


def test_the_tool_makes_the_shipped_statistics_again_bit_for_bit(tmp_path: Path) -> None:
    weights = lite0_weights()
    made = ship_reference.write(tmp_path, NAME, *ship_reference.of_pretrained(NAME))
    assert told(fc.FilterStatistics.load(made)) == told(fc.FilterStatistics.shipped(NAME))
    assert read_description(made)["provenance"] == read_description(FILE)["provenance"]
    licence = (shipped.FOLDER / f"{NAME}.LICENSE").read_text(encoding="utf-8")
    assert "Copyright (c) 2020, ML Illustrated" in licence
    assert "Apache License" in licence
    assert fc.REFERENCES[NAME].licence == "Apache-2.0"
    assert fc.REFERENCES[NAME].weights_sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()


def test_a_reference_initialises_by_its_name_as_its_statistics_do(tmp_path: Path) -> None:
    report = fc.init_(named := network(5, 5, 5, 5), f"stats:{NAME}", seed=1)
    statistics = fc.FilterStatistics.shipped(NAME)
    fc.init_(given := network(5, 5, 5, 5), lambda layer: statistics.at(layer.depth, layer.kernel_size), seed=1)
    assert len(report.initialised) == 4
    assert {row.resized and row.resized.from_size for row in report} == {(3, 3), None}
    assert "from 3x3" in str(report)
    assert unchanged(named, state(given))
    assert NAME in command("info")
    out = command("init", "convmixer_16_3_k5_p2", "--statistics", NAME, "--seed", 0, "--out", tmp_path / "x.pth")
    assert "3 of 3 depthwise layers initialised" in out


def test_a_name_that_nobody_knows_is_answered_with_those_there_are(tmp_path: Path) -> None:
    net = network(5, 5, 5, 5)
    for unknown in ("lite1", f"../shipped/{NAME}"):
        with pytest.raises(SourceError, match=rf"no statistics called '.*' .* those that do are .*{NAME}"):
            fc.FilterStatistics.shipped(unknown)
    for unknown in ("lite1", "x" * 5000, str(tmp_path / "lite1")):
        with pytest.raises(CheckpointError, match=rf"no such file.* nor do statistics of that name .*{NAME}"):
            fc.init_(net, f"stats:{unknown}")
    assert unchanged(net, state(network(5, 5, 5, 5)))


def test_a_file_that_exists_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fc.FilterStatistics.from_model(network(5, 5, 5, 5)).save(NAME)
    fc.init_(own := network(5, 5, 5, 5), f"stats:{NAME}", seed=0)
    fc.init_(same := network(5, 5, 5, 5), fc.FilterStatistics.load(NAME), seed=0)
    assert unchanged(own, state(same))
    assert located(f"stats:{NAME}") == f"stats:{tmp_path / NAME}"
    Path(NAME).unlink()
    assert [located(f"stats:{name}") for name in (NAME, "other")] == [f"stats:{NAME}", f"stats:{tmp_path / 'other'}"]


def test_a_run_is_known_by_the_content_of_its_reference(tmp_path: Path) -> None:
    spec = RunSpec(model="convmixer_16_2_k5_p4", data="embedded", data_limit=64, init=f"stats:{NAME}")
    assert read_inputs(spec, None, init_root=tmp_path) == {"init": hashlib.sha256(FILE.read_bytes()).hexdigest()}
