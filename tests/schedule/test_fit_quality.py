"""How good a fit is: beside simulated chance, and never advice where it is noise or nonsense."""

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.covariance.likeness import SIGMAS, chance_likeness
from filtercov.errors import FiltercovWarning
from filtercov.schedule.fit_quality import fit_layer


def closed_forms(sigmas, kernel_size=5, count=64):
    n = kernel_size**2
    return fc.FilterStatistics(
        tuple(
            fc.LayerStatistics(
                str(i), (kernel_size,) * 2, count, np.zeros(n), fc.gaussian_covariance(kernel_size, sigma)
            )
            for i, sigma in enumerate(sigmas)
        )
    )


def independent(layers=6, width=256, kernel_size=9):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Conv2d(width, width, kernel_size, groups=width) for _ in range(layers)))


def simulated(kernel_size, count, repetitions):
    """Likeness of independent Gaussian filters to the nearest closed form, computed by loops from the definitions."""
    rng = np.random.default_rng(0)
    closed = [fc.gaussian_covariance(kernel_size, sigma).ravel() for sigma in SIGMAS[::40]]
    closed = np.stack([c / np.linalg.norm(c) for c in closed])
    found = []
    for _ in range(repetitions):
        cov = np.cov(rng.normal(size=(count, closed_pixels(kernel_size))), rowvar=False).ravel()
        found.append((closed @ cov).max() / np.linalg.norm(cov))
    return np.array(found)


def closed_pixels(kernel_size):
    return len(fc.gaussian_covariance(kernel_size, 1.0))


@pytest.mark.parametrize(
    ("kernel_size", "count"), [(5, 16), (5, 256), (7, 64), (7, 1024), (9, 16), (9, 256), (15, 32), ((3, 7), 64)]
)
def test_chance_is_what_independent_filters_show(kernel_size, count):
    found = simulated(kernel_size, count, 100)
    chance, limit = chance_likeness(kernel_size, count)
    assert found.mean() == pytest.approx(chance, rel=0.15, abs=0.005)
    assert (found > limit).mean() <= 0.01
    assert limit < 2 * chance


def test_a_single_filter_has_no_chance_to_speak_of():
    assert np.isnan(chance_likeness(7, 1)).all()


def test_a_schedule_of_closed_forms_follows_them_all():
    fitted = fc.fit_schedule(closed_forms([0.2, 0.4, 0.8, 1.4, 2.2], 7))
    assert fitted.fit.usable
    assert fitted.fit.missed == 0
    assert fitted.fit.likeness == pytest.approx(fitted.fit.attainable, abs=0.01)
    assert str(fitted.fit).startswith("follows 5 of 5 layers (likeness 1.00")


def test_a_schedule_fitted_to_independent_filters_is_called_noise():
    fitted = fc.fit_schedule(fc.FilterStatistics.from_model(independent()))
    assert not fitted.fit.usable
    assert fitted.fit.likeness == pytest.approx(fitted.fit.chance, abs=0.02)
    assert str(fitted.fit).startswith("noise: no layer is more like the closed form than independent filters")
    assert "noise" in repr(fitted)


@pytest.mark.parametrize("kernel_size", [5, 7, 9])
def test_sigmas_that_follow_no_parabola_have_no_schedule(kernel_size):
    fitted = fc.fit_schedule(closed_forms([0.7, 2, 14, 0.38, 5, 64], kernel_size))
    assert not fitted.fit.usable
    assert str(fitted.fit).startswith("no schedule: the nearest misses ")


def test_layers_a_closed_form_explains_little_of_have_no_schedule_either():
    statistics = closed_forms([0.3, 0.6, 1.0, 1.5, 2.0], 7, count=4096)
    mixed = tuple(
        fc.LayerStatistics(
            s.name, s.kernel_size, s.count, s.mean, s.covariance / np.trace(s.covariance) + np.eye(49) / 9
        )
        for s in statistics
    )
    fitted = fc.fit_schedule(fc.FilterStatistics(mixed))
    assert not fitted.fit.usable


def test_the_fit_of_a_layer_is_the_best_over_sigma_by_brute_force():
    layer = fc.FilterStatistics.from_model(independent(1, kernel_size=7))[0]
    fit = fit_layer(layer)
    cosines = [
        np.vdot(layer.covariance, closed) / np.linalg.norm(layer.covariance) / np.linalg.norm(closed)
        for closed in (fc.gaussian_covariance(7, sigma) for sigma in SIGMAS[::20])
    ]
    assert fit.likeness == pytest.approx(max(cosines), abs=1e-3)
    assert not fit.above_chance


def test_the_report_of_init_says_how_good_a_fitted_schedule_is():
    net = independent(4, 8, 7)
    good = fc.fit_schedule(closed_forms([0.2, 0.4, 0.8, 1.4], 7))
    assert fc.init_(net, good).notes == (f"σ is of a fitted schedule; {good.fit}",)
    bad = fc.fit_schedule(fc.FilterStatistics.from_model(independent()))
    with pytest.warns(FiltercovWarning, match="init_: σ is of a fitted schedule; noise"):
        report = fc.init_(net, bad.short())
    assert "note: σ is of a fitted schedule; noise" in str(report)


@pytest.mark.filterwarnings("error::filtercov.errors.FiltercovWarning")
def test_a_warning_that_is_an_error_changes_nothing():
    net = independent(4, 8, 7)
    before = net[0].weight.detach().clone()
    with pytest.raises(FiltercovWarning):
        fc.init_(net, fc.fit_schedule(fc.FilterStatistics.from_model(independent())))
    assert torch.equal(net[0].weight, before)
