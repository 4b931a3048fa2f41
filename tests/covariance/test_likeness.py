import tracemalloc

import numpy as np
import pytest

from filtercov.covariance import gaussian_covariance
from filtercov.covariance.likeness import SIGMAS, Likeness, likeness
from filtercov.errors import CovarianceError


@pytest.mark.parametrize("kernel_size", [1, 5, 8, (3, 7), (11,), (3, 4, 5), (5, 1, 4), (25,), (64,), (1, 40)])
def test_likeness_is_the_cosine_between_covariances_as_vectors(kernel_size):
    n = len(gaussian_covariance(kernel_size, 1.0))
    factor = np.random.default_rng(0).normal(size=(n, n))
    cov = factor @ factor.T / n + gaussian_covariance(kernel_size, 0.8)
    sigmas = [0.1, 0.5, 2.0, 9.0]
    expected = []
    for sigma in sigmas:
        closed = gaussian_covariance(kernel_size, sigma)
        expected.append((cov * closed).sum() / np.linalg.norm(cov) / np.linalg.norm(closed))
    np.testing.assert_allclose(likeness(cov, kernel_size, sigmas), expected, atol=1e-12)


@pytest.mark.parametrize("kernel_size", [3, (5, 7), 19])
def test_closed_forms_that_are_kept_serve_every_covariance_of_their_size(kernel_size):
    for sigma in (0.3, 2.0):
        cov = gaussian_covariance(kernel_size, sigma)
        kept = Likeness(cov, kernel_size).at_sigmas()
        np.testing.assert_array_equal(kept, likeness(cov, kernel_size, SIGMAS))
        assert SIGMAS[kept.argmax()] == pytest.approx(sigma, rel=0.005)


@pytest.mark.parametrize("shape", [(1, 15, 15), (9, 9, 9)])
def test_filters_of_three_axes_take_no_more_memory_than_others(shape):
    cov = gaussian_covariance(shape, 0.8) + np.eye(np.prod(shape))
    tracemalloc.start()
    try:
        found = Likeness(cov, shape).at_sigmas()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 90e6
    every = slice(0, None, 400)
    closed = [gaussian_covariance(shape, sigma) for sigma in SIGMAS[every]]
    expected = [(cov * one).sum() / np.linalg.norm(cov) / np.linalg.norm(one) for one in closed]
    np.testing.assert_allclose(found[every], expected, atol=1e-12)


def test_nothing_is_like_zero():
    assert (likeness(np.zeros((9, 9)), 3, [0.5, 1.0]) == 0).all()


def test_bad_sigmas_and_covariances_are_refused():
    with pytest.raises(CovarianceError, match="sigma: needed"):
        likeness(np.eye(9), 3, [0.5, -1.0])
    with pytest.raises(CovarianceError, match="3x3 filters need"):
        likeness(np.eye(4), 3, [0.5])


@pytest.mark.parametrize("k", [25, 26, 129])
def test_long_lines_of_any_sigma_and_centre_are_like_the_definition_says(k):
    rng = np.random.default_rng(k)
    factor = rng.normal(size=(k, 2 * k))
    cov = factor @ factor.T
    sigmas, centres = np.geomspace(0.02, 64, 12), rng.uniform(-k / 2, k / 2, 12)
    found = Likeness(cov, (k,))(sigmas[:, None], centres[:, None])
    for value, sigma, centre in zip(found, sigmas, centres, strict=True):
        closed = gaussian_covariance((k,), sigma, centre=centre)
        expected = (cov * closed).sum() / np.linalg.norm(cov) / np.linalg.norm(closed)
        assert value == pytest.approx(expected, abs=1e-12)
    np.testing.assert_array_equal(Likeness(cov, (1, k)).at_sigmas(), Likeness(cov, (k,)).at_sigmas())


def test_a_line_of_a_thousand_pixels_takes_no_array_of_pixels_by_pixels_by_sigma():
    cov = gaussian_covariance((1024,), 3.0)
    tracemalloc.start()
    try:
        found = Likeness(cov, (1024,)).at_sigmas()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert SIGMAS[found.argmax()] == pytest.approx(3.0, rel=0.005)
    assert peak < 300e6
