from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from filtercov.covariance import ClosedForm, gaussian_covariance, to_block
from filtercov.errors import CovarianceError
from tests.reference import brute_force_covariance, paper_block_covariance


@pytest.mark.parametrize("k", range(1, 16, 2))
def test_equals_the_papers_construction_for_odd_kernels(k):
    for sigma in (0.05, 0.08, 0.37, 1.0, np.pi / 2, 2.9, 8.0):
        block = to_block(gaussian_covariance(k, sigma), k)
        np.testing.assert_allclose(block, paper_block_covariance(k, sigma), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "shape", [(2, 2), (4, 4), (8, 8), (51, 1), (1, 11), (3, 7), (4, 9), (11,), (6,), (3, 3, 3), (2, 5, 4)]
)
def test_equals_the_definition_for_even_rectangular_1d_and_3d_kernels(shape):
    for sigma in (0.05, 0.5, 2.0, 8.0):
        np.testing.assert_allclose(
            gaussian_covariance(shape, sigma), brute_force_covariance(shape, sigma), rtol=0, atol=1e-12
        )


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.floats(0.02, 50))
def test_equals_the_definition_everywhere(sides, sigma):
    shape = tuple(sides)
    np.testing.assert_allclose(
        gaussian_covariance(shape, sigma), brute_force_covariance(shape, sigma), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("shape", "sigma", "centre"),
    [
        ((5, 5), 0.5, (-0.5, -0.5)),
        ((5, 5), (0.3, 2.0), 0.0),
        ((4, 7), (2.0, 0.1), (1.5, -0.3)),
        ((9,), 0.7, 2.25),
        ((6,), (3.0,), (-3.0,)),
        ((3, 4, 5), (0.2, 0.9, 5.0), (0.5, 0.0, -1.0)),
    ],
)
def test_equals_the_definition_off_centre_and_with_unequal_axes(shape, sigma, centre):
    expected = brute_force_covariance(shape, sigma, centre)
    np.testing.assert_allclose(gaussian_covariance(shape, sigma, centre=centre), expected, rtol=0, atol=1e-12)


def test_one_number_stands_for_every_axis_and_the_plain_form_is_the_same_to_the_bit():
    plain = gaussian_covariance((4, 5), 0.7)
    np.testing.assert_array_equal(plain, gaussian_covariance((4, 5), np.array([0.7, 0.7]), centre=[0, 0.0]))
    np.testing.assert_array_equal(
        gaussian_covariance(5, 0.7, centre=-0.5), gaussian_covariance(5, (0.7, 0.7), centre=(-0.5, -0.5))
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"sigma": (0.5, 0.5, 0.5)}, r"sigma: needed one number, or one for each of the 2 axes of 5x5 filters, got 3"),
        ({"sigma": (0.5, -1.0)}, r"sigma: needed a positive, finite number, got -1.0"),
        ({"sigma": 0.5, "centre": (0.0,)}, r"centre: needed one number, or one for each of the 2 axes"),
        (
            {"sigma": 0.5, "centre": 3},
            r"centre: needed a number of pixels from the middle, up to 2.5 along an axis of 5",
        ),
        ({"sigma": 0.5, "centre": float("nan")}, r"centre: needed a number of pixels .* got nan"),
        ({"sigma": 0.5, "centre": "left"}, r"centre: needed a number of pixels .* got 'left'"),
    ],
)
def test_parameters_that_do_not_belong_to_the_kernel_are_refused(arguments, sentence):
    with pytest.raises(CovarianceError, match=sentence):
        gaussian_covariance(5, **arguments)


@pytest.mark.parametrize("kind", [np.array, np.float32, torch.tensor, Fraction])
def test_numbers_of_any_kind_are_parameters_like_others(kind):
    form = ClosedForm(kind(0.5), centre=[kind(-0.5), kind(0.25)])
    assert hash(form) == hash(ClosedForm(0.5, centre=(-0.5, 0.25)))
    assert form == ClosedForm(0.5, centre=(-0.5, 0.25))
    assert ClosedForm([kind(0.5), 2]) == ClosedForm((0.5, 2.0))


@pytest.mark.parametrize("kernel_size", [4, 7, (3, 8), (2, 3, 4)])
def test_is_symmetric_and_commutes_with_flips(kernel_size):
    cov = gaussian_covariance(kernel_size, 1.3)
    shape = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    tensor = cov.reshape(shape * 2)
    np.testing.assert_array_equal(cov, cov.T)
    for axis in range(len(shape)):
        np.testing.assert_allclose(np.flip(tensor, (axis, axis + len(shape))), tensor, atol=1e-15)


def test_the_variance_of_a_pixel_is_z_minus_half_z_squared():
    variance = np.diag(gaussian_covariance(9, 1.7)).reshape(9, 9)
    i = np.arange(9) - 4
    z = np.exp(-(i[:, None] ** 2 + i**2) / (2 * 1.7))
    np.testing.assert_allclose(variance, z - z**2 / 2, atol=1e-15)


def test_the_smallest_sigma_leaves_one_pixel():
    cov = gaussian_covariance(5, 1e-300)
    assert cov[12, 12] == 0.5
    assert np.count_nonzero(cov) == 1


@pytest.mark.parametrize("sigma", [0, -1.0, float("nan"), float("inf"), "1", None])
def test_a_sigma_that_is_not_positive_and_finite_is_refused(sigma):
    with pytest.raises(CovarianceError, match="sigma: needed a positive, finite number"):
        gaussian_covariance(7, sigma)


@pytest.mark.parametrize(
    "sigma",
    [np.array(True), torch.tensor(1j), torch.empty((), device="meta"), b"ab", "ab"],
    ids=lambda sigma: repr(sigma),
)
def test_a_sigma_that_is_no_real_number_is_refused_and_can_be_printed(sigma):
    with pytest.raises(CovarianceError, match="sigma: needed a positive, finite number"):
        gaussian_covariance(5, sigma)
    assert repr(sigma) in str(ClosedForm(sigma))
