import numpy as np
import pytest

from filtercov.covariance import gaussian_covariance, symmetric_root
from filtercov.covariance.closed_form import ClosedForm
from filtercov.covariance.root import WINDOW_ERROR, covariance_root, gaussian_roots, support_window
from filtercov.errors import CovarianceError
from tests.reference import brute_force_covariance, root_of, usable_covariance

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


# Offsets that keep the flips of an axis (whole and half pixels, window inside), and that do not; equal and opposite
# ones, which keep the exchange of axes; σ per axis, which does not.
OTHER_FORMS = [
    ((5, 5), ClosedForm(0.6, centre=(-0.5, -0.5))),
    ((5, 5), ClosedForm(0.6, centre=(0.5, -0.5))),
    ((5, 5), ClosedForm(0.6, centre=(0.3, 0.3))),
    ((6, 6), ClosedForm(0.6, centre=(0.2, -0.2))),
    ((7, 7), ClosedForm((0.3, 1.5))),
    ((7, 7), ClosedForm((1.5, 0.3), centre=(0.0, 0.4))),
    ((15, 15), ClosedForm(0.15, centre=(-0.5, 0.5))),
    ((15, 15), ClosedForm(0.15, centre=(5.0, -5.0))),
    ((15, 15), ClosedForm(0.15, centre=(7.0, 0.0))),
    ((21, 5), ClosedForm((0.5, 0.2), centre=(-3.5, 0.1))),
    ((12,), ClosedForm(0.3, centre=-1.0)),
    ((12,), ClosedForm(2.0, centre=5.9)),
    ((3, 4, 5), ClosedForm((0.2, 0.9, 0.5), centre=(0.5, 0.0, -0.7))),
]


@pytest.mark.parametrize("negative", MODES)
@pytest.mark.parametrize(("shape", "form"), OTHER_FORMS)
def test_the_root_of_an_off_centre_or_unequal_form_equals_the_root_of_the_whole(shape, form, negative):
    cov = brute_force_covariance(shape, form.sigma, form.centre)
    whole = covariance_root(cov, shape, negative=negative)
    for forms in ([form], [ClosedForm(0.4), form, form, 0.7]):  # alone, and among others
        root = list(gaussian_roots(shape, forms, negative=negative))[forms.index(form)]
        np.testing.assert_allclose(embedded(root), whole.matrix, rtol=0, atol=WINDOW_ERROR)
        assert root.negative_mass == pytest.approx(whole.negative_mass, abs=1e-6)


def test_what_symmetry_saves_is_saved(monkeypatch):
    factored = []

    def counting(matrix):
        factored.append(matrix.shape[-1])
        return eigh(matrix)

    eigh = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", counting)
    sizes = {}
    for name, form in {
        "plain": ClosedForm(0.1),
        "half a pixel off": ClosedForm(0.1, centre=(-0.5, -0.5)),
        "opposite": ClosedForm(0.1, centre=(-0.5, 0.5)),
        "unequal": ClosedForm((0.1, 0.11)),
        "equally off": ClosedForm(0.1, centre=(0.3, 0.3)),
        "off along one axis": ClosedForm(0.1, centre=(0.0, 0.3)),
    }.items():
        factored.clear()
        list(gaussian_roots(31, [form], negative="clip"))
        sizes[name] = sorted(factored)
    assert sizes["plain"] == [9, 12, 16]  # a 7x7 window: odd-odd, even-odd (twice), even-even
    assert sizes["half a pixel off"] == sizes["opposite"] == [16, 16, 16]  # an 8x8 one
    assert sizes["unequal"] == [9, 12, 12, 16]
    assert sizes["equally off"] == [28, 36]
    assert sizes["off along one axis"] == [24, 32]


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
            assert 0 <= window.start < window.stop <= k
            assert window.start == k - window.stop
            for centre in (-0.5, 0.25, 1.5):
                moved = support_window(k, sigma, centre)
                assert moved == slice(0, k) or (moved.start + moved.stop - k) / 2 == pytest.approx(centre, abs=0.5)


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
