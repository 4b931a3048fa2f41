"""`fit_schedule` against brute force, for networks whose σ does and does not follow a parabola."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import filtercov as fc
from filtercov.covariance.layer_statistics import LayerStatistics
from filtercov.schedule.schedules import LEAST_SIGMA

K = 5
FINE = np.geomspace(0.02, 64, 400)


@cache
def closed_form(sigma):
    return fc.gaussian_covariance(K, sigma)


@cache
def unexplained(sigma):
    """The share of the closed form at σ that a multiple of the closed form at each of FINE leaves unexplained."""
    target = closed_form(sigma).ravel()
    others = np.stack([closed_form(s).ravel() for s in FINE])
    return 1 - (others @ target) ** 2 / ((others**2).sum(1) * (target @ target))


def statistics(sigmas):
    return fc.FilterStatistics(
        tuple(LayerStatistics(str(i), (K, K), 64, np.zeros(K * K), closed_form(s)) for i, s in enumerate(sigmas))
    )


def depths(sigmas):
    return np.linspace(0, 1, len(sigmas)) if len(sigmas) > 1 else np.zeros(1)


def objective(parameters, sigmas):
    """Σ (1 - cosine²) over layers, for schedules (..., 3)."""
    sigma0, v, a = np.moveaxis(np.asarray(parameters), -1, 0)
    at = [np.log(sigma0 + v * d + 0.5 * a * d**2) for d in depths(sigmas)]
    return sum(np.interp(x, np.log(FINE), unexplained(s)) for x, s in zip(at, sigmas, strict=True))


@cache
def valid_schedules():
    """A grid of (σ0, v, a) that are positive at every depth."""
    first, middle, last = (side.ravel() for side in np.meshgrid(*[np.geomspace(0.02, 64, 20)] * 3))
    v, a = 4 * middle - 3 * first - last, 4 * (first + last - 2 * middle)
    lowest = np.min([first + v * d + 0.5 * a * d * d for d in np.linspace(0, 1, 501)], axis=0)
    return np.stack([first, v, a], axis=-1)[lowest > 0]


def brute_force(sigmas):
    return objective(valid_schedules(), sigmas).min()


def check(sigmas):
    sigmas = [float(s) for s in sigmas]
    fitted = fc.fit_schedule(statistics(sigmas))
    everywhere = [fitted(d) for d in np.linspace(0, 1, 2001)]
    assert min(everywhere) >= LEAST_SIGMA > 0
    short = fitted.short()
    assert all(short(d) == pytest.approx(fitted(d), rel=0.0101) for d in np.linspace(0, 1, 101))
    assert objective((fitted.sigma0, fitted.v, fitted.a), sigmas) <= brute_force(sigmas) + 2e-3


rng = np.random.default_rng(0)


def random_sigmas(count):
    return np.exp(rng.uniform(np.log(0.02), np.log(64), count)).round(3)


@pytest.mark.parametrize(
    "sigmas",
    [
        [0.02, 0.05, 0.1, 0.2, 0.5, 3],
        [0.1] * 5 + [5],
        [5] + [0.1] * 5,
        [0.1] * 3 + [5] + [0.1] * 3,
        [5] * 3 + [0.1] + [5] * 3,
        [0.02, 64],
        [64, 0.02],
        [64, 0.02, 64],
        [0.02, 64] * 4,
        [0.7],
        [0.02],
        [64],
        [1.0] * 9,
        *(sorted(random_sigmas(n)) for n in (3, 6, 12)),
        *(sorted(random_sigmas(n), reverse=True) for n in (3, 6, 12)),
        *(random_sigmas(n) for n in (2, 3, 4, 5, 7, 9, 12, 16)),
    ],
    ids=lambda sigmas: " ".join(f"{s:g}" for s in sigmas),
)
def test_any_network_has_a_valid_schedule_as_good_as_brute_force_finds(sigmas):
    check(sigmas)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 5.0, 64.0]), min_size=1, max_size=10))
def test_every_sequence_of_sigmas_has_a_valid_schedule_as_good_as_brute_force_finds(sigmas):
    check(sigmas)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.floats(0.05, 5), st.floats(0.05, 5), st.floats(0.05, 5), st.integers(3, 12))
def test_exact_quadratics_are_recovered(first, middle, last, count):
    try:
        truth = fc.QuadraticSchedule(first, 4 * middle - 3 * first - last, 4 * (first + last - 2 * middle))
    except fc.FiltercovError:
        return  # a parabola through these is not positive in between
    sigmas = [truth(d) for d in np.linspace(0, 1, count)]
    if not 0.05 < min(sigmas) <= max(sigmas) < 5:
        return  # where 5×5 filters can tell one σ from another
    fitted = fc.fit_schedule(statistics(sigmas))
    assert [fitted(d) for d in np.linspace(0, 1, count)] == pytest.approx(sigmas, rel=0.05)


def test_two_layers_are_joined_by_a_line():
    fitted = fc.fit_schedule(statistics([0.1, 4.0]))
    assert fitted(0.5) == pytest.approx(2.05, rel=0.01)


def test_layers_without_variance_say_nothing_and_break_nothing():
    layers = statistics([0.3, 0.5, 0.9]).layers
    dead = LayerStatistics("dead", (K, K), 64, np.zeros(K * K), np.zeros((K * K, K * K)))
    fitted = fc.fit_schedule(fc.FilterStatistics((layers[0], dead, layers[2])))
    assert fitted(0.0) == pytest.approx(0.3, rel=0.02)
    assert fitted(1.0) == pytest.approx(0.9, rel=0.02)
