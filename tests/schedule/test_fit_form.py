"""Closed forms off the middle and with a σ per axis, fitted to layers; and chance, which always gains something."""

import itertools

import numpy as np
import pytest

from filtercov.covariance import ClosedForm, empirical_covariance, gaussian_covariance, symmetric_root
from filtercov.covariance.layer_statistics import LayerStatistics
from filtercov.schedule.fit_form import fit_form, fit_forms
from tests.reference import brute_force_covariance


def layer_of(cov, size, count=512):
    return LayerStatistics("conv", size, count, np.zeros(len(cov)), cov)


def drawn(cov, size, count, rng):
    filters = (rng.normal(size=(count, len(cov))) @ symmetric_root(cov)).reshape(count, *size)
    mean, sample = empirical_covariance(filters)
    return LayerStatistics("conv", size, count, mean, sample)


@pytest.mark.parametrize(
    ("size", "form", "arguments"),
    [
        ((5, 5), ClosedForm(0.6, (-0.5, -0.5)), {"per_axis": False}),
        ((5, 5), ClosedForm(0.3, (-1.0, 1.0)), {"per_axis": False}),
        ((7, 7), ClosedForm((0.3, 1.2)), {"offset": False}),
        ((5, 7), ClosedForm((0.8, 0.4), (0.3, -0.7)), {}),
        ((9,), ClosedForm(0.9, (1.25,)), {"per_axis": False}),
        ((3, 4, 5), ClosedForm((0.3, 0.9, 0.5), (0.0, -0.4, 0.6)), {}),
    ],
)
def test_the_parameters_of_a_form_are_found_again(size, form, arguments):
    fit = fit_form(layer_of(7.0 * brute_force_covariance(size, form.sigma, form.centre), size), **arguments)
    assert fit.form is not None
    assert fit.likeness == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(fit.form.along(size), form.along(size), atol=5e-3)
    assert fit.better


def test_the_fit_is_the_best_of_a_fine_grid():
    rng = np.random.default_rng(3)
    cov = gaussian_covariance(5, 0.5, centre=(-0.5, -0.6)) + 0.2 * np.cov(rng.normal(size=(25, 60)))
    fit = fit_form(layer_of(cov, (5, 5)), per_axis=False)
    best = -1.0
    for sigma, y, x in itertools.product(np.geomspace(0.2, 2.0, 25), *(np.linspace(-1.2, 0.4, 17),) * 2):
        form = gaussian_covariance(5, sigma, centre=(y, x))
        best = max(best, float(np.vdot(form, cov)) / float(np.linalg.norm(form) * np.linalg.norm(cov)))
    assert fit.likeness >= best - 1e-9
    assert fit.likeness == pytest.approx(best, abs=2e-3)


def test_the_gain_by_chance_is_what_sampling_gives_and_is_seldom_taken_for_structure():
    rng = np.random.default_rng(0)
    cov, trials = gaussian_covariance(5, 0.6), 60
    fits = [fit_forms(drawn(cov, (5, 5), 96, rng)) for _ in range(trials)]
    for kind in fits[0]:
        gains = np.array([fit[kind].gain for fit in fits])
        told = np.mean([fit[kind].chance_gain for fit in fits])
        assert gains.min() >= -1e-9  # more parameters always fit better
        assert gains.mean() == pytest.approx(told, abs=4 * gains.std() / trials**0.5), kind
        assert sum(fit[kind].better for fit in fits) <= 2, kind


def test_half_a_pixel_shows_through_the_noise_and_each_kind_sees_its_own():
    rng = np.random.default_rng(1)
    off = fit_forms(drawn(gaussian_covariance(5, 0.5, centre=(-0.5, -0.5)), (5, 5), 96, rng))
    assert (off["off centre"].better, off["σ per axis"].better, off["both"].better) == (True, False, True)
    unequal = fit_forms(drawn(gaussian_covariance(5, (0.3, 0.8)), (5, 5), 96, rng))
    assert (unequal["off centre"].better, unequal["σ per axis"].better) == (False, True)


def test_independent_filters_are_never_better_with_more_parameters():
    rng = np.random.default_rng(2)
    for size in ((3, 3), (5, 5), (9,)):
        for _ in range(8):
            fits = fit_forms(drawn(np.eye(int(np.prod(size))), size, 48, rng))
            assert not any(fit.better for fit in fits.values())


@pytest.mark.parametrize("size", [(5, 5), (7,)])
def test_what_rounding_gains_is_no_better(size):
    """A layer of one pixel is what every form is at the least σ: more parameters gain at most a rounding error."""
    cov = np.zeros((np.prod(size), np.prod(size)))
    cov[len(cov) // 2, len(cov) // 2] = 1.0
    for fit in fit_forms(layer_of(cov, size)).values():
        assert fit.gain < 1e-9
        assert not fit.better


def test_a_single_filter_has_no_form():
    layer = LayerStatistics("conv", (5, 5), 1, np.zeros(25), gaussian_covariance(5, 0.5))
    fit = fit_form(layer)
    assert fit.form is None
    assert not fit.better


def test_a_layer_without_spread_has_no_form_and_one_axis_no_second_sigma():
    assert fit_form(layer_of(np.zeros((9, 9)), (3, 3))).form is None
    assert list(fit_forms(layer_of(gaussian_covariance((7,), 0.5), (7,)))) == ["off centre"]


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e140])
def test_the_scale_of_the_filters_does_not_matter(scale):
    cov = gaussian_covariance(5, 0.5, centre=(-0.5, 0.25))
    usual, scaled = (fit_form(layer_of(factor * cov, (5, 5))) for factor in (1.0, scale))
    np.testing.assert_allclose(scaled.form.along((5, 5)), usual.form.along((5, 5)), atol=1e-3)
    assert (scaled.chance_gain, scaled.limit) == pytest.approx((usual.chance_gain, usual.limit))
    assert scaled.plain.sigma == usual.plain.sigma
    assert scaled.plain.likeness == pytest.approx(usual.plain.likeness)


@pytest.mark.parametrize("size", [(1, 11), (11, 1), (1, 1, 11)])
def test_an_axis_of_one_pixel_has_neither_centre_nor_sigma(size):
    root = symmetric_root(gaussian_covariance((11,), 0.8))
    for seed in range(3):
        mean, cov = empirical_covariance(np.random.default_rng(seed).normal(size=(256, 11)) @ root)
        along, [line] = LayerStatistics("line", (11,), 256, mean, cov), [i for i, k in enumerate(size) if k > 1]
        across = LayerStatistics("band", size, 256, mean, cov)
        [(kind, wanted)], [(same_kind, fit)] = fit_forms(along).items(), fit_forms(across).items()
        assert (kind, wanted.likeness, wanted.limit) == (same_kind, fit.likeness, fit.limit)
        assert [centre for i, centre in enumerate(fit.form.centre) if i != line] == [0.0] * (len(size) - 1)
        assert fit.form.centre[line] == wanted.form.centre[0]
        per_axis = fit_form(across, offset=False)
        assert (per_axis.gain, per_axis.better) == (0.0, False)
        np.testing.assert_allclose(
            gaussian_covariance(size, fit_form(across).form.sigma), gaussian_covariance((11,), wanted.form.sigma)
        )
