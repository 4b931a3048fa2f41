import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.covariance.forms import kernel_shape
from filtercov.covariance.layer_statistics import LayerStatistics
from filtercov.errors import CovarianceError, SourceError
from filtercov.schedule.fit_quality import fit_layer
from filtercov.schedule.schedules import LEAST_SIGMA


def closed_form_statistics(schedule, depth, kernel_size=9, scale=1.0):
    depths = [i / (depth - 1) if depth > 1 else 0.0 for i in range(depth)]
    n = kernel_size**2
    layers = [
        LayerStatistics(
            str(d), (kernel_size,) * 2, 64, np.zeros(n), scale * fc.gaussian_covariance(kernel_size, schedule(d))
        )
        for d in depths
    ]
    return fc.FilterStatistics(tuple(layers))


def test_the_quadratic_schedule_is_the_papers_equation():
    schedule = fc.QuadraticSchedule(0.08, 0.37, 2.9)
    for d in (0.0, 0.25, 1 / 3, 1.0):
        assert schedule(d) == pytest.approx(0.08 + 0.37 * d + 0.5 * 2.9 * d**2, abs=1e-15)


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
        (-1.0, 0.0, 0.0),
        (0.1, -1.0, 0.0),
        (0.1, -1.0, 2.0),
        (0.125, -1.0, 4.0),  # zero in between
        (math.nan, 0, 0),
        (1, math.inf, 0),
        (True, 0, 0),
        ("0.5", 0, 0),
        (1, np.ones(2), 0),
    ],
)
def test_a_schedule_that_is_not_positive_at_every_depth_is_refused(parameters):
    with pytest.raises(CovarianceError, match="QuadraticSchedule: needed"):
        fc.QuadraticSchedule(*parameters)


@pytest.mark.parametrize("d", [-0.01, 1.01, math.nan])
def test_a_depth_outside_the_network_is_refused(d):
    with pytest.raises(CovarianceError, match="depth: needed a number from 0"):
        fc.QuadraticSchedule(1, 0, 0)(d)


def test_the_sawtooth_starts_again_in_every_stage():
    ramp = fc.QuadraticSchedule(1.0, 1.0, 0.0)
    saw = fc.SawtoothSchedule(ramp, (3, 1, 2))
    assert [saw(i / 5) for i in range(6)] == [1.0, 1.5, 2.0, 1.0, 1.0, 2.0]


def test_a_schedule_holds_plain_floats_whatever_it_was_made_of():
    schedule = fc.QuadraticSchedule(np.float32(0.5), torch.tensor(0.25), Fraction(1, 4))
    assert repr(schedule) == "QuadraticSchedule(sigma0=0.5, v=0.25, a=0.25)"
    assert schedule == fc.QuadraticSchedule(0.5, 0.25, 0.25)


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


def test_a_short_schedule_stays_as_it_is():
    assert fc.PRESETS["figure"].short() == fc.PRESETS["figure"]


@pytest.mark.parametrize("stages", [(), (0,), (2, -1), (1.5,), (True,), ("2",)])
def test_stages_without_layers_are_refused(stages):
    with pytest.raises(CovarianceError, match="number of layers of each stage"):
        fc.SawtoothSchedule(fc.QuadraticSchedule(1, 0, 0), stages)


@pytest.mark.parametrize("kernel_size", [5, 9, (7, 3), (11,), (3, 5, 3)])
@pytest.mark.parametrize("sigma", [0.1, 0.45, 2.3])
def test_fit_layer_recovers_the_sigma_of_a_closed_form_at_any_scale(kernel_size, sigma):
    cov = 0.003 * fc.gaussian_covariance(kernel_size, sigma)
    layer = LayerStatistics("layer", kernel_shape(kernel_size), 64, np.zeros(len(cov)), cov)
    assert fit_layer(layer).sigma == pytest.approx(sigma, rel=5e-3)


@pytest.mark.parametrize("name", ["cifar-p2", "imagenet-thawed", "imagenet-frozen", "figure"])
def test_fit_schedule_recovers_the_schedule_of_closed_forms(name):
    fitted = fc.fit_schedule(closed_form_statistics(fc.PRESETS[name], depth=12, scale=0.01))
    for d in np.linspace(0, 1, 12):
        assert fitted(d) == pytest.approx(fc.PRESETS[name](d), rel=0.02)


def test_fit_schedule_recovers_a_schedule_from_sampled_filters():
    net = nn.Sequential(*(nn.Conv2d(1024, 1024, 7, groups=1024) for _ in range(8)))
    truth = fc.PRESETS["imagenet-thawed"]
    fc.init_(net, truth, generator=torch.Generator().manual_seed(1))
    fitted = fc.fit_schedule(fc.FilterStatistics.from_model(net))
    for d in (0.0, 0.5, 1.0):
        assert fitted(d) == pytest.approx(truth(d), rel=0.15)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_fit_schedule_works_on_few_layers(depth):
    truth = fc.QuadraticSchedule(0.3, 0.4, 0.6)
    fitted = fc.fit_schedule(closed_form_statistics(truth, depth, kernel_size=7))
    for i in range(depth):
        d = i / (depth - 1) if depth > 1 else 0.0
        assert fitted(d) == pytest.approx(truth(d), rel=0.03)


def test_fit_schedule_needs_a_kernel_large_enough_to_tell():
    with pytest.raises(SourceError, match="kernel of at least 5"):
        fc.fit_schedule(closed_form_statistics(fc.PRESETS["figure"], 3, kernel_size=3))
