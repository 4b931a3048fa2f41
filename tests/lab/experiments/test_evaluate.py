"""A run says which images judge it; choosing is done on validation images, and no test image has a part in it."""

import dataclasses
import json

import numpy as np
import pytest

from filtercov.errors import ConfigError
from filtercov.lab.data import Dataset, ImageArrays
from filtercov.lab.experiments.builder import Builder, Options
from filtercov.lab.experiments.catalogue.grids import grid_search
from filtercov.lab.experiments.execute import build_batches, execute, load_data
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.experiments.search import search_grid, search_tpe, space
from filtercov.lab.training import TrainConfig, current_world, read_result
from filtercov.lab.training.progress import Snapshot

SPEC = RunSpec(
    model="convmixer_8_2_k5_p4",
    data="embedded",
    data_limit=64,
    evaluate="validation",
    train=TrainConfig(epochs=1, batch_size=32),
)


class Counted(ImageArrays):
    """Images that count how often they are asked for."""

    asked = 0

    def fetch(self, plans):
        Counted.asked += 1
        return super().fetch(plans)


class Watcher:
    def __init__(self):
        self.lines = []

    def update(self, snapshot: Snapshot):
        self.lines.append(str(snapshot))

    def close(self):
        pass


def test_a_run_on_validation_images_reads_no_test_image_and_says_so(tmp_path):
    data = load_data(SPEC)
    counted = dataclasses.replace(data, test=Counted(data.test.images, data.test.labels, data.test.classes))
    watcher = Watcher()
    result = execute(SPEC, tmp_path / "run", data=counted, progress=watcher)
    assert Counted.asked == 0
    assert result.extra["evaluated_on"] == "validation"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["evaluate"] == "validation"
    assert "  validation " in watcher.lines[-1]
    assert "test" not in watcher.lines[-1]
    again = execute(SPEC, tmp_path / "again")
    assert again.weights_sha256 == result.weights_sha256
    assert again.test_accuracy == result.test_accuracy


def test_the_accuracy_is_that_of_the_held_out_images(tmp_path):
    data = load_data(SPEC)
    on_test = dataclasses.replace(SPEC, evaluate="test")
    swapped = dataclasses.replace(data, test=data.validation, validation=None)
    expected = execute(on_test, tmp_path / "swapped", data=swapped)
    found = execute(SPEC, tmp_path / "found")
    assert (found.test_accuracy, found.test_loss) == (expected.test_accuracy, expected.test_loss)
    assert found.weights_sha256 == expected.weights_sha256  # the limit leaves both the same training images
    assert execute(on_test, tmp_path / "test").extra["evaluated_on"] == "test"


def test_data_without_validation_images_cannot_judge_by_them():
    images = ImageArrays(np.zeros((64, 8, 8, 3), np.uint8), np.arange(64) % 10, tuple("abcdefghij"))
    data = Dataset("plain", images, images, 3, 8, (0.5,) * 3, (0.5,) * 3)
    with pytest.raises(ConfigError, match="plain was loaded without validation images"):
        build_batches(SPEC, data, world=current_world())
    with pytest.raises(ConfigError, match="evaluate"):
        dataclasses.replace(SPEC, evaluate="train")


def test_searches_choose_on_validation_images_and_tables_report_test_images(tmp_path):
    where = space("grid-imagenet-frozen", scale="smoke")
    (trial,) = search_grid(where, tmp_path)
    run = where.run(where.grid.centre)
    assert run.spec.evaluate == "validation"
    assert read_result(tmp_path / run.key).extra["evaluated_on"] == "validation"
    assert trial.accuracy == read_result(tmp_path / run.key).test_accuracy
    table = grid_search("grid-imagenet-frozen", Builder(find_scale("smoke"), Options(), "imagenet"))
    assert {cell_run.spec.evaluate for cell_run in table.runs} == {"test"}
    assert run.key not in {cell_run.key for cell_run in table.runs}


def test_a_study_is_shared_only_by_trials_whose_accuracies_compare(tmp_path):
    pytest.importorskip("optuna")
    named = [
        space("grid-cifar-p2", scale="small", options=Options(cifar=data)).study for data in ("cifar10", "folder:a")
    ]
    assert len({*named, space("grid-cifar-p2", scale="paper").study}) == 3
    where = space("grid-imagenet-frozen", scale="smoke")
    on_test = dataclasses.replace(where, build=dataclasses.replace(where.build, evaluate="test"))
    journal = tmp_path / "one.journal"
    tried = search_tpe(on_test, tmp_path, trials=1, study=journal, say=lambda _: None)
    said = []
    fresh = search_tpe(where, tmp_path, trials=1, study=journal, say=said.append)
    assert len(tried) == len(fresh) == len(said) == 1  # the accuracy on test images was no trial of this study
    assert "validation" in said[0]
