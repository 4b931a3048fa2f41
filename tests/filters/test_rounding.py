"""Filters are rounded once, against exact rationals and NumPy, which converts doubles to halves directly."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.covariance.root import gaussian_roots
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CovarianceError, ModelError
from filtercov.filters.sample import rounded, sample_filters

NARROW = [torch.bfloat16, torch.float16, torch.float32]


def nearest(value, dtype):
    """The number of a type that is nearest to a double, of two the one with an even last bit, by exact comparison."""
    kind = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    guess = torch.tensor(value, dtype=torch.float64).to(dtype)
    bits = guess.view(kind) + torch.tensor([-1, 0, 1], dtype=kind)
    candidates = [(float(x), int(b)) for x, b in zip(bits.view(dtype), bits, strict=True) if torch.isfinite(x)]
    return min(candidates, key=lambda c: (abs(Fraction(c[0]) - Fraction(value)), c[1] & 1))[0]


@pytest.mark.parametrize("dtype", NARROW)
def test_every_number_goes_to_the_nearest_one_of_the_type(dtype):
    rng = np.random.default_rng(0)
    precision = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24}[dtype]
    middles = 1 + (2 * rng.integers(0, 2 ** (precision - 1), 25) + 1) * 2.0**-precision
    hard = np.concatenate([middles + sign * 2.0**-e for sign in (-1, 1) for e in (30, 40, 52)] + [middles])
    values = np.concatenate([rng.normal(size=100), hard, -hard, hard * 2.0**-8])
    got = rounded(values, dtype).double().numpy()
    np.testing.assert_array_equal(got, [nearest(x, dtype) for x in values])


def test_halves_are_what_numpy_rounds_doubles_to_also_at_the_ends_of_the_range():
    rng = np.random.default_rng(1)
    values = np.concatenate(
        [rng.normal(size=300_000), np.exp(rng.uniform(-25, 12, 100_000)), [0.0, -0.0, 65519.9999, 1e40]]
    )
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    got = rounded(values, torch.float16).numpy()
    np.testing.assert_array_equal(got.view(np.int16), expected.view(np.int16))
    assert (torch.from_numpy(values).half().numpy() != expected).any()  # torch's own conversion rounds some twice


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("options", [{}, {"scale": 0.37}, {"scale": "match"}], ids=str)
@pytest.mark.parametrize("mean", [None, np.linspace(-2, 3, 49)], ids=["no mean", "mean"])
def test_filters_of_a_narrow_type_are_those_in_double_precision_rounded_once(dtype, options, mean):
    covariance = fc.gaussian_covariance(7, 0.9)
    source = covariance if mean is None else LayerStatistics("a", (7, 7), 9, mean, covariance)
    torch.manual_seed(0)
    nets = [nn.Conv2d(500, 500, 7, groups=500).to(dtype) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())  # scale="match" looks at the weights there were
    nets[1].double()
    for net in nets:
        fc.init_(net, lambda _: source, generator=torch.Generator().manual_seed(2), **options)
    exact = nets[1].weight.detach().numpy()
    assert torch.equal(nets[0].weight.detach(), rounded(exact, dtype))
    if mean is not None and not options:  # what the sum is: the draws by the root, plus the mean
        drawn = torch.randn(500, 49, generator=torch.Generator().manual_seed(2)).double().numpy()
        np.testing.assert_allclose(exact.reshape(500, 49), drawn @ fc.symmetric_root(covariance) + mean, atol=1e-12)


@pytest.mark.parametrize("dtype", NARROW)
def test_covariance_normal_with_a_mean_rounds_once(dtype):
    mean = np.linspace(-2, 3, 25)
    exact, narrow = (
        fc.covariance_normal_(
            torch.empty(2000, 1, 5, 5, dtype=kind), np.eye(25), mean, generator=torch.Generator().manual_seed(1)
        )
        for kind in (torch.float64, dtype)
    )
    assert torch.equal(narrow, rounded(exact.numpy(), dtype))


def test_copied_filters_are_rounded_once():
    source, target = nn.Conv2d(2000, 2000, 5, groups=2000).double(), nn.Conv2d(2000, 2000, 5, groups=2000).half()
    fc.init_(source, generator=torch.Generator().manual_seed(0))
    fc.copy_filters_(target, source)
    np.testing.assert_array_equal(target.weight.detach().numpy(), source.weight.detach().numpy().astype(np.float16))


def test_outside_the_window_of_a_root_a_filter_is_its_mean():
    [root] = gaussian_roots(11, [0.1], negative="clip")
    mean = np.linspace(1, 2, 121)
    filters = sample_filters(root, 10, mean=mean, scale=0.5, generator=torch.Generator().manual_seed(0)).numpy()
    zero_mean = sample_filters(root, 10, scale=0.5, generator=torch.Generator().manual_seed(0)).numpy()
    assert not zero_mean[:, 0].any()
    np.testing.assert_allclose(
        filters - zero_mean, np.broadcast_to(0.5 * mean.reshape(11, 11), (10, 11, 11)), atol=1e-15
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copied_filters_too_large_for_the_targets_type_are_refused(dtype):
    source, target = (
        nn.Sequential(*(nn.Conv2d(8, 8, 3, groups=8) for _ in range(2))).to(d) for d in (dtype, torch.half)
    )
    with torch.no_grad():
        source[1].weight[0] = 65_519  # which still rounds to the largest half
    fc.copy_filters_(target, source)
    assert target[1].weight[0].max() == 65_504
    before = [weight.clone() for weight in target.parameters()]
    with torch.no_grad():
        source[1].weight[0] = 1e6
    with pytest.raises(
        ModelError, match=r"^1: needed filters that torch\.float16 can hold, up to 6\.55e\+04, got 1e\+06"
    ):
        fc.copy_filters_(target, source)
    assert all(torch.equal(a, b) for a, b in zip(before, target.parameters(), strict=True))


def test_filters_too_small_for_their_type_are_refused_but_zero_is_given_where_it_is_asked_for():
    weight = torch.ones(8, 1, 5, 5, dtype=torch.half)
    with pytest.raises(CovarianceError, match="so small that all would be zero; use a larger covariance"):
        fc.covariance_normal_(weight, 1e-30 * np.eye(25), seed=0)
    assert (weight == 1).all()
    assert not fc.covariance_normal_(weight, np.zeros((25, 25)), seed=0).any()
