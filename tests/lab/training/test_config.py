import json

import pytest

from filtercov.errors import ConfigError
from filtercov.lab.training import RECIPES, TrainConfig


def test_the_default_is_the_papers_cifar_recipe():
    config = TrainConfig()
    assert (config.opt, config.lr, config.weight_decay, config.batch_size) == ("adamw", 0.01, 0.01, 512)
    assert (config.sched, config.epochs) == ("triangular", 20)
    assert RECIPES["cifar"] == config
    assert RECIPES["imagenet"].epochs == 50


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", 2.0),
        ("epochs", True),
        ("batch_size", -1),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("lr", "0.1"),
        ("weight_decay", -0.1),
        ("opt", "adam"),
        ("opt_eps", 0.0),
        ("momentum", 1.0),
        ("sched", "step"),
        ("smoothing", 1.0),
        ("clip_grad", 0.0),
        ("clip_grad", float("inf")),
        ("amp", "fp16"),
        ("ema_decay", 1.0),
        ("compile", 1),
        ("decay_norms", "no"),
        ("seed", -1),
        ("seed", 2**63),
    ],
)
def test_a_bad_setting_is_refused_with_its_name_and_value(name, value):
    with pytest.raises(ConfigError, match=name) as caught:
        TrainConfig(**{name: value})
    assert repr(value) in str(caught.value)


def test_warmup_is_refused_where_the_schedule_rises_by_itself():
    with pytest.raises(ConfigError, match="triangular"):
        TrainConfig(warmup_epochs=1.0)
    with pytest.raises(ConfigError, match="below 5"):
        TrainConfig(epochs=5, warmup_epochs=5.0, sched="cosine")


def test_a_configuration_survives_json_and_unknown_names_do_not():
    config = TrainConfig(epochs=7, clip_grad=1.0, ema_decay=0.9)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(ConfigError, match="did you mean 'weight_decay'"):
        TrainConfig.from_dict({"weightdecay": 0.1})
