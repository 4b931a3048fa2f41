"""What references say of their own covariances, on networks whose answer is known."""

from itertools import permutations

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.covariance import gaussian_covariance
from filtercov.lab.experiments.paper import chance_of_rising, judge_references, static_component


def network(*, closed_form: bool) -> fc.FilterStatistics:
    """Statistics of four layers, one too small to fit, drawn from the closed form or independently."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(400, 400, k, groups=400) for k in (7, 3, 7, 7)]
    model = nn.Sequential(*layers)
    if closed_form:
        fc.init_(model, lambda layer: 0.5 + 2.0 * layer.depth, seed=0)
    return fc.FilterStatistics.from_model(model)


def test_filters_of_a_growing_closed_form_are_found_negative_and_growing():
    small = fc.FilterStatistics.from_model(nn.Sequential(nn.Conv2d(16, 16, 3, groups=16)))  # which say nothing
    networks = {"drawn": network(closed_form=True), "small": small, "plain": network(closed_form=False)}
    drawn, plain = judge_references(networks)
    assert [layer.name for layer in drawn.layers] == ["0", "2", "3"]
    assert drawn.rising == (3, 3)
    assert drawn.by_chance == pytest.approx(1 / 6)
    assert drawn.negative == 3
    for layer, sigma in zip(drawn.layers, (0.5, 0.5 + 4 / 3, 2.5), strict=True):
        assert layer.sigma == pytest.approx(sigma, rel=0.15)
        assert layer.static == pytest.approx(-1, abs=0.25)
    assert plain.negative == 0


@pytest.mark.parametrize("beta", [-2.0, 0.0, 0.5])
def test_the_static_component_is_that_of_the_covariance(beta):
    sigma, k = 1.2, 5
    z = np.exp(-((np.arange(k) - 2) ** 2) / (2 * sigma))
    static = np.outer(np.outer(z, z).ravel(), np.outer(z, z).ravel()) / 2
    closed_form = gaussian_covariance(k, sigma)
    covariance = 3 * (closed_form + (1 + beta) * static)
    found = static_component(covariance, (k, k), sigma)
    assert found == pytest.approx(3 * beta * np.trace(closed_form) / np.trace(covariance), abs=1e-9)


def test_the_chance_of_rising_is_counted_over_all_orders():
    orders = list(permutations(range(4)))
    rising = [sum(a < b for i, a in enumerate(order) for b in order[i + 1 :]) for order in orders]
    for pairs in range(7):
        assert chance_of_rising(4, pairs) == pytest.approx(sum(n >= pairs for n in rising) / len(orders))
