import tracemalloc

import numpy as np
import pytest

from filtercov.covariance import gaussian_covariance
from filtercov.covariance.likeness import SIGMAS, chance_likeness, likeness


def random_covariance(n):
    factor = np.random.default_rng(n).normal(size=(n, 2 * n))
    return factor @ factor.T / n


def cosines(cov, kernel_size, sigmas):
    closed = [gaussian_covariance(kernel_size, sigma) for sigma in sigmas]
    return [(cov * one).sum() / np.linalg.norm(cov) / np.linalg.norm(one) for one in closed]


@pytest.mark.parametrize("kernel_size", [1, (3, 7), 19, (3, 4, 5), (5, 1, 4), (26,)], ids=str)
def test_likeness_is_the_cosine_between_covariances_as_vectors(kernel_size):
    cov = random_covariance(len(gaussian_covariance(kernel_size, 1.0))) + gaussian_covariance(kernel_size, 0.8)
    sigmas = [0.02, 0.1, 0.5, 2.0, 9.0]
    np.testing.assert_allclose(likeness(cov, kernel_size, sigmas), cosines(cov, kernel_size, sigmas), atol=1e-12)
    few = slice(0, None, 199)
    kept = likeness(cov, kernel_size)[few]  # from closed forms that are kept
    np.testing.assert_allclose(kept, cosines(cov, kernel_size, SIGMAS[few]), atol=1e-12)
    np.testing.assert_allclose(likeness(1e-200 * cov, kernel_size, sigmas), likeness(cov, kernel_size, sigmas))


@pytest.mark.parametrize(("shape", "most"), [((1, 15, 15), 90e6), ((9, 9, 9), 90e6), ((64,), 150e6)])
def test_filters_of_many_pixels_take_no_array_of_pixels_by_pixels_by_sigma(shape, most):
    cov = gaussian_covariance(shape, 3.0)
    tracemalloc.start()
    try:
        found = likeness(cov, shape)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most
    assert SIGMAS[found.argmax()] == pytest.approx(3.0, rel=0.005)


def test_nothing_is_like_zero():
    assert (likeness(np.zeros((9, 9)), 3, [0.5, 1.0]) == 0).all()


@pytest.mark.parametrize(("kernel_size", "count"), [((5, 5), 16), ((9, 9), 256), ((9,), 64)])
def test_chance_is_what_independent_filters_show(kernel_size, count):
    rng = np.random.default_rng(0)
    closed = [gaussian_covariance(kernel_size, sigma).ravel() for sigma in SIGMAS[::40]]
    closed = np.stack([c / np.linalg.norm(c) for c in closed])
    found = []
    for _ in range(100):
        cov = np.cov(rng.normal(size=(count, int(np.prod(kernel_size)))), rowvar=False).ravel()
        found.append((closed @ cov).max() / np.linalg.norm(cov))
    chance, limit = chance_likeness(kernel_size, count)
    assert np.mean(found) == pytest.approx(chance, rel=0.1, abs=0.005)
    assert (np.array(found) > limit).mean() <= 0.01
    assert chance < limit < 2 * chance


def test_few_filters_may_be_as_like_as_can_be_and_one_has_no_chance():
    assert chance_likeness(2, 2)[1] == 1.0
    assert np.isnan(chance_likeness(7, 1)).all()
