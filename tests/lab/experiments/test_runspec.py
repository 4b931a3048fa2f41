"""A specification is known by everything in it, survives JSON, and says no to what cannot be run."""

import dataclasses
import json

import pytest

from filtercov.errors import ConfigError, CovarianceError, ModelError
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.training import TrainConfig

SPEC = RunSpec(
    model="convmixer_32_8_k9_p2",
    data="cifar10",
    init="closed-form",
    schedule="cifar-p2",
    freeze_filters=True,
    augment="cifar",
)


def test_a_specification_survives_json_with_its_key():
    small = RunSpec(model="convmixer_32_8_k3_p2", data="embedded", init="closed-form")
    for spec in (SPEC, small, dataclasses.replace(small, min_kernel_size=2, evaluate="validation")):
        again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
        assert again == spec
        assert again.key == spec.key
    assert SPEC.key == "aa7eb1c38404da44"  # in every process and version


def test_every_field_changes_the_key():
    changed = {
        "model": "convmixer_32_8_k7_p2",
        "data": "embedded",
        "data_limit": 100,
        "image_size": 32,
        "init": "uniform",
        "schedule": "0.1,0.2,0.3",
        "min_kernel_size": 11,
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
    assert len(keys) == 1 + len(changed)


def test_a_bound_on_kernels_is_in_the_key_only_where_it_leaves_filters_out():
    """The paper's runs, of every kernel size, have the keys they had before there was a bound."""
    for bound in (1, 2, 5, 9):
        assert dataclasses.replace(SPEC, min_kernel_size=bound) == SPEC
    small = dataclasses.replace(SPEC, model="convmixer_32_8_k3_p2")
    assert small.min_kernel_size == 2  # of SPEC, whose filters are 9x9
    plain = dataclasses.replace(small, min_kernel_size=None)
    assert plain.min_kernel_size == 5
    assert "min_kernel_size" not in small.to_dict()
    assert plain.to_dict() == {**small.to_dict(), "min_kernel_size": 5}


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "convmixer_32"},
        {"init": "closedform"},
        {"init": "uniform", "schedule": "cifar-p2"},
        *({"schedule": schedule} for schedule in ("1,2", "-1,0,0", "spiral:1,2,3")),
        *({name: "other"} for name in ("augment", "negative", "evaluate", "freeze_filters")),
        {"data_limit": 0},
        {"min_kernel_size": 0},
        {"drop_path": 1.0},
    ],
)
def test_what_cannot_be_run_is_refused(fields):
    with pytest.raises((ConfigError, CovarianceError, ModelError)):
        dataclasses.replace(SPEC, **fields)
