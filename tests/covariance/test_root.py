import numpy as np
import pytest

from filtercov.covariance import gaussian_covariance, symmetric_root
from filtercov.covariance.root import WINDOW_ERROR, covariance_root, gaussian_roots, support_window
from filtercov.errors import CovarianceError
from tests.reference import root_of, usable_covariance

MODES = ("clip", "abs")


def embedded(root):
    """The root over the whole filter, zero outside its window."""
    sides = [window.stop - window.start for window in root.window]
    whole = np.zeros(root.kernel_size * 2)
    whole[root.window * 2] = root.matrix.reshape(sides * 2)
    n = int(np.prod(root.kernel_size))
    return whole.reshape(n, n)


@pytest.mark.parametrize("negative", MODES)
def test_root_equals_the_one_by_schur_decompositions(negative):
    rng = np.random.default_rng(0)
    for n in (1, 2, 9, 25):
        matrix = rng.normal(size=(n, n))
        indefinite = matrix + matrix.T
        np.testing.assert_allclose(
            symmetric_root(indefinite, negative=negative), root_of(indefinite, negative), atol=1e-6
        )


@pytest.mark.parametrize("negative", MODES)
def test_root_squares_to_the_usable_covariance(negative):
    cov = gaussian_covariance(9, 1.9)
    root = symmetric_root(cov, negative=negative)
    np.testing.assert_array_equal(root, root.T)
    np.testing.assert_allclose(root @ root, usable_covariance(cov, negative), atol=1e-12)


def test_clip_is_the_nearest_positive_semidefinite_matrix_and_abs_is_the_numpy_samplers():
    cov = gaussian_covariance(9, 1.9)
    clip = symmetric_root(cov, negative="clip")
    rng = np.random.default_rng(0)
    distance = np.linalg.norm(clip @ clip - cov)
    for _ in range(50):
        nearby = clip + 1e-3 * rng.normal(size=cov.shape)
        assert np.linalg.norm(nearby @ nearby.T - cov) > distance
    mirrored = symmetric_root(cov, negative="abs")
    _, singular, v = np.linalg.svd(cov)  # how numpy.random.multivariate_normal factors a covariance
    np.testing.assert_allclose(mirrored @ mirrored, v.T * singular @ v, atol=1e-12)


@pytest.mark.parametrize("negative", MODES)
@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4, 7, 10, 15, (5, 3), (1, 11), (51, 5), (9,), (12,), (3, 4, 5)])
def test_the_windowed_parity_root_equals_the_root_of_the_whole(kernel_size, negative):
    sigmas = [0.05, 0.15, 0.5, 0.5, 1.0, 4.0]
    for sigma, root in zip(sigmas, gaussian_roots(kernel_size, sigmas, negative=negative), strict=True):
        whole = covariance_root(gaussian_covariance(kernel_size, sigma), kernel_size, negative=negative)
        np.testing.assert_allclose(embedded(root), whole.matrix, rtol=0, atol=WINDOW_ERROR)
        assert root.negative_mass == pytest.approx(whole.negative_mass, abs=1e-6)


@pytest.mark.parametrize("sigma", [0.3, 0.9, 2.0])
def test_a_large_kernel_is_factored_in_a_small_window_within_the_stated_error(sigma):
    [root] = gaussian_roots(31, [sigma], negative="abs")
    assert len(root.matrix) < 31**2
    whole = symmetric_root(gaussian_covariance(31, sigma), negative="abs")
    np.testing.assert_allclose(embedded(root), whole, rtol=0, atol=WINDOW_ERROR)


def test_the_window_is_centred_and_no_wider_than_the_filter():
    for k in (4, 5, 30, 31):
        for sigma in (0.01, 0.4, 100.0):
            window = support_window(k, sigma)
            assert window <= k
            assert (k - window) % 2 == 0


def test_three_by_three_has_no_negative_mass_and_nine_by_nine_has_as_much_as_known():
    masses = {
        (k, s): next(gaussian_roots(k, [s], negative="clip")).negative_mass for k in (3, 9) for s in (0.5, 1.9, 5.0)
    }
    assert all(masses[3, s] < 1e-12 for s in (0.5, 1.9, 5.0))
    assert masses[9, 0.5] == pytest.approx(0.012, abs=0.002)
    assert masses[9, 1.9] == pytest.approx(0.03, abs=0.005)
    assert masses[9, 5.0] == pytest.approx(0.07, abs=0.01)


def test_a_change_in_the_last_bit_of_the_covariance_hardly_moves_the_root():
    cov = gaussian_covariance(9, 0.37)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=cov.shape) * 1e-15
    moved = symmetric_root(cov + noise + noise.T) - symmetric_root(cov)
    assert np.abs(moved).max() < 1e-7


def test_unknown_ways_with_negative_eigenvalues_are_refused():
    with pytest.raises(CovarianceError, match="negative: needed 'clip' or 'abs', got 'drop'"):
        symmetric_root(np.eye(4), negative="drop")
    with pytest.raises(CovarianceError, match="differs from its transpose"):
        symmetric_root([[1.0, 2.0], [0.0, 1.0]])
