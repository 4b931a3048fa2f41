"""Schedules against the paper's equation, and `fit_schedule` against brute force and simulated chance."""

import math
from functools import cache

import numpy as np
import pytest
import torch

import filtercov as fc
from filtercov.errors import CovarianceError, FiltercovWarning, SourceError
from filtercov.schedule import LEAST_SIGMA, ScheduleFit, SigmaFit, fit_layer
from tests.depthwise_layers import network

K = 5


@cache
def closed_form(sigma, kernel_size=K):
    return fc.gaussian_covariance(kernel_size, sigma)


def statistics(sigmas, kernel_size=K, count=64, scale=1.0):
    n = kernel_size**2
    return fc.FilterStatistics(
        tuple(
            fc.LayerStatistics(str(i), (kernel_size,) * 2, count, np.zeros(n), scale * closed_form(s, kernel_size))
            for i, s in enumerate(sigmas)
        )
    )


def test_the_quadratic_schedule_is_the_papers_equation_inside_the_network():
    schedule = fc.QuadraticSchedule(0.08, 0.37, 2.9)
    for d in (0.0, 0.25, 1 / 3, 1.0):
        assert schedule(d) == pytest.approx(0.08 + 0.37 * d + 0.5 * 2.9 * d**2, abs=1e-15)
    for d in (-0.01, 1.01, math.nan, None):
        with pytest.raises(CovarianceError, match="depth: needed a number from 0"):
            schedule(d)


def test_the_presets_are_the_papers_settings():
    expected = {
        "cifar-p2": (0.08, 0.37, 2.9),
        "cifar-p1": (0.16, 0.74, 5.8),
        "cifar-p1-listing": (0.16, 0.32, 2.88),
        "imagenet-frozen": (0.15, 0.5, 0.25),
        "imagenet-thawed": (0.15, 0.25, 1.0),
        "imagenet-third": (0.15, 0.3, 0.5),
        "figure": (0.5, 0.5, 3.0),
    }
    assert {name: (s.sigma0, s.v, s.a) for name, s in fc.PRESETS.items()} == expected


@pytest.mark.parametrize(
    "parameters",
    [
        (0.0, 1.0, 1.0),
        (0.1, -1.0, 0.0),  # negative at the end
        (0.125, -1.0, 4.0),  # zero in between
        (1, math.inf, 0),
        ("0.5", 0, 0),
    ],
)
def test_a_schedule_that_is_not_positive_at_every_depth_is_refused(parameters):
    with pytest.raises(CovarianceError, match="QuadraticSchedule: needed"):
        fc.QuadraticSchedule(*parameters)
    assert fc.QuadraticSchedule(LEAST_SIGMA, 0, 0)(0.5) == LEAST_SIGMA
    assert fc.QuadraticSchedule(1.0, -1.0, 0.4)(1.0) == pytest.approx(0.2)  # it would be negative only beyond the end


@pytest.mark.parametrize("above", [1e-8, 1e-3, 1.0])
def test_a_short_schedule_is_valid_and_near(above):
    """Also where the schedule comes down to the least σ in between."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        first, last = np.exp(rng.uniform(np.log(0.01), np.log(50), 2))
        middle = LEAST_SIGMA + (np.sqrt(first - LEAST_SIGMA) - np.sqrt(last - LEAST_SIGMA)) ** 2 / 4 + above
        schedule = fc.QuadraticSchedule(first, 4 * middle - 3 * first - last, 4 * (first + last - 2 * middle))
        short = schedule.short()
        assert all(short(d) == pytest.approx(schedule(d), rel=0.0101) for d in np.linspace(0, 1, 21))
    assert fc.PRESETS["figure"].short() == fc.PRESETS["figure"]
    assert fc.QuadraticSchedule(0.004, 0.0, 0.00007).short().a == 0.0001  # off by half of .00003 at the end: 0.4 %


@pytest.mark.parametrize(("size", "cov"), [(3, np.zeros((9, 9))), (1, np.eye(1))])
def test_layers_without_spread_or_of_one_pixel_fit_no_sigma(size, cov):
    fit = fit_layer(fc.LayerStatistics("layer", size, 64, np.zeros(len(cov)), cov))
    assert np.isnan((fit.sigma, fit.likeness, fit.chance, fit.limit)).all()
    assert not fit.above_chance


# How much of the closed form at σ a multiple of the closed form at each of FINE leaves unexplained: an oracle for the
# fit, which knows nothing of how it searches.
FINE = np.geomspace(0.02, 64, 400)


@cache
def unexplained(sigma):
    target = closed_form(sigma).ravel()
    others = np.stack([closed_form(s).ravel() for s in FINE])
    return 1 - (others @ target) ** 2 / ((others**2).sum(1) * (target @ target))


def objective(parameters, sigmas):
    """Σ (1 - cosine²) over layers, for schedules (..., 3)."""
    sigma0, v, a = np.moveaxis(np.asarray(parameters), -1, 0)
    depths = np.linspace(0, 1, len(sigmas)) if len(sigmas) > 1 else np.zeros(1)
    at = [np.log(sigma0 + v * d + 0.5 * a * d**2) for d in depths]
    return sum(np.interp(x, np.log(FINE), unexplained(s)) for x, s in zip(at, sigmas, strict=True))


@cache
def valid_schedules():
    """A grid of (σ0, v, a) that are positive at every depth."""
    first, middle, last = (side.ravel() for side in np.meshgrid(*[np.geomspace(0.02, 64, 20)] * 3))
    v, a = 4 * middle - 3 * first - last, 4 * (first + last - 2 * middle)
    lowest = np.min([first + v * d + 0.5 * a * d * d for d in np.linspace(0, 1, 501)], axis=0)
    return np.stack([first, v, a], axis=-1)[lowest > 0]


rng = np.random.default_rng(0)


@pytest.mark.parametrize(
    "sigmas",
    [
        [5] + [0.1] * 5,
        [0.1] * 3 + [5] + [0.1] * 3,
        [64, 0.02, 64],
        [0.02, 64] * 4,
        [0.7],
        *(np.exp(rng.uniform(np.log(0.02), np.log(64), n)).round(3) for n in (2, 5, 12)),
    ],
    ids=lambda sigmas: " ".join(f"{s:g}" for s in sigmas),
)
def test_any_network_has_a_valid_schedule_as_good_as_brute_force_finds(sigmas):
    sigmas = [float(s) for s in sigmas]
    fitted = fc.fit_schedule(statistics(sigmas))
    assert min(fitted(d) for d in np.linspace(0, 1, 2001)) >= LEAST_SIGMA
    assert objective((fitted.sigma0, fitted.v, fitted.a), sigmas) <= objective(valid_schedules(), sigmas).min() + 2e-3
    assert type(fitted.short()) is type(fitted)


def test_a_schedule_is_recovered_from_its_closed_forms():
    depths, truth = np.linspace(0, 1, 12), fc.PRESETS["cifar-p2"]
    fitted = fc.fit_schedule(statistics([truth(d) for d in depths], kernel_size=9, scale=0.01))
    assert [fitted(d) for d in depths] == pytest.approx([truth(d) for d in depths], rel=0.02)
    assert fitted.fit.missed == 0
    assert fitted.fit.usable
    assert fitted.fit.likeness == pytest.approx(fitted.fit.attainable, abs=0.01)
    assert str(fitted.fit).startswith("follows 12 of 12 layers (likeness 1.00")


def test_two_layers_are_joined_by_a_line_and_small_or_dead_ones_between_count_for_depth():
    assert fc.fit_schedule(statistics([0.1, 4.0]))(0.5) == pytest.approx(2.05, rel=0.01)
    first, last = statistics([0.3, 0.9])
    dead = fc.LayerStatistics("dead", (K, K), 64, np.zeros(K * K), np.zeros((K * K, K * K)))
    small = fc.LayerStatistics("small", (3, 3), 64, np.zeros(9), closed_form(5.0, 3))
    fitted = fc.fit_schedule(fc.FilterStatistics((first, dead, last, small)))
    assert [fitted(0.0), fitted(2 / 3)] == pytest.approx([0.3, 0.9], rel=0.02)
    assert len(fitted.fit.layers) == 2
    with pytest.raises(SourceError, match="kernel of at least 5"):
        fc.fit_schedule([small])


@pytest.mark.filterwarnings("error::filtercov.errors.FiltercovWarning")
def test_a_schedule_fitted_to_independent_filters_is_called_noise_and_init_warns_before_it_changes_anything():
    fitted = fc.fit_schedule(fc.FilterStatistics.from_model(network(9, 9, 9, 9, 9, 9, width=256)))
    assert not fitted.fit.usable
    assert fitted.fit.likeness == pytest.approx(fitted.fit.chance, abs=0.02)
    assert "noise: no layer is more like the closed form" in repr(fitted)
    net = network(7, 7, 7, 7)
    before = net[0].weight.detach().clone()
    with pytest.raises(FiltercovWarning, match="noise"):
        fc.init_(net, fitted.short())
    assert torch.equal(net[0].weight, before)
    good = fc.fit_schedule(statistics([0.2, 0.4, 0.8, 1.4], 7))
    assert fc.init_(net, good).notes == ()


def quality(*likenesses, along=None, limit=0.2):
    layers = tuple(SigmaFit(1.0, x, 0.1, limit) for x in likenesses)
    return ScheduleFit(layers, likenesses if along is None else along)


@pytest.mark.parametrize(
    ("fit", "missed", "above_chance", "usable", "words"),
    [
        (quality(0.9, 0.9, 0.9), 0, 3, True, "follows 3 of 3 layers ("),
        (quality(*[0.9] * 10, along=(*[0.9] * 9, 0.6)), 1, 10, True, "follows 9 of 10 layers ("),
        (quality(*[0.9] * 9, along=(*[0.9] * 8, 0.6)), 1, 9, False, "no schedule: the nearest misses 1 of 9 layers ("),
        (quality(0.7, 0.7, 0.7, 0.7), 0, 4, False, "not the closed form: it explains 49% of the covariances ("),
        (quality(0.9, 0.2, 0.1, 0.9), 2, 2, False, "noise: 2 of 4 layers are more like the closed form"),
        (quality(), 0, 0, False, "no layer has filters that vary"),
    ],
)
def test_the_judgement_of_a_fit(fit, missed, above_chance, usable, words):
    assert (fit.missed, fit.above_chance, fit.usable) == (missed, above_chance, usable)
    assert str(fit).startswith(words)
    if fit.layers:
        assert fit.likeness == pytest.approx(np.sqrt(np.mean(np.square(fit.along))))
        assert fit.chance == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("convmixer-64-8-k7-p2", (0.4701323654, -0.6071509194, 9.8220468282)),
        ("convmixer-64-8-k9-p2", (0.5285494819, 0.8869335787, 9.2741754311)),
        ("convnext-atto-p2", (0.5894111608, -0.0885245600, -0.0461766750)),
    ],
)
def test_the_schedules_nearest_to_references_stay_as_they_are(name, found):
    schedule = fc.fit_schedule(fc.FilterStatistics.shipped(name))
    assert (schedule.sigma0, schedule.v, schedule.a) == pytest.approx(found, rel=1e-7)
