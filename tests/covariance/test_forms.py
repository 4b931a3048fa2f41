import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from filtercov.covariance import (
    empirical_covariance,
    nearest_kronecker,
    resize_covariance,
    symmetric_root,
    to_block,
    to_flat,
)
from filtercov.covariance.forms import as_covariance, kernel_shape
from filtercov.covariance.likeness import likeness
from filtercov.covariance.resize import resize_mean
from filtercov.errors import CovarianceError
from filtercov.structure import structure_of
from tests.reference import flat_from_block

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_block_form_is_the_papers_rearrangement(k):
    flat = np.random.default_rng(k).normal(size=(k * k, k * k))
    np.testing.assert_array_equal(flat_from_block(to_block(flat, k), k), flat)


@given(shapes)
def test_flat_and_block_forms_are_inverse_for_every_kernel(shape):
    n = int(np.prod(shape))
    flat = np.random.default_rng(n).normal(size=(n, n))
    block = to_block(flat, shape)
    assert block.shape == tuple(k * k for k in shape)
    np.testing.assert_array_equal(to_flat(block, shape), flat)


def test_each_block_pictures_the_covariance_of_its_pixel_with_all_others():
    flat = np.random.default_rng(0).normal(size=(15, 15))
    block = to_block(flat, (3, 5))
    for i, j in itertools.product(range(3), range(5)):
        picture = block[3 * i : 3 * i + 3, 5 * j : 5 * j + 5]
        np.testing.assert_array_equal(picture, flat[5 * i + j].reshape(3, 5))


@pytest.mark.parametrize("bad", [0, -3, 2.5, "9", (), (3, 0), (1, 2, 3, 4), None])
def test_a_kernel_size_that_is_none_is_refused(bad):
    with pytest.raises(CovarianceError, match="kernel_size: needed"):
        kernel_shape(bad)


@pytest.mark.parametrize(
    ("cov", "message"),
    [
        (np.zeros((3, 4)), "square"),
        (np.zeros(9), "square"),
        (np.full((9, 9), np.nan), "81 nan or inf among 81"),
        (np.triu(np.ones((9, 9))), "differs from its transpose by up to 1"),
    ],
)
def test_what_is_not_a_covariance_is_refused(cov, message):
    with pytest.raises(CovarianceError, match=message):
        as_covariance(cov)


def test_a_covariance_of_another_kernel_size_is_refused_with_the_call_that_would_resize_it():
    with pytest.raises(
        CovarianceError, match=r"9x9 filters need a \(81, 81\) .*got \(49, 49\).*resize_covariance\(cov, 7, 9\)"
    ):
        as_covariance(np.eye(49), kernel_size=9)
    with pytest.raises(CovarianceError, match=r"resize_covariance\(cov, 7, \(51, 5\)\)"):
        as_covariance(np.eye(49), kernel_size=(51, 5))
    with pytest.raises(CovarianceError, match=r"resize_covariance\(cov, \(7,\), \(9,\)\)"):
        as_covariance(np.eye(7), kernel_size=(9,))


def test_wrong_shapes_for_a_form_are_refused():
    with pytest.raises(CovarianceError, match=r"to_block: 3x3 .* got \(4, 4\)"):
        to_block(np.eye(4), 3)
    with pytest.raises(CovarianceError, match=r"to_flat: 3x3 .* got \(4, 4\)"):
        to_flat(np.eye(4), 3)


READERS = {
    "to_block": lambda values: to_block(values, 2),
    "to_flat": lambda values: to_flat(values, 2),
    "symmetric_root": symmetric_root,
    "resize_covariance": lambda values: resize_covariance(values, 2, 3),
    "nearest_kronecker": lambda values: nearest_kronecker(values, 2),
    "likeness": lambda values: likeness(values, 2, [0.5, 1.0]),
    "sigmas": lambda values: likeness(np.eye(4), 2, values.diagonal()),
    "resize_mean": lambda values: resize_mean(values.diagonal(), 2, 3),
    "empirical_covariance": lambda values: empirical_covariance(values.reshape(4, 2, 2))[1],
    "structure_of": lambda values: structure_of(values.reshape(4, 2, 2)).effective_rank.value,
}
MATRIX = np.array([[4.0, 1.0, 0.5, 0.0], [1.0, 3.0, 0.0, 0.5], [0.5, 0.0, 2.0, 1.0], [0.0, 0.5, 1.0, 1.0]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reader", READERS)
def test_tensors_are_read_like_arrays_whatever_their_type_and_gradients(reader, dtype):
    tensor = torch.tensor(MATRIX, dtype=dtype, requires_grad=True)
    np.testing.assert_array_equal(READERS[reader](tensor), READERS[reader](MATRIX))


@pytest.mark.parametrize(
    "bad",
    [
        MATRIX.astype(complex),
        torch.tensor(MATRIX, dtype=torch.complex64),
        torch.tensor(MATRIX, device="meta"),
        MATRIX.astype(str),
    ],
    ids=["complex", "complex tensor", "meta tensor", "text"],
)
@pytest.mark.parametrize("reader", READERS)
def test_what_are_no_real_numbers_is_refused(reader, bad):
    with pytest.raises(CovarianceError, match="needed an array of real numbers, got"):
        READERS[reader](bad)


@pytest.mark.parametrize("reform", [to_block, to_flat])
@pytest.mark.parametrize("size", [(5,), (1, 5), (2, 3)])
def test_neither_form_shares_memory_with_the_other(reform, size):
    n = math.prod(size)
    given_form = np.eye(n) if reform is to_block else to_block(np.eye(n), size)
    assert not np.shares_memory(reform(given_form, size), given_form)


@pytest.mark.parametrize("bad", [[[10**400, 1]], np.ma.masked_greater([[1.0, 2.0], [3.0, 999.0]], 100)])
def test_numbers_that_are_too_large_or_masked_are_refused(bad):
    with pytest.raises(CovarianceError, match="needed an array of real numbers"):
        empirical_covariance(bad)
