"""The numbers that describe a covariance, against slow loops and cases with known answers."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from filtercov.covariance.closed_form import gaussian_covariance
from filtercov.covariance.structure import (
    centredness,
    closed_form_parts,
    dynamic_and_static,
    isotropic_distance,
    isotropic_floor,
    kronecker_residual,
    pixel_variance,
    spectrum,
)


def random_covariance(n: int, seed: int) -> np.ndarray:
    factor = np.random.default_rng(seed).normal(size=(n, n + 3))
    return factor @ factor.T


@pytest.mark.parametrize("kernel_size", [(5, 5), (4, 7), (6,), (3, 3, 5)])
def test_centredness_is_one_minus_relative_squared_radius(kernel_size: tuple[int, ...]) -> None:
    n = math.prod(kernel_size)
    cov = random_covariance(n, seed=1)
    weighted = evenly = 0.0
    for p, position in enumerate(product(*map(range, kernel_size))):
        squared = sum((i - (k - 1) / 2) ** 2 for i, k in zip(position, kernel_size, strict=True))
        weighted += cov[p, p] * squared / np.trace(cov)
        evenly += squared / n
    assert centredness(cov, kernel_size) == pytest.approx(1 - weighted / evenly, abs=1e-12)


def test_closed_form_loses_its_centre_as_sigma_grows() -> None:
    values = [centredness(gaussian_covariance(9, sigma), 9) for sigma in (0.05, 0.2, 0.8, 3.0, 12.0, 1e6)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(1.0, abs=1e-3)
    assert values[-1] == pytest.approx(0.0, abs=1e-3)


def test_pixel_variance_of_the_closed_form_is_z_minus_half_z_squared() -> None:
    i = np.arange(7) - 3.0
    z = np.exp(-(i[:, None] ** 2 + i**2) / (2 * 1.3))
    np.testing.assert_allclose(pixel_variance(gaussian_covariance(7, 1.3), 7), z - z * z / 2, atol=1e-15)


def test_isotropic_distance_of_two_eigenvalues_is_known() -> None:
    # Eigenvalues 3 and 1: distance from 2, 2 is √2, and the norm is √10.
    rotation = np.array([[math.cos(0.3), -math.sin(0.3)], [math.sin(0.3), math.cos(0.3)]])
    assert isotropic_distance(rotation @ np.diag([3.0, 1.0]) @ rotation.T) == pytest.approx(math.sqrt(0.2))


@pytest.mark.parametrize(("n", "count"), [(9, 30), (25, 144), (81, 64)])
def test_isotropic_floor_is_what_independent_weights_show(n: int, count: int) -> None:
    rng = np.random.default_rng(n)
    measured = [isotropic_distance(np.cov(rng.normal(size=(count, n)).T)) for _ in range(60)]
    assert isotropic_floor(n, count) == pytest.approx(np.mean(measured), rel=0.03)


def test_components_recover_a_mixture_of_the_papers_parts() -> None:
    moving, still = closed_form_parts(9, 1.1)
    np.testing.assert_allclose(moving - still, gaussian_covariance(9, 1.1), atol=1e-15)
    dynamic, static = dynamic_and_static(3.0 * moving - 1.2 * still, 9, 1.1)
    assert static / dynamic == pytest.approx(-0.4)
    dynamic, static = dynamic_and_static(moving + 0.5 * still, 9, 1.1)
    assert static / dynamic == pytest.approx(0.5)


def test_components_are_a_least_squares_fit() -> None:
    cov = gaussian_covariance(5, 0.7) + 0.02 * random_covariance(25, seed=4)
    moving, still = closed_form_parts(5, 0.7)
    (a, b), *_ = np.linalg.lstsq(np.stack([moving.ravel(), still.ravel()], axis=1), cov.ravel(), rcond=None)
    (scale,), *_ = np.linalg.lstsq((moving - still).reshape(-1, 1), cov.ravel(), rcond=None)
    assert dynamic_and_static(cov, 5, 0.7) == pytest.approx((a / scale, b / scale))


def test_components_of_filters_focused_on_one_pixel_cannot_be_told_apart() -> None:
    assert all(map(math.isnan, dynamic_and_static(gaussian_covariance(9, 0.08), 9, 0.08)))


def test_kronecker_residual_is_the_distance_to_the_nearest_found_by_search() -> None:
    cov = gaussian_covariance(3, 0.6)

    def distance(entries: np.ndarray) -> float:
        A = entries.reshape(3, 3)
        return float(np.linalg.norm(cov - np.kron(A, A)) / np.linalg.norm(cov))

    found = minimize(distance, np.eye(3).ravel())
    assert kronecker_residual(cov, 3) == pytest.approx(found.fun, rel=1e-5)


def test_spectrum_is_sorted_and_sums_to_the_trace() -> None:
    cov = random_covariance(12, seed=5)
    eigenvalues = spectrum(cov)
    assert (np.diff(eigenvalues) <= 0).all()
    assert eigenvalues.sum() == pytest.approx(np.trace(cov))


@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_no_number_depends_on_the_scale_of_the_filters(scale: float) -> None:
    cov = gaussian_covariance(7, 0.9) + 0.01 * random_covariance(49, seed=2)

    def numbers(matrix: np.ndarray) -> list[float]:
        return [
            centredness(matrix, 7),
            isotropic_distance(matrix),
            *dynamic_and_static(matrix, 7, 0.9),
            kronecker_residual(matrix, 7),
        ]

    assert numbers(scale * cov) == pytest.approx(numbers(cov))


def test_what_is_not_determined_is_nan() -> None:
    nothing = np.zeros((9, 9))
    undetermined = [
        centredness(nothing, 3),
        centredness(np.eye(1), 1),
        isotropic_distance(nothing),
        isotropic_floor(9, 1),
        *dynamic_and_static(nothing, 3, 1.0),
        kronecker_residual(nothing, 3),
        kronecker_residual(np.eye(6), (2, 3)),
    ]
    assert all(map(math.isnan, undetermined))
