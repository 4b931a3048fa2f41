import json

import pytest

from filtercov.errors import ConfigError
from filtercov.lab.training import TrainConfig, learning_rate


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("epochs", [1, 100_000], [0, 2.0, True, "3"]),
        ("batch_size", [1], [0]),
        ("seed", [0, 2**63 - 1], [-1, 2**63]),
        ("lr", [0.0, 1000], [-0.1, float("nan"), float("inf"), "0.1", True]),
        ("weight_decay", [0], [-0.1]),
        ("clip_grad", [None, 1e6], [-1.0]),
        ("warmup_epochs", [0.0], [1.0, 20.0]),  # the triangular schedule rises by itself
        ("momentum", [0.0], [-0.1, 1.0]),
        ("ema_decay", [None, 0.0], [1.0]),
        ("opt", ["sgd"], ["adam"]),
        ("sched", ["cosine"], ["step"]),
        ("amp", ["bfloat16"], ["fp16"]),
        ("compile", [True], [1]),
        ("decay_norms", [False], ["no"]),
    ],
)
def test_each_setting_has_bounds_and_one_outside_is_refused_with_its_name_and_value(name, good, bad):
    for value in good:
        assert getattr(TrainConfig(**{name: value}), name) == value
    for value in bad:
        with pytest.raises(ConfigError, match=name) as caught:
            TrainConfig(**{name: value})
        assert repr(value) in str(caught.value)


def test_a_configuration_survives_json_and_unknown_names_do_not():
    config = TrainConfig(epochs=7, clip_grad=1.0, ema_decay=0.9, filter_lr=0.5)
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(ConfigError, match="did you mean 'weight_decay'"):
        TrainConfig.from_dict({"weightdecay": 0.1})
    with pytest.raises(ConfigError, match="known are epochs, batch_size"):
        TrainConfig.from_dict({"qqqq": 1})


@pytest.mark.parametrize(("sched", "later"), [("cosine", [0.5, 0.0]), ("constant", [1.0, 1.0])])
def test_cosine_and_constant_rise_linearly_through_their_warm_up(sched, later):
    config = TrainConfig(lr=1.0, epochs=10, warmup_epochs=2.0, sched=sched)
    rates = [learning_rate(config, done) for done in (0.1, 0.2, 0.6, 1.0)]
    assert rates == pytest.approx([0.5, 1.0, *later], abs=1e-15)
