import dataclasses
import json

import pytest

from filtercov.errors import ConfigError, FiltercovError, ModelError
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.training import TrainConfig

SPEC = RunSpec(model="convmixer_32_8_k9_p2", data="cifar10", init="closed-form", freeze_filters=True, augment="cifar")


def test_a_specification_survives_json_with_its_key():
    again = RunSpec.from_dict(json.loads(json.dumps(SPEC.to_dict())))
    assert again == SPEC
    assert again.key == SPEC.key


def test_every_field_changes_the_key():
    changed = {
        "model": "convmixer_32_8_k7_p2",
        "data": "embedded",
        "data_limit": 100,
        "image_size": 32,
        "init": "uniform",
        "schedule": "0.1,0.2,0.3",
        "negative": "abs",
        "freeze_filters": False,
        "augment": "none",
        "drop_path": 0.1,
        "evaluate": "validation",
        "train": TrainConfig(epochs=21),
    }
    assert set(changed) == {field.name for field in dataclasses.fields(RunSpec)}
    keys = {SPEC.key}
    for name, value in changed.items():
        fields = {name: value} if name != "init" else {"init": value, "schedule": None}
        keys.add(dataclasses.replace(SPEC, **fields).key)
    for field in dataclasses.fields(TrainConfig):
        words = {"opt": "sgd", "sched": "constant", "amp": "bfloat16", "warmup_epochs": None}
        value = {**words, "compile": True, "decay_norms": False}.get(field.name, 0.5)
        if field.name in ("epochs", "batch_size", "seed"):
            value = 3
        if value is not None:
            keys.add(dataclasses.replace(SPEC, train=TrainConfig(**{field.name: value})).key)
    assert len(keys) == 1 + len(changed) + len(dataclasses.fields(TrainConfig)) - 1


def test_the_key_is_the_same_in_every_process_and_version():
    assert SPEC.key == "aa7eb1c38404da44"


@pytest.mark.parametrize(
    ("model", "frozen", "schedule"),
    [
        ("convmixer_256_8_k9_p1", True, "cifar-p1"),
        ("convmixer_256_8_k9_p2", False, "cifar-p2"),
        ("convnext_atto_p2", False, "cifar-p2"),
        ("convmixer_512_12_k9_p14", True, "imagenet-frozen"),
        ("convmixer_512_12_k9_p14", False, "imagenet-thawed"),
        ("convnext_tiny_p4", True, "imagenet-frozen"),
        ("convnext_atto_p4", False, "imagenet-thawed"),
        ("convmixer_16_2_k9_p3", False, "imagenet-thawed"),
    ],
)
def test_a_closed_form_run_gets_the_papers_schedule_for_its_patch_size(model, frozen, schedule):
    assert RunSpec(model=model, data="cifar10", init="closed-form", freeze_filters=frozen).schedule == schedule


def test_recipes_are_the_papers_with_what_is_given_changed():
    cifar = RunSpec.recipe("cifar", model="convmixer_256_8_k9_p2", data="cifar10", train={"epochs": 50})
    assert (cifar.augment, cifar.train) == ("randaugment", TrainConfig(epochs=50))
    imagenet = RunSpec.recipe("imagenet", model="convmixer_512_12_k9_p14", data="folder:x", drop_path=0.2)
    assert (imagenet.augment, imagenet.drop_path, imagenet.train.clip_grad) == ("a1", 0.2, 1.0)
    assert (imagenet.train.smoothing, imagenet.train.weight_decay) == (0.1, 0.01)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "convmixer_32"}, "unknown model"),
        ({"init": "closedform"}, "did you mean 'closed-form'"),
        ({"init": "uniform", "schedule": "cifar-p2"}, "no use with init 'uniform'"),
        ({"schedule": "1,2"}, "three numbers"),
        ({"schedule": "-1,0,0"}, "needed σ of at least"),
        ({"schedule": "spiral:1,2,3"}, "sawtooth"),
        ({"augment": "heavy"}, "augment must be one of"),
        ({"negative": "keep"}, "negative must be one of clip, abs"),
        ({"data_limit": 0}, "data_limit must be a whole number"),
        ({"drop_path": 1.0}, "drop_path must be a number"),
        ({"freeze_filters": "yes"}, "freeze_filters must be true or false"),
        ({"train": {"epochs": 3}}, "train must be a TrainConfig"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_reason(fields, message):
    with pytest.raises((ConfigError, ModelError), match=message):
        dataclasses.replace(SPEC, **fields)


@pytest.mark.parametrize("values", [{"modle": "x"}, {"train": 3}, {"train": {"epoch": 1}}])
def test_a_mapping_with_unknown_names_is_refused(values):
    with pytest.raises(FiltercovError):
        RunSpec.from_dict(SPEC.to_dict() | values)


@pytest.mark.parametrize("missing", ["model", "data"])
def test_a_mapping_without_model_or_data_is_refused(missing):
    values = {name: value for name, value in SPEC.to_dict().items() if name != missing}
    with pytest.raises(ConfigError, match=f"needs a {missing}"):
        RunSpec.from_dict(values)
