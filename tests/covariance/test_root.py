"""The closed form against the paper's construction, and symmetric roots against those of the whole matrix."""

import numpy as np
import pytest
import torch

from filtercov.covariance import gaussian_covariance, symmetric_root, to_block
from filtercov.covariance.root import WINDOW_ERROR, Root, covariance_root, gaussian_roots
from filtercov.errors import CovarianceError
from tests.reference import brute_force_covariance, paper_block_covariance, usable_covariance


@pytest.mark.parametrize("k", [1, 3, 9])
def test_equals_the_papers_construction_for_odd_kernels(k):
    for sigma in (0.05, 0.37, 2.9):
        block = to_block(gaussian_covariance(k, sigma), k)
        np.testing.assert_allclose(block, paper_block_covariance(k, sigma), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(8, 8), (1, 11), (4, 7), (11,), (2, 5, 4)])
def test_equals_the_definition_for_even_rectangular_1d_and_3d_kernels(shape):
    for sigma in (0.05, 8.0):
        cov = gaussian_covariance(shape, sigma)
        np.testing.assert_allclose(cov, brute_force_covariance(shape, sigma), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(cov, cov.T)


@pytest.mark.parametrize("sigma", [0, np.nan, np.inf, "1", None, np.array(True), torch.empty((), device="meta")])
def test_a_sigma_that_is_not_a_positive_finite_number_is_refused(sigma):
    with pytest.raises(CovarianceError):
        gaussian_covariance(7, sigma)


# --- Roots ---


MODES = ("clip", "abs")


def embedded(root):
    """The root over the whole filter, zero outside its window."""
    sides = [window.stop - window.start for window in root.window]
    whole = np.zeros(root.kernel_size * 2)
    whole[root.window * 2] = root.matrix.reshape(sides * 2)
    n = int(np.prod(root.kernel_size))
    return whole.reshape(n, n)


@pytest.mark.parametrize("negative", MODES)
def test_the_root_is_symmetric_has_no_negative_eigenvalue_and_squares_to_the_usable_covariance(negative):
    """There is one such root."""
    rng = np.random.default_rng(0)
    for n in (1, 9, 25):
        matrix = rng.normal(size=(n, n))
        indefinite = matrix + matrix.T
        root = symmetric_root(indefinite, negative=negative)
        np.testing.assert_array_equal(root, root.T)
        assert np.linalg.eigvalsh(root).min() >= -1e-12
        np.testing.assert_allclose(root @ root, usable_covariance(indefinite, negative), atol=1e-12)


@pytest.mark.parametrize("negative", MODES)
@pytest.mark.parametrize("shape", [(2, 2), (7, 7), (1, 11), (12,), (3, 4, 5)])
def test_the_windowed_parity_root_equals_the_root_of_the_whole(shape, negative):
    sigmas = [0.05, 0.15, 0.5, 0.5, 1.0, 4.0]
    for sigma, root in zip(sigmas, gaussian_roots(shape, sigmas, negative=negative), strict=True):
        whole = covariance_root(brute_force_covariance(shape, sigma), shape, negative=negative)
        np.testing.assert_allclose(embedded(root), whole.matrix, rtol=0, atol=WINDOW_ERROR)
        assert root.negative_mass == pytest.approx(whole.negative_mass, abs=1e-6)


@pytest.mark.parametrize(("k", "sigma"), [(21, 0.3), (20, 0.5), ((31, 5), 0.9)])
def test_a_large_kernel_is_factored_in_a_small_window_within_the_stated_error(k, sigma):
    [root] = gaussian_roots(k, [sigma], negative="abs")
    whole = symmetric_root(gaussian_covariance(k, sigma), negative="abs")
    assert len(root.matrix) < len(whole)
    np.testing.assert_allclose(embedded(root), whole, rtol=0, atol=WINDOW_ERROR)


def test_the_negative_mass_is_what_is_known_of_the_closed_form():
    masses = [root.negative_mass for root in gaussian_roots(9, [0.5, 1.9, 5.0], negative="clip")]
    assert masses == pytest.approx([0.012, 0.03, 0.07], rel=0.15)
    assert next(gaussian_roots(3, [1.9], negative="clip")).negative_mass < 1e-12
    assert covariance_root(np.diag([3.0, -1.0]), (2,), negative="abs").negative_mass == pytest.approx(0.25)
    assert covariance_root(np.zeros((2, 2)), (2,), negative="clip").negative_mass == 0.0


def test_filled_counts_the_pixels_that_vary_noticeably():
    root = Root((4,), (slice(0, 4),), np.diag([2.0, 0.5, 0.02, 0.019]), 0.0)
    assert [root.filled(least) for least in (0.5, 0.1, 0.0099, 0.0)] == [1, 2, 3, 4]


def test_bad_input_is_refused():
    for bad, negative in ((np.eye(4), "drop"), (np.triu(np.ones((2, 2))), "clip")):
        with pytest.raises(CovarianceError):
            symmetric_root(bad, negative=negative)
