"""What the closed form is compared with: as slow code from its definition, or the distribution it is said to have."""

import itertools
import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch import nn

from filtercov.covariance import gaussian_covariance, symmetric_root
from filtercov.errors import ConfigError
from filtercov.lab.experiments import baselines
from filtercov.lab.experiments.initialisations import InitContext, find

FORMULAS = [
    *("uniform", "kaiming", "trunc-normal", "orthogonal", "identity", "delta-gaussian"),
    *("impulse", "box:3", "gaussian-bump:1.5", "master-keys"),
]


def convolution(kernel_size, channels=16, dtype=torch.float32):
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[len(kernel_size)]
    return kind(channels, channels, kernel_size, groups=channels, dtype=dtype)


def filled(name, kernel_size, channels=16, seed=0, dtype=torch.float32):
    """The filters (channels, *kernel_size) that an initialisation gives a layer."""
    layer = convolution(kernel_size, channels, dtype)
    context = InitContext(torch.Generator().manual_seed(seed), argument=name.partition(":")[2])
    find(name)(layer, context)
    return layer.weight.detach()[:, 0]


def master_keys_by_loops(kernel_size):
    """Every filter pixel by pixel from its definition, T on all of the grid and cut afterwards."""
    places = [range(-((k - 1) // 2), k // 2 + 1) for k in kernel_size]
    axes = [axis for axis, k in enumerate(kernel_size) if k > 1]

    def T(p, sigma):
        return math.prod(scipy.special.ive(abs(x), sigma**2) for x in p)

    def moved(p, axis, by):
        return tuple(x + by * (along == axis) for along, x in enumerate(p))

    def laplacian(p, sigma):
        return sum(T(moved(p, a, 1), sigma) + T(moved(p, a, -1), sigma) - 2 * T(p, sigma) for a in axes)

    formulas = [
        *(lambda p, a=a: T(moved(p, a, 1), 0.522) - T(p, 0.522) for a in axes),
        *(lambda p, a=a: T(p, 0.522) - T(moved(p, a, -1), 0.522) for a in axes),
        *(lambda p, a=a: (T(moved(p, a, 1), 1.108) - T(moved(p, a, -1), 1.108)) / 2 for a in axes),
        lambda p: float(not any(p)) - 0.526 * laplacian(p, 0.675),
        lambda p: T(p, 0.522),
    ]
    filters = np.array([[f(p) for p in itertools.product(*places)] for f in formulas])
    return (filters / np.linalg.norm(filters, axis=1, keepdims=True)).reshape(-1, *kernel_size)


@pytest.mark.parametrize("kernel_size", [(7, 7), (2, 5), (1, 7), (8,)])
def test_master_keys_are_differences_of_the_discrete_gaussian(kernel_size):
    keys = baselines.master_key_filters(kernel_size)
    np.testing.assert_allclose(keys, master_keys_by_loops(kernel_size), atol=1e-13)


def test_every_master_key_is_as_likely_and_has_a_third_of_unit_power():
    filters = filled("master-keys", (5, 5), channels=8000).double().reshape(8000, -1)
    keys = baselines.master_key_filters((5, 5)).reshape(8, -1)
    likeness = filters.numpy() @ keys.T * math.sqrt(3)
    assert np.allclose(likeness.max(axis=1), 1, atol=1e-6)
    assert scipy.stats.chisquare(np.bincount(likeness.argmax(axis=1), minlength=8)).pvalue > 1e-3


@pytest.mark.parametrize(("name", "count"), [("impulse", 1), ("box:4", 4), ("box:15", 15)])
def test_boxes_are_equal_at_random_pixels_and_zero_elsewhere(name, count):
    filters = filled(name, (3, 5), channels=6000)
    on = filters != 0
    assert (on.flatten(1).sum(1) == count).all()
    assert torch.allclose(filters[on], torch.tensor(1 / math.sqrt(3 * count)))
    if count < 15:
        assert scipy.stats.chisquare(on.sum(0).flatten().numpy()).pvalue > 1e-3
        # Pixels of one filter are drawn without regard to their place: each pair is on together equally often.
        pairs = (on.flatten(1).double().T @ on.flatten(1).double()).numpy()[np.triu_indices(15, 1)]
        expected = 6000 * count * (count - 1) / (15 * 14)
        assert np.abs(pairs - expected).max() <= 5 * math.sqrt(expected + 1e-9)


@pytest.mark.parametrize("kernel_size", [(7, 7), (2, 5), (8,)])
def test_bumps_are_gaussians_around_any_pixel_of_the_filter(kernel_size):
    filters = filled("gaussian-bump:1.5", kernel_size, channels=40, dtype=torch.float64).numpy()
    pixels = np.array(list(itertools.product(*map(range, kernel_size))))
    centres = pixels[filters.reshape(40, -1).argmax(axis=1)]
    raw = np.exp(-((pixels - centres[:, None]) ** 2).sum(axis=2) / (2 * 1.5))
    expected = raw / math.sqrt(3 * np.mean((raw**2).sum(axis=1)))
    np.testing.assert_allclose(filters.reshape(40, -1), expected, rtol=1e-12)
    places = filled("gaussian-bump:0.3", (3, 5), channels=6000).flatten(1).argmax(1)
    assert scipy.stats.chisquare(np.bincount(places, minlength=15)).pvalue > 1e-3


@pytest.mark.parametrize("kernel_size", [(5, 5), (2, 5), (6,)])
def test_identity_passes_every_map_through(kernel_size):
    weight = filled("identity", kernel_size).unsqueeze(1)
    x = torch.randn(2, 16, *[8] * len(kernel_size), generator=torch.Generator().manual_seed(1))
    same = getattr(nn.functional, f"conv{len(kernel_size)}d")
    padding = [side for k in reversed(kernel_size) for side in ((k - 1) // 2, k // 2)]  # what padding="same" adds
    assert torch.equal(same(nn.functional.pad(x, padding), weight, groups=16), x)


@pytest.mark.parametrize("name", FORMULAS)
def test_scales_are_as_stated(name):
    power = filled(name, (7, 7), channels=4000).square().flatten(1).sum(1).mean().item()
    stated = {"kaiming": 2, "trunc-normal": 49 * 0.02**2, "orthogonal": 49 / 4000}
    stated |= dict.fromkeys(("identity", "delta-gaussian"), 1)
    assert power == pytest.approx(stated.get(name, 1 / 3), rel=0.1 if name == "delta-gaussian" else 0.01)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("kernel_size", [(7, 7), (4, 3, 2), (8,)])
def test_every_formula_fills_every_kind_of_filter(name, kernel_size):
    filters = filled(name, kernel_size)
    assert filters.flatten(1).norm(dim=1).min() > 0  # no filter is dead
    assert torch.equal(filters, filled(name, kernel_size))
    assert torch.equal(filters, filled(name, kernel_size, seed=1)) == (name == "identity")


def test_what_is_computed_in_double_precision_is_rounded_once():
    """By way of single precision one in about 18,000 halves comes out wrong."""
    names = [f"gaussian-bump:{0.5 + step / 100}" for step in range(300)]
    exact = torch.stack([filled(name, (3, 9), channels=4, dtype=torch.float64) for name in names]).numpy()
    halves = torch.stack([filled(name, (3, 9), channels=4, dtype=torch.float16) for name in names]).numpy()
    np.testing.assert_array_equal(halves, exact.astype(np.float16))
    assert (exact.astype(np.float32).astype(np.float16) != exact.astype(np.float16)).any()


@pytest.mark.parametrize("number", ["box:0", "box:2.5", "box:²", *(f"gaussian-bump:{v}" for v in (0, "inf", "nan"))])
def test_numbers_that_make_no_filter_are_refused(number):
    with pytest.raises(ConfigError):
        find(number)


@pytest.mark.parametrize(("name", "kernel"), [("box:20", (3, 3)), ("box", (5, 5))])
def test_filters_that_a_formula_cannot_fill_are_refused_and_all_are_unchanged(name, kernel):
    net = nn.Sequential(nn.Conv2d(4, 4, 5, groups=4), nn.Conv2d(4, 4, kernel, groups=4))
    before = [layer.weight.detach().clone() for layer in net]
    with pytest.raises(ConfigError):
        find(name)(net, InitContext(torch.Generator(), argument=name.partition(":")[2]))
    assert all(torch.equal(layer.weight, was) for layer, was in zip(net, before, strict=True))


# --- Controls ---

SIGMA, MEAN_SIGMA, K = 1.3, 0.7, 5


def usable(covariance):
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * values.clip(min=0)) @ vectors.T


def gaussian(offset, sigma):
    return math.exp(-(offset**2) / (2 * sigma))


def by_the_definition(control):
    """M ⊙ (C − ½S) and its symmetric part, entry by entry, with one component replaced."""
    pixels = [(i, j) for i in range(K) for j in range(K)]
    middle = K // 2

    def z(p):
        return gaussian(p[0] - middle, SIGMA) * gaussian(p[1] - middle, SIGMA)

    def wrapped(a, b):
        return gaussian(min(abs(a - b), K - abs(a - b)), SIGMA)

    one_sided = np.empty((K * K, K * K))
    for i, p in enumerate(pixels):
        for j, q in enumerate(pixels):
            mask = 1.0 if control == "no-mask" else z(p)
            dynamic = float(p == q) if control == "no-dynamic" else wrapped(p[0], q[0]) * wrapped(p[1], q[1])
            static = 0.0 if control == "no-static" else z(q)
            one_sided[i, j] = mask * (dynamic - 0.5 * static)
    return usable((one_sided + one_sided.T) / 2)


def covariance_of(control):
    given = {"sigma": SIGMA, "mean_sigma": MEAN_SIGMA, "negative": "clip", "random": np.random.default_rng(3)}
    return baselines.control_covariance(control, (K, K), **given)


@pytest.mark.parametrize("control", ["no-static", "no-mask", "no-dynamic"])
def test_a_component_left_out_is_the_definition_without_it(control):
    found, wanted = covariance_of(control), by_the_definition(control)
    closed_form = usable(gaussian_covariance(K, SIGMA))
    np.testing.assert_allclose(found, wanted * np.trace(closed_form) / np.trace(wanted), atol=1e-12)


def test_diagonal_scrambled_and_one_sigma_keep_what_they_should():
    closed_form = usable(gaussian_covariance(K, SIGMA))
    np.testing.assert_allclose(covariance_of("diagonal"), np.diag(np.diag(closed_form)), atol=1e-12)
    scrambled = covariance_of("scrambled")
    np.testing.assert_allclose(np.linalg.eigvalsh(scrambled), np.linalg.eigvalsh(closed_form), atol=1e-12)
    assert np.linalg.norm(scrambled - closed_form) > 0.5 * np.linalg.norm(closed_form)
    shape = usable(gaussian_covariance(K, MEAN_SIGMA))
    np.testing.assert_allclose(covariance_of("one-sigma"), shape * np.trace(closed_form) / np.trace(shape), atol=1e-12)


@pytest.mark.parametrize("control", ["power", *baselines.CONTROLS])
def test_filters_have_the_closed_forms_variance_in_every_layer(control):
    model = nn.Sequential(*[nn.Conv2d(4000, 4000, 5, groups=4000, bias=False) for _ in range(3)])
    context = InitContext(torch.Generator().manual_seed(0), schedule="0.3,0.5,2")
    find(control)(model, context)
    for layer, sigma in zip(model, (0.3, 0.3 + 0.25 + 0.25, 0.3 + 0.5 + 1.0), strict=True):
        root = symmetric_root(gaussian_covariance(5, sigma))
        drawn = layer.weight.detach().double().flatten(1).square().sum(1).mean().item()
        assert drawn == pytest.approx((root**2).sum(), rel=0.1)
