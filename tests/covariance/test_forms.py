import math

import numpy as np
import pytest
import torch

from filtercov.covariance import symmetric_root, to_block, to_flat
from filtercov.covariance.forms import as_covariance, as_mean, check_pixels, kernel_shape
from filtercov.errors import CovarianceError
from filtercov.structure import structure_of
from tests.reference import flat_from_block


@pytest.mark.parametrize("k", [1, 2, 5])
def test_block_form_is_the_papers_rearrangement(k):
    flat = np.random.default_rng(k).normal(size=(k * k, k * k))
    np.testing.assert_array_equal(flat_from_block(to_block(flat, k), k), flat)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 5), (2, 3, 4)])
def test_flat_and_block_forms_are_inverse_and_share_no_memory(shape):
    n = math.prod(shape)
    flat = np.random.default_rng(n).normal(size=(n, n))
    block = to_block(flat, shape)
    again = to_flat(block, shape)
    assert block.shape == tuple(k * k for k in shape)
    np.testing.assert_array_equal(again, flat)
    assert not np.shares_memory(block, flat)
    assert not np.shares_memory(again, block)


@pytest.mark.parametrize("bad", [0, 2.5, "9", (), (3, 0), (1, 2, 3, 4), None])
def test_a_kernel_size_that_is_none_is_refused(bad):
    with pytest.raises(CovarianceError, match="kernel_size: needed"):
        kernel_shape(bad)


@pytest.mark.parametrize(
    ("cov", "kernel_size", "message"),
    [
        (np.zeros((3, 4)), None, "square"),
        (np.zeros(9), None, "square"),
        (np.diag([1.0, np.inf]), None, "1 nan or inf among 4"),
        (np.eye(49), 9, r"resize it first with resize_covariance\(cov, \(7, 7\), \(9, 9\)\)"),
        (np.eye(7), (9,), r"resize_covariance\(cov, \(7,\), \(9,\)\)"),
        (np.eye(50), 9, r"resize_covariance\(cov, its_kernel_size, \(9, 9\)\)"),
    ],
)
def test_what_is_not_a_covariance_of_these_filters_is_refused(cov, kernel_size, message):
    with pytest.raises(CovarianceError, match=message):
        as_covariance(cov, kernel_size=kernel_size)


def test_a_covariance_may_be_symmetric_but_for_rounding_at_any_scale():
    for scale in (1e-9, 1e9):
        as_covariance(scale * np.array([[1.0, 5e-7], [0.0, 1.0]]))
        with pytest.raises(CovarianceError, match="differs from its transpose"):
            as_covariance(scale * np.array([[1.0, 2e-6], [0.0, 1.0]]))


def test_wrong_shapes_for_a_form_or_a_mean_are_refused():
    for read, bad in ((to_block, np.eye(4)), (to_flat, np.eye(4)), *((as_mean, np.full(n, np.nan)) for n in (4, 9))):
        with pytest.raises(CovarianceError):
            read(bad, (3, 3))
    np.testing.assert_array_equal(as_mean(np.eye(3), (3, 3)), np.eye(3).ravel())


def test_a_filter_may_have_as_many_pixels_as_its_covariance_leaves_memory_for():
    check_pixels((64, 64))
    with pytest.raises(CovarianceError, match=r"at most 4096 pixels, got 4097 ones, .* 0\.134 GB"):
        check_pixels((4097,))


MATRIX = np.array([[4.0, 1.0, 0.5, 0.0], [1.0, 3.0, 0.0, 0.5], [0.5, 0.0, 2.0, 1.0], [0.0, 0.5, 1.0, 1.0]])


@pytest.mark.parametrize("read", [symmetric_root, lambda x: to_block(x, 2), lambda x: structure_of(x).even.value])
def test_tensors_are_read_like_arrays_whatever_their_type_and_gradients_and_other_things_are_refused(read):
    for dtype in (torch.float64, torch.bfloat16):
        tensor = torch.tensor(MATRIX, dtype=dtype, requires_grad=True)
        np.testing.assert_array_equal(read(tensor), read(MATRIX))
    complex_tensor, meta = torch.tensor(MATRIX, dtype=torch.complex64), torch.tensor(MATRIX, device="meta")
    for bad in (MATRIX.astype(complex), complex_tensor, meta, MATRIX.astype(str)):
        with pytest.raises(CovarianceError, match="needed an array of real numbers, got"):
            read(bad)
