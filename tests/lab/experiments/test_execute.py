"""Runs from their specification: what they leave behind, that they resume exactly, that bad ones are refused."""

import dataclasses
import functools
import inspect

import numpy as np
import pytest
import torch

import filtercov as fc
from filtercov.errors import ConfigError, FiltercovError
from filtercov.lab.data import load
from filtercov.lab.experiments import initialisations
from filtercov.lab.experiments.execute import build_model, execute, load_data
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.training import TrainConfig, load_checkpoint
from tests.lab.experiments.tiny import CrashAt

DATA = load("embedded", limit=64)
COLOUR = dataclasses.replace(DATA, in_channels=3, image_size=64)
SPEC = RunSpec(
    model="convmixer_8_2_k5_p2", data="embedded", init="closed-form", train=TrainConfig(epochs=2, batch_size=8)
)


def filters(model):
    return [layer.weight.detach().clone() for layer in fc.depthwise_layers(model)]


def test_a_finished_run_leaves_weights_statistics_and_versions(tmp_path):
    result = execute(SPEC, tmp_path, data=DATA)
    weights = load_checkpoint(tmp_path / "checkpoint.safetensors")[0]
    model = build_model(SPEC, DATA)
    model.load_state_dict(weights)
    ours, theirs = fc.FilterStatistics.load(tmp_path / "statistics.safetensors"), fc.FilterStatistics.from_model(model)
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        np.testing.assert_array_equal(a.covariance, b.covariance)
    assert result.extra["versions"]["torch"] == torch.__version__
    assert result.extra["parameters"] == sum(p.numel() for p in model.parameters())


def test_a_crash_in_the_middle_of_an_augmented_epoch_changes_nothing_and_the_seed_does(tmp_path):
    spec = dataclasses.replace(SPEC, augment="a1", drop_path=0.3)
    whole = execute(spec, tmp_path / "whole", data=DATA)
    with pytest.raises(RuntimeError, match="crash"):
        execute(spec, tmp_path / "parts", data=DATA, recovery_interval=2, progress=CrashAt(7))
    assert execute(spec, tmp_path / "parts", data=DATA).weights_sha256 == whole.weights_sha256
    other = dataclasses.replace(spec, train=dataclasses.replace(spec.train, seed=1))
    assert execute(other, tmp_path / "other", data=DATA).weights_sha256 != whole.weights_sha256


def test_filters_of_a_file_are_copied_even_if_by_shape_the_stem_is_depthwise(tmp_path):
    source = build_model(SPEC, DATA)  # of grey images
    torch.save(source.state_dict(), tmp_path / "grey.pth")
    spec = dataclasses.replace(SPEC, init="filters:grey.pth", schedule=None)
    for old, new in zip(filters(source), filters(build_model(spec, DATA, init_root=tmp_path)), strict=True):
        assert torch.equal(old, new)


def test_a_sawtooth_schedule_starts_again_at_each_stage():
    spec = RunSpec(model="convnext_atto_p1", data="embedded", init="closed-form", schedule="sawtooth:0.1,3,0")
    centred = [f[:, 0, 3, 3].square().sum() / f.square().sum() for f in filters(build_model(spec, DATA))]
    stages = [centred[0:2], centred[2:4], centred[4:10], centred[10:12]]
    assert all(stage[0] > 0.9 and stage[-1] < 0.5 for stage in stages)
    with pytest.raises(ConfigError, match="stages"):
        build_model(dataclasses.replace(SPEC, schedule="sawtooth:0.1,3,0"), DATA)


def constant(value):
    def fill(model, context, factor=1.0):
        for layer in fc.depthwise_layers(model):
            layer.weight.data.fill_(factor * value * float(context.argument or 1))

    return fill


def test_others_can_register_their_own_and_changed_code_under_the_same_name_is_another_run(tmp_path, monkeypatch):
    monkeypatch.setattr(initialisations, "_table", dict(initialisations._table))

    def registered(fill, version=None):
        initialisations.register("constant", fill, version=version)
        return dataclasses.replace(SPEC, init="constant:3", schedule=None)

    assert all((f == 6).all() for f in filters(build_model(registered(constant(2.0)), DATA)))
    keys = [registered(fill).key for fill in (constant(1.0), torch.no_grad()(constant(1.0)), constant(2.0))]
    assert keys[0] == keys[1] != keys[2]
    # In one directory: what the older code began is not continued with the newer.
    execute(registered(constant(1.0)), tmp_path / "run", data=DATA)
    with pytest.raises(FiltercovError, match="code"):
        execute(registered(constant(4.0)), tmp_path / "run", data=DATA)
    # What has no source, or depends on more than numbers and text, is known by its version.
    for fill in (sum, eval("lambda m, c: 1"), functools.partial(constant(1.0), factor=3.0), constant(torch.ones(()))):
        with pytest.raises(ConfigError, match="version"):
            registered(fill)
        assert registered(fill, "1").key == registered(len, "1").key != registered(fill, "2").key
    for taken in ("uniform", "a:b", ""):
        with pytest.raises(ConfigError, match="name of its own"):
            initialisations.register(taken, constant(1.0))


def test_an_installed_package_can_announce_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(initialisations, "_table", dict(initialisations._table))
    (tmp_path / "theirs.py").write_text("def fill(model, context):\n    model.weight.data.fill_(7)\n")
    (tmp_path / "theirs-1.0.dist-info").mkdir()
    points, metadata = "[filtercov.initialisations]\nseven = theirs:fill\n", "Name: theirs\nVersion: {}\n"
    (tmp_path / "theirs-1.0.dist-info" / "entry_points.txt").write_text(points)
    keys = set()
    monkeypatch.syspath_prepend(tmp_path)
    for version in ("1.0", "1.1"):
        (tmp_path / "theirs-1.0.dist-info" / "METADATA").write_text(metadata.format(version))
        assert initialisations.names()[-1] == "seven"
        keys.add(dataclasses.replace(SPEC, init="seven", schedule=None).key)
        layer = torch.nn.Conv2d(4, 4, 3, groups=4)
        initialisations.find("seven")(layer, initialisations.InitContext(torch.Generator()))
        assert (layer.weight == 7).all()
        initialisations._table.pop("seven")  # as in another process
    assert len(keys) == 2


@pytest.mark.parametrize(
    "fields",
    [
        *({"init": init} for init in ("stats:nowhere.pth", "filters:nowhere.pth", "stats", "box", "box:26")),
        {"model": "convmixer_8_2_k5_p32"},
        {"train": TrainConfig(batch_size=128)},
    ],
)
def test_what_does_not_fit_the_data_is_refused_before_a_directory_is_made(tmp_path, fields):
    spec = dataclasses.replace(SPEC, **{"schedule": None, "init": "uniform"} | fields)
    with pytest.raises(FiltercovError):
        execute(spec, tmp_path / "run", data=DATA)
    assert not (tmp_path / "run").exists()


def test_a_run_on_validation_images_reads_no_test_image_and_says_so(tmp_path):
    fields = {"model": "convmixer_8_2_k5_p4", "data_limit": 64, "train": TrainConfig(epochs=1, batch_size=32)}
    spec = RunSpec(data="embedded", evaluate="validation", **fields)
    data = load_data(spec)
    result = execute(spec, tmp_path / "run", data=dataclasses.replace(data, test=None))
    assert result.extra["evaluated_on"] == "validation"
    # The accuracy is that of the held-out images: a run that has them as its test images ends the same.
    swapped = dataclasses.replace(data, test=data.validation, validation=None)
    expected = execute(RunSpec(data="embedded", **fields), tmp_path / "swapped", data=swapped)
    assert (result.test_accuracy, result.weights_sha256) == (expected.test_accuracy, expected.weights_sha256)
    with pytest.raises(ConfigError, match="without validation images"):
        execute(spec, tmp_path / "none", data=swapped)


def test_the_closed_form_follows_the_rule_of_init_and_what_was_done_is_told():
    assert inspect.signature(fc.init_).parameters["source"].default == initialisations.DEFAULT_SCHEDULE
    told = []
    spec = RunSpec(model="timm:mobilenetv4_conv_small_035", data="embedded", init="closed-form")
    model = build_model(spec, COLOUR, on_init=told.append)
    for row, expected in zip(told[0], fc.init_(model, seed=0), strict=True):
        assert (row.name, row.initialised, row.sigma) == (expected.name, expected.initialised, expected.sigma)
    build_model(dataclasses.replace(spec, min_kernel_size=2), COLOUR, on_init=told.append)
    assert told[0].skipped
    assert not told[1].skipped
