import numpy as np
import pytest

from filtercov.lab.training import TrainConfig, learning_rate


def test_the_triangle_rises_to_two_fifths_and_falls_to_zero_with_a_tail():
    config = TrainConfig(lr=0.03)
    for done in np.linspace(0.0, 1.0, 101):
        expected = 0.03 * np.interp(done, [0, 0.4, 0.8, 1], [0, 1, 1 / 20, 0])
        assert learning_rate(config, done) == pytest.approx(expected, abs=1e-15)


def test_cosine_rises_linearly_through_its_warm_up_and_ends_at_zero():
    config = TrainConfig(lr=1.0, epochs=10, warmup_epochs=2.0, sched="cosine")
    assert learning_rate(config, 0.1) == pytest.approx(0.5)
    assert learning_rate(config, 0.2) == pytest.approx(1.0)
    assert learning_rate(config, 0.6) == pytest.approx(0.5)
    assert learning_rate(config, 1.0) == pytest.approx(0.0, abs=1e-15)


def test_constant_stays():
    config = TrainConfig(lr=0.5, sched="constant")
    assert {learning_rate(config, done) for done in (0.0, 0.3, 1.0)} == {0.5}
