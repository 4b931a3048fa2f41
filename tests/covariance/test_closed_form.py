import numpy as np
import pytest
import torch

from filtercov.covariance import gaussian_covariance, to_block
from filtercov.errors import CovarianceError
from tests.reference import brute_force_covariance, paper_block_covariance


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


def test_the_smallest_sigma_leaves_one_pixel():
    cov = gaussian_covariance(5, 1e-300)
    assert cov[12, 12] == 0.5
    assert np.count_nonzero(cov) == 1


@pytest.mark.parametrize("sigma", [0, np.nan, np.inf, "1", None, np.array(True), torch.empty((), device="meta")])
def test_a_sigma_that_is_not_a_positive_finite_number_is_refused(sigma):
    with pytest.raises(CovarianceError):
        gaussian_covariance(7, sigma)
