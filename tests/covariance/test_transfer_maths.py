"""Empirical covariances, resizing and Kronecker squares against slow definitions and numerical optimisation."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from filtercov.covariance import empirical_covariance, gaussian_covariance, nearest_kronecker, resize_covariance
from filtercov.covariance.resize import resize_mean
from filtercov.errors import CovarianceError
from tests.reference import slow_resize, usable_covariance


def random_covariance(n, seed=0):
    factor = np.random.default_rng(seed).normal(size=(n, n))
    return factor @ factor.T / n


def test_empirical_covariance_equals_numpys():
    filters = np.random.default_rng(0).normal(size=(40, 3, 5)) + 2
    mean, cov = empirical_covariance(filters)
    np.testing.assert_allclose(mean, filters.reshape(40, 15).mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(cov, np.cov(filters.reshape(40, 15), rowvar=False), atol=1e-14)


def test_fewer_filters_than_pixels_give_a_rank_deficient_covariance_and_one_filter_none():
    _, cov = empirical_covariance(np.random.default_rng(0).normal(size=(8, 9, 9)))
    assert np.linalg.matrix_rank(cov) == 7
    mean, cov = empirical_covariance(np.ones((1, 3, 3)))
    assert (mean == 1).all()
    assert (cov == 0).all()


@pytest.mark.parametrize(
    "bad", [np.zeros((0, 3, 3)), np.zeros(9), np.zeros((2, 1, 3, 3, 3)), np.full((2, 3, 3), np.inf)]
)
def test_what_are_not_filters_is_refused(bad):
    with pytest.raises(CovarianceError, match="empirical_covariance: needed"):
        empirical_covariance(bad)


@pytest.mark.parametrize(
    ("old", "new"), [(3, 5), (5, 3), (7, 9), (9, 7), (3, 9), (4, 6), (5, 1), (1, 3), (3, 4), (4, 3)]
)
def test_resizing_equals_the_slow_definition(old, new):
    cov = random_covariance(old * old)
    expected = usable_covariance(slow_resize(cov, old, new), "clip")
    np.testing.assert_allclose(resize_covariance(cov, old, new), expected, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 3).flatmap(
        lambda d: st.tuples(*[st.lists(st.integers(1, 4), min_size=d, max_size=d).map(tuple)] * 2)
    )
)
def test_resizing_any_kernel_gives_a_covariance_of_the_new_size(sizes):
    old, new = sizes
    resized = resize_covariance(random_covariance(int(np.prod(old))), old, new)
    assert resized.shape == (np.prod(new), np.prod(new))
    np.testing.assert_allclose(resized, resized.T, atol=1e-12)
    assert np.linalg.eigvalsh(resized).min() > -1e-10


def test_resizing_to_the_same_size_changes_nothing():
    cov = gaussian_covariance(5, 3.0)
    np.testing.assert_array_equal(resize_covariance(cov, 5, 5), cov)


def test_resizing_keeps_the_structure_of_the_closed_form():
    resized = resize_covariance(gaussian_covariance(7, 0.5), 7, 9).ravel()
    target = gaussian_covariance(9, 0.5).ravel()
    assert resized @ target / np.linalg.norm(resized) / np.linalg.norm(target) > 0.9


def test_a_mean_of_another_size_is_refused():
    with pytest.raises(CovarianceError, match=r"3x3 filters need a \(9,\) mean, got \(4,\)"):
        resize_mean(np.zeros(4), 3, 5)


def test_resizing_between_different_numbers_of_axes_is_refused():
    with pytest.raises(CovarianceError, match="as many axes, got 3x3 and 5"):
        resize_covariance(np.eye(9), 3, (5,))


def test_a_mean_is_padded_with_its_mean_and_clipped_at_its_centre():
    mean = np.arange(9.0)
    np.testing.assert_array_equal(resize_mean(mean, 3, 1), [4.0])
    padded = resize_mean(mean, 3, 5).reshape(5, 5)
    np.testing.assert_array_equal(padded[1:4, 1:4].ravel(), mean)
    assert (padded[0] == 4.0).all()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_optimiser_finds_a_nearer_kronecker_square(k):
    cov = random_covariance(k * k, seed=k)
    A = nearest_kronecker(cov, k)

    def distance(a):
        return np.square(cov - np.kron(a.reshape(k, k), a.reshape(k, k))).sum()

    rng = np.random.default_rng(0)
    found = min(scipy.optimize.minimize(distance, rng.normal(size=k * k)).fun for _ in range(20))
    assert distance(A) <= found + 1e-8


def test_the_kronecker_factor_of_a_covariance_is_a_covariance():
    for seed in range(5):
        A = nearest_kronecker(random_covariance(25, seed), 5)
        np.testing.assert_allclose(A, A.T, atol=1e-10)
        assert np.linalg.eigvalsh(A).min() > -1e-10


def test_where_no_square_is_nearer_than_zero_the_factor_is_zero():
    assert np.abs(nearest_kronecker(-np.eye(9), 3)).max() < 1e-7


@pytest.mark.parametrize("size", [(3, 5), (9,), (3, 3, 3)])
def test_kronecker_squares_of_other_than_square_filters_are_refused(size):
    with pytest.raises(CovarianceError, match="needs square 2-D filters"):
        nearest_kronecker(np.eye(int(np.prod(size))), size)


@pytest.mark.parametrize(("old", "new"), [((4,), (5,)), ((4,), (3,)), ((8, 5), (7, 6)), ((7, 7), (8, 8)), ((6,), (1,))])
def test_resizing_between_even_and_odd_sizes_keeps_the_centre(old, new):
    resized = resize_covariance(gaussian_covariance(old, 1.0), old, new).reshape(new * 2)
    mean = resize_mean(np.diag(gaussian_covariance(old, 1.0)), old, new).reshape(new)
    for axis in range(len(new)):
        np.testing.assert_allclose(resized, np.flip(resized, (axis, axis + len(new))), atol=1e-12)
        np.testing.assert_allclose(mean, np.flip(mean, axis), atol=1e-12)


def test_resizing_to_filters_too_large_to_compute_with_is_refused():
    with pytest.raises(CovarianceError, match="needed filters of at most 4096 pixels, got 400x400 ones"):
        resize_covariance(np.eye(9), 3, 400)


def test_filters_that_are_all_equal_have_no_covariance_however_their_mean_rounds():
    mean, cov = empirical_covariance(np.full((3, 5, 5), 0.1))
    assert not cov.any()
    assert (mean == 0.1).all()
