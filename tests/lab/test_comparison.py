"""`compare`: one's own modules, data and initialisations, and ordinary runs, one answer and one page; and the demo."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import filtercov
from filtercov.errors import ConfigError, DataError, ModelError, RunError
from filtercov.lab import compare, comparison
from filtercov.lab.data import load
from filtercov.lab.data.loader import TorchBatches
from filtercov.lab.demonstration import demo_table, demonstrate
from filtercov.lab.experiments.engines import Engine
from tests.peers import import_peer


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 4, stride=4),
        nn.Conv2d(8, 8, 7, padding=3, groups=8),
        nn.BatchNorm2d(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def mine(model, context):
    """Filters that count upwards, from a random number."""
    for layer in filtercov.depthwise_layers(model):
        start = torch.rand((), generator=context.generator)
        layer.weight.data.copy_(start + torch.arange(layer.weight.numel()).reshape(layer.weight.shape) / 1e3)


@pytest.fixture
def pair():
    images, labels = torch.rand(60, 1, 16, 16), torch.arange(60) % 10
    return TensorDataset(images[:40], labels[:40]), TensorDataset(images[40:], labels[40:])


def own(data, tmp_path, *, model=make_model, **changes):
    settings = {"inits": ["default", "closed-form"], "seeds": 2, "epochs": 2, "batch_size": 20}
    return compare(model, data, run_dir=tmp_path / "runs", **{**settings, **changes})


def by_name(model, data, tmp_path, **changes):
    return compare(model, data, run_dir=tmp_path / "runs", **{"epochs": 1, "batch_size": 50, **changes})


def test_a_module_of_ones_own_on_datasets_of_ones_own_from_a_function_of_ones_own(pair, tmp_path):
    result = own(pair, tmp_path, inits=["default", "closed-form", "imagenet-frozen", mine], freeze_filters="both")
    labels = ["default", "closed-form", "imagenet-frozen", "mine"]
    assert [group.label for group in result.groups] == [*labels, *(f"{label}, frozen" for label in labels)]
    assert all(len(group.runs) == 2 and len(group.runs[0].curve) == 2 for group in result.groups)
    ((before, after),) = result.groups[3].runs[0].filters.values()
    np.testing.assert_allclose(np.diff(before.reshape(-1)), 1e-3, atol=1e-6)
    assert not np.array_equal(before, after)
    ((kept, still),) = result.groups[7].runs[0].filters.values()
    np.testing.assert_array_equal(kept, before)
    np.testing.assert_array_equal(still, before)  # frozen
    assert "mine" in result.answer
    assert result.write(tmp_path / "page.html").read_text(encoding="utf-8").count("<svg") >= 1


def test_what_is_done_is_not_trained_again_and_a_changed_setting_is_another_run(pair, tmp_path, capsys):
    def results():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/result.json")}

    first = own(pair, tmp_path)
    assert "4 runs of 4 steps" in capsys.readouterr().err
    done = results()
    assert own(pair, tmp_path).table == first.table
    assert capsys.readouterr().err.count("finished before") == 4
    assert (results(), len(done)) == (done, 4)
    own(pair, tmp_path, lr=0.001)
    assert len(results()) == 8


def test_statistics_of_the_same_shape_are_other_runs(pair, tmp_path):
    for _ in range(2):
        own(pair, tmp_path, inits=["default", filtercov.FilterStatistics.from_model(make_model())], seeds=1, epochs=1)
    assert len(list((tmp_path / "runs").glob("*/result.json"))) == 3  # the first column is shared


def test_ordinary_runs_are_shared_with_train_and_compared_with_the_first(tmp_path):
    settings = {"inits": ["uniform", "closed-form"], "seeds": 2, "data_limit": 100, "freeze_filters": "both"}
    result = by_name("convmixer_8_2_k5_p4", "embedded", tmp_path, **settings)
    configs = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/config.json")]
    assert sorted((config["init"], config["freeze_filters"], config["train"]["seed"]) for config in configs) == sorted(
        (init, frozen, seed) for init in ("uniform", "closed-form") for frozen in (False, True) for seed in (0, 1)
    )
    assert {config["data"] for config in configs} == {"embedded"}
    assert [group.baseline.label for group in result.groups[1:]] == ["uniform", "uniform", "closed-form"]
    assert "test images" in str(result)


def test_a_network_of_timms_from_statistics_of_a_checkpoint(tmp_path, capsys):
    import_peer("timm")
    trained = nn.Sequential(*(nn.Conv2d(32, 32, 7, padding=3, groups=32) for _ in range(2)))
    torch.save(trained.state_dict(), tmp_path / "trained.pth")
    inits = ["default", "closed-form", f"stats:{tmp_path / 'trained.pth'}"]
    result = by_name("convmixer_16_2_k7_p4", "embedded", tmp_path, inits=inits, seeds=1, data_limit=100)
    assert [group.label for group in result.groups] == ["default", "closed-form", "stats:trained.pth"]
    assert "validation images" in result.note  # more than two to choose among
    images = load("embedded", limit=40)
    for inits, steps in ((["default", "uniform"], "2 steps"), (["default", "uniform", "imagenet-thawed"], "1 step")):
        by_name("timm:mobilenetv3_small_050", images, tmp_path, inits=inits, seeds=1, batch_size=20)
        assert f"of {steps}," in capsys.readouterr().err  # some images are held out to choose by


def grey():
    data = TensorDataset(torch.rand(40, 3, 16, 16), torch.zeros(40))
    return data, data


@pytest.mark.parametrize(
    "changes",
    [
        *({"inits": inits} for inits in (["default"], ["default", "default"], ["default", "closd-form"])),
        {"seeds": 0},
        {"freeze_filters": "maybe"},
        {"batch_size": 50},  # of 40 images
        {"engine": Engine(workers=2)},
        {"image_size": 8},
        {"model": "convmixer_8_2_k5_p4"},  # which needs to know how many classes there are
        {"model": dict},
        {"data": [1, 2, 3]},
        {"data": grey()},
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_trained(pair, tmp_path, changes):
    with pytest.raises((ConfigError, DataError, ModelError)):
        own(tmp_path=tmp_path, **{"data": pair, **changes})
    assert not (tmp_path / "runs").exists()


def test_batches_of_a_dataset_depend_on_seed_and_epoch_alone_and_can_start_anywhere(pair):
    batches = TorchBatches(pair[0], batch_size=15, seed=3, shuffle=True)
    whole = list(batches.epoch(1))
    assert len(whole) == len(batches) == 2  # the rest does not fill a batch
    for (images, classes), (again, labels) in zip(whole[1:], batches.epoch(1, 1), strict=True):
        assert torch.equal(images, again)
        assert torch.equal(classes, labels)
    assert not torch.equal(whole[0][0], next(batches.epoch(2))[0])
    judged = TorchBatches(pair[1], batch_size=15)
    assert torch.equal(torch.cat([images for images, _ in judged.epoch(0)]), pair[1].tensors[0])


def test_more_runs_than_the_disk_holds_are_refused_before_the_first_step(pair, tmp_path, monkeypatch):
    needed = 4 * 4 * sum(parameter.nbytes for parameter in make_model().parameters())  # of four runs, four copies each
    for free, error in ((needed - 1, RunError), (needed, ConfigError)):  # a batch is not filled
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        with pytest.raises(error):
            own(pair, tmp_path, batch_size=50)
    assert not (tmp_path / "runs").exists()


# --- The demonstration: four runs that differ in their filters alone ---


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Of a network and data too small to show anything."""
    smaller = {"model": "convmixer_8_3_k5_p4", "data_limit": 520, "epochs": 2, "batch_size": 10}
    return demonstrate(tmp_path_factory.mktemp("demo"), engine=Engine(), **smaller)


def test_its_runs_are_those_of_before(monkeypatch, tmp_path):
    """Their names are the hash of all that decides how they end, so README's numbers stay those of this command."""
    asked = []

    def stop(runs, *_, **__):
        asked.extend(runs)
        raise RunError("enough")

    monkeypatch.setattr(comparison, "sweep", stop)
    with pytest.raises(RunError):
        demonstrate(tmp_path, seed=3)
    assert {run.key: (run.spec.init, run.spec.freeze_filters) for run in asked} == {
        "9cf60f20309800f7": ("uniform", True),
        "e8a4969f5f935884": ("closed-form", True),
        "d8b64dd3e1683827": ("uniform", False),
        "7cad767790df03d2": ("closed-form", False),
    }


def test_one_seed_settles_nothing_and_is_compared_with_uniform_in_the_same_state(result):
    head, uniform, closed_form, difference = demo_table(result.groups)
    assert head == ["filters", "frozen", "thawed"]
    for column in (1, 2):
        gain = float(closed_form[column]) - float(uniform[column])
        assert float(difference[column].split()[0]) == pytest.approx(gain, abs=0.011)
        assert difference[column].endswith(" (one seed)")
    assert "(one seed: no verdict)" in result.answer


def test_its_page_has_curves_filters_that_trained_and_covariances(result):
    page = result.page()
    assert page.count("<svg") == 1
    assert page.count("<img") == 2 * 3 * 2 + 3 * 3  # filters before and after, and covariances
    assert all(page.count(group.label) >= 2 for group in result.groups)  # legend and chart
    for group in result.groups[2:]:
        assert all((before != after).any() for before, after in group.runs[0].filters.values())
