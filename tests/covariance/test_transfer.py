"""Empirical covariances, resizing, Kronecker squares and likeness against slow definitions and optimisation."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import scipy.optimize

from filtercov.covariance import (
    LayerStatistics,
    empirical_covariance,
    gaussian_covariance,
    nearest_kronecker,
    resize_covariance,
)
from filtercov.covariance.likeness import SIGMAS, chance_likeness, likeness
from filtercov.covariance.transfer import Resizing, compare_resized, interpolate_layers, resize_mean, resizing_doubts
from filtercov.errors import CovarianceError
from tests.reference import slow_resize, usable_covariance


def random_covariance(n, seed=0):
    factor = np.random.default_rng(seed).normal(size=(n, n))
    return factor @ factor.T / n


@pytest.mark.parametrize("count", [1, 3])
def test_equal_filters_have_no_covariance_however_their_mean_rounds(count):
    mean, cov = empirical_covariance(np.full((count, 5, 5), 0.1))
    assert not cov.any()
    assert (mean == 0.1).all()


def test_what_are_not_filters_is_refused():
    infinite = np.full((2, 3, 3), np.inf)
    for bad in (np.zeros((0, 3, 3)), np.zeros(9), np.zeros((2, 1, 3, 3, 3)), infinite, np.zeros((2, 65, 65))):
        with pytest.raises(CovarianceError):
            empirical_covariance(bad)


SQUARES = [((old, old), (new, new)) for old, new in ((3, 5), (7, 5), (5, 1), (1, 3), (3, 4), (4, 3))]
OTHERS = [((6,), (1,)), ((5, 3), (4, 6)), ((3, 4, 2), (4, 2, 3)), ((1, 5), (3, 1))]


@pytest.mark.parametrize(("old", "new"), SQUARES + OTHERS)
def test_resizing_equals_the_slow_definition(old, new):
    cov = random_covariance(math.prod(old))
    expected = usable_covariance(slow_resize(cov, old, new), "clip")
    np.testing.assert_allclose(resize_covariance(cov, old, new), expected, atol=1e-12)


def test_resizing_to_the_same_size_is_a_copy_and_to_some_refused():
    cov = np.eye(9)
    same = resize_covariance(cov, 3, 3)
    np.testing.assert_array_equal(same, cov)
    assert not np.shares_memory(same, cov)
    for size in ((5,), 400):
        with pytest.raises(CovarianceError):
            resize_covariance(cov, 3, size)


def slow_comparison(before, old, after, new):
    """Squared cosine of 1-D covariances, pixel by pixel, over both ways to lay them over each other."""
    inner = 0.0
    shifts = {(new - old) // 2, -((old - new) // 2)}
    for shift in shifts:
        pairs = [(i, i + shift) for i in range(old) if 0 <= i + shift < new]
        inner += sum(before[i, j] * after[p, q] for (i, p), (j, q) in itertools.product(pairs, pairs)) / len(shifts)
    return inner**2 / ((before**2).sum() * (after**2).sum())


@pytest.mark.parametrize(("old", "new"), [(3, 7), (4, 7), (7, 4)])
def test_what_is_left_after_resizing_is_measured_pixel_by_pixel(old, new):
    before = random_covariance(old, seed=new)
    after = resize_covariance(before, (old,), (new,))
    found = compare_resized(before, (old,), after, (new,))
    assert found == Resizing((old,), pytest.approx(slow_comparison(before, old, after, new)))
    assert compare_resized(0 * before, (old,), 0 * after, (new,)) == Resizing((old,), 1.0)


def test_resizings_are_doubtful_where_little_survives_and_told_by_their_sizes():
    layers = [((7,), Resizing((3,), share)) for share in (0.25, 0.24, 0.1)]
    first, second = resizing_doubts([*layers, ((7,), None), ((9,), Resizing((3,), 0.2))])
    assert first.startswith("2 layers resized from 3 to 7: 10% of")
    assert second.startswith("1 layer resized from 3 to 9: 20% of")


def layer(**changes):
    values = {"name": "conv", "kernel_size": (3, 3), "count": 8, "mean": np.zeros(9), "covariance": np.eye(9)}
    return LayerStatistics(**(values | changes))


def test_statistics_of_a_layer_are_resized_as_a_whole():
    original = layer(mean=np.arange(9.0), near_zero=2)
    assert original.resize(3) is original
    resized = original.resize(5).resize((7, 7))
    covariance = resize_covariance(resize_covariance(np.eye(9), 3, 5), 5, 7)
    np.testing.assert_array_equal(resized.covariance, covariance)
    np.testing.assert_array_equal(resized.mean, resize_mean(resize_mean(np.arange(9.0), 3, 5), 5, 7))
    assert (resized.kernel_size, resized.count, resized.near_zero) == ((7, 7), 8, None)
    assert repr(resized) == "<LayerStatistics conv: 8 filters of 7x7, resized from 5x5>"
    assert "\x1b" not in repr(layer(name="\x1b[2J"))


@pytest.mark.parametrize("bad", [{"count": 0}, {"kernel_size": 0}, {"mean": np.zeros(8)}, {"covariance": np.eye(8)}])
def test_statistics_that_cannot_be_of_filters_are_refused_by_the_name_of_their_layer(bad):
    with pytest.raises(CovarianceError, match=r"^conv: "):
        layer(**bad)


def test_between_two_layers_everything_is_interpolated():
    one = layer(name="a", count=1, mean=np.zeros(9))
    other = layer(name="b", count=8, mean=np.ones(9), covariance=3 * np.eye(9), resized=Resizing((7, 7), 0.4))
    mixed = interpolate_layers(one, other, 0.75)
    assert (mixed.name, mixed.count) == ("layers a and b, weighted 0.25 : 0.75", 8)
    np.testing.assert_allclose(mixed.mean, 0.75)
    np.testing.assert_allclose(mixed.covariance, 2.5 * np.eye(9))
    assert mixed.resized is interpolate_layers(one, other, 0.25).resized is other.resized
    third = layer(resized=Resizing((5, 5), 0.9))
    assert interpolate_layers(third, other, 0.49).resized is third.resized
    assert (interpolate_layers(one, one, 0.5).resized, interpolate_layers(one, one, 0.5).count) == (None, 1)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_optimiser_finds_a_nearer_kronecker_square(k):
    cov = random_covariance(k * k, seed=k)
    A = nearest_kronecker(cov, k)

    def distance(a):
        return np.square(cov - np.kron(a.reshape(k, k), a.reshape(k, k))).sum()

    rng = np.random.default_rng(0)
    found = min(scipy.optimize.minimize(distance, rng.normal(size=k * k)).fun for _ in range(20))
    assert distance(A) <= found + 1e-8
    assert np.trace(A) > 0


def test_the_kronecker_factor_is_zero_where_none_is_nearer_and_needs_square_filters():
    assert np.abs(nearest_kronecker(-np.eye(9), 3)).max() < 1e-7
    for size in ((3, 5), (9,)):
        with pytest.raises(CovarianceError, match="needs square 2-D filters"):
            nearest_kronecker(np.eye(math.prod(size)), size)


# --- Likeness to the closed form ---


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
    assert not likeness(0 * cov, kernel_size, sigmas).any()


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
