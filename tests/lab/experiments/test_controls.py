"""The controls keep the closed form's variance per layer and lack what their names say."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from filtercov.covariance import gaussian_covariance, symmetric_root
from filtercov.lab.experiments.baselines import CONTROLS, control_covariance
from filtercov.lab.experiments.initialisations import InitContext, find

SIGMA, MEAN_SIGMA, K = 1.3, 0.7, 5


def usable(covariance: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * values.clip(min=0)) @ vectors.T


def gaussian(offset: float, sigma: float) -> float:
    return math.exp(-(offset**2) / (2 * sigma))


def by_the_definition(control: str) -> np.ndarray:
    """M ⊙ (C − ½S) and its symmetric part, entry by entry, with one component replaced."""
    pixels = [(i, j) for i in range(K) for j in range(K)]
    middle = K // 2

    def z(p: tuple[int, int]) -> float:
        return gaussian(p[0] - middle, SIGMA) * gaussian(p[1] - middle, SIGMA)

    def wrapped(a: int, b: int) -> float:
        return gaussian(min(abs(a - b), K - abs(a - b)), SIGMA)

    one_sided = np.empty((K * K, K * K))
    for i, p in enumerate(pixels):
        for j, q in enumerate(pixels):
            mask = 1.0 if control == "no-mask" else z(p)
            dynamic = float(p == q) if control == "no-dynamic" else wrapped(p[0], q[0]) * wrapped(p[1], q[1])
            static = 0.0 if control == "no-static" else z(q)
            one_sided[i, j] = mask * (dynamic - 0.5 * static)
    return usable((one_sided + one_sided.T) / 2)


def covariance_of(control: str) -> np.ndarray:
    return control_covariance(
        control, (K, K), sigma=SIGMA, mean_sigma=MEAN_SIGMA, negative="clip", random=np.random.default_rng(3)
    )


@pytest.mark.parametrize("control", ["no-static", "no-mask", "no-dynamic"])
def test_a_component_left_out_is_the_definition_without_it(control: str) -> None:
    found, wanted = covariance_of(control), by_the_definition(control)
    closed_form = usable(gaussian_covariance(K, SIGMA))
    np.testing.assert_allclose(found, wanted * np.trace(closed_form) / np.trace(wanted), atol=1e-12)


def test_diagonal_scrambled_and_one_sigma_keep_what_they_should() -> None:
    closed_form = usable(gaussian_covariance(K, SIGMA))
    np.testing.assert_allclose(covariance_of("diagonal"), np.diag(np.diag(closed_form)), atol=1e-12)
    scrambled = covariance_of("scrambled")
    np.testing.assert_allclose(np.linalg.eigvalsh(scrambled), np.linalg.eigvalsh(closed_form), atol=1e-12)
    assert np.linalg.norm(scrambled - closed_form) > 0.5 * np.linalg.norm(closed_form)
    shape = usable(gaussian_covariance(K, MEAN_SIGMA))
    np.testing.assert_allclose(covariance_of("one-sigma"), shape * np.trace(closed_form) / np.trace(shape), atol=1e-12)


@pytest.mark.parametrize("control", ["power", *CONTROLS])
def test_filters_have_the_closed_forms_variance_in_every_layer(control: str) -> None:
    model = nn.Sequential(*[nn.Conv2d(4000, 4000, 5, groups=4000, bias=False) for _ in range(3)])
    context = InitContext(torch.Generator().manual_seed(0), schedule="0.3,0.5,2")
    find(control)(model, context)
    for layer, sigma in zip(model, (0.3, 0.3 + 0.25 + 0.25, 0.3 + 0.5 + 1.0), strict=True):
        root = symmetric_root(gaussian_covariance(5, sigma))
        drawn = layer.weight.detach().double().flatten(1).square().sum(1).mean().item()
        assert drawn == pytest.approx((root**2).sum(), rel=0.1)
