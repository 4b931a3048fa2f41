"""The structure numbers, against slow loops written from their definitions, and their chance levels against chance."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from filtercov.covariance import LayerStatistics, gaussian_covariance
from filtercov.errors import CovarianceError
from filtercov.structure import (
    NEAR_ZERO,
    Number,
    centredness,
    gaussian_types,
    kronecker_residual,
    spectrum,
    structure_of,
    structure_of_layer,
)

NUMBERS = ["sparsity", "effective_rank", "orthogonality", "even", "gaussian_derivatives"]


def filters(size, count=40, seed=0):
    """Filters with structure: noise, smoothed along the axes, with a slope, a mean, and two that are nearly zero."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(count, *size)) + 0.3
    for axis in range(1, drawn.ndim):
        drawn = drawn + 0.5 * np.roll(drawn, 1, axis=axis)
        slope = np.linspace(1.0, 2.0, drawn.shape[axis])
        drawn = drawn * slope.reshape([-1 if a == axis else 1 for a in range(drawn.ndim)])
    drawn[3] *= 1e-5
    drawn[7] = 0.0
    return drawn


def oracle_entropy(stack):
    flat = stack.reshape(len(stack), -1)
    singular = np.linalg.svd(flat - flat.mean(axis=0), compute_uv=False)
    total = sum(s**2 for s in singular)
    return -sum(s**2 / total * math.log(s**2 / total) for s in singular if s > 1e-12 * singular[0])


def oracle_orthogonality(stack):
    live = [f for f in stack if np.abs(f).max() > NEAR_ZERO * np.abs(stack).max()]
    squares = [
        (float((a * b).sum()) / math.sqrt(float((a * a).sum() * (b * b).sum()))) ** 2
        for a, b in itertools.combinations(live, 2)
    ]
    return 1 - math.sqrt(sum(squares) / len(squares))


def oracle_centredness(variance):
    places = list(itertools.product(*(range(k) for k in variance.shape)))
    squared = [sum((i - (k - 1) / 2) ** 2 for i, k in zip(p, variance.shape, strict=True)) for p in places]
    weighted = sum(variance[p] * s for p, s in zip(places, squared, strict=True)) / variance.sum()
    return 1 - weighted / (sum(squared) / len(squared))


@pytest.mark.parametrize("size", [(4, 4), (7,), (3, 3, 3), (1, 3)])
def test_every_number_is_what_its_definition_says(size):
    stack = filters(size)
    structure = structure_of(stack)
    even = sum(float((((f + np.flip(f)) / 2) ** 2).sum()) for f in stack) / float((stack**2).sum())
    assert list(structure.numbers()) == NUMBERS
    assert structure.sparsity.value == pytest.approx(2 / 40)
    assert structure.effective_rank.value == pytest.approx(math.exp(oracle_entropy(stack)))
    assert structure.orthogonality.value == pytest.approx(oracle_orthogonality(stack))
    assert structure.even.value == pytest.approx(even)
    cov = np.cov(stack.reshape(40, -1), rowvar=False)
    assert centredness(cov, size) == pytest.approx(oracle_centredness(stack.var(axis=0)))
    assert (np.diff(spectrum(cov)) <= 0).all()
    assert spectrum(cov).sum() == pytest.approx(np.trace(cov))
    record = structure.as_record()
    for name in NUMBERS:
        number = structure.numbers()[name]
        shown = (number.value, number.chance, number.beyond_chance)
        assert (record[name], record[f"{name}_chance"], record[f"{name}_beyond_chance"]) == shown


def test_the_kronecker_residual_is_the_distance_to_the_nearest_found_by_search():
    cov = gaussian_covariance(3, 0.6)

    def distance(entries):
        A = entries.reshape(3, 3)
        return float(np.linalg.norm(cov - np.kron(A, A)) / np.linalg.norm(cov))

    assert kronecker_residual(cov, 3) == pytest.approx(minimize(distance, np.eye(3).ravel()).fun, rel=1e-5)
    assert math.isnan(kronecker_residual(np.eye(6), (2, 3)))
    assert math.isnan(kronecker_residual(np.eye(27), (3, 3, 3)))


def sampled(k, variance, centre, orders):
    """A derivative of a Gaussian from differences of differences, by its order along each of two axes."""
    step = 1e-4
    y, x = np.mgrid[:k, :k] - (k - 1) / 2.0

    def differences(y, x, along_y, along_x):
        if along_y or along_x:
            dy, dx = (step, 0) if along_y else (0, step)
            less = (along_y - 1, along_x) if along_y else (along_y, along_x - 1)
            return (differences(y + dy, x + dx, *less) - differences(y - dy, x - dx, *less)) / (2 * step)
        return np.exp(-((y - centre[0]) ** 2 + (x - centre[1]) ** 2) / (2 * variance))

    return differences(y, x, *orders)


KINDS = {
    "G": [(1, (0, 0))],
    "Gy": [(1, (1, 0))],
    "Gx": [(1, (0, 1))],
    "Gyy": [(1, (2, 0))],
    "Gxx": [(1, (0, 2))],
    "Gyx": [(1, (1, 1))],
    "Gyy+Gxx": [(1, (2, 0)), (1, (0, 2))],
    "Gyy-Gxx": [(1, (2, 0)), (-1, (0, 2))],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_derivative_of_a_gaussian_is_found_to_be_of_its_type(kind):
    """Widths and centres between those that are tried, with a fiftieth of the power in noise."""
    rng = np.random.default_rng(1)
    stack = []
    for variance, centre in [(0.6, (0.0, 0.0)), (1.4, (-0.5, 0.0)), (0.8, (0.4, -0.4)), (1.0, (0.0, 0.1))]:
        shape = sum(sign * sampled(7, variance, centre, orders) for sign, orders in KINDS[kind])
        shape = -3.0 * shape / np.linalg.norm(shape)
        noise = rng.normal(size=shape.shape)
        stack.append(shape + 3.0 * math.sqrt(0.02) * noise / np.linalg.norm(noise))
    structure = structure_of(np.stack(stack))
    assert structure.types == {name: float(name == kind) for name in KINDS}
    assert structure.gaussian_derivatives.value == 1.0
    assert structure.gaussian_derivatives.beyond_chance


def test_what_explains_less_than_four_fifths_explains_nothing():
    spot = sampled(5, 1.0, (0.0, 0.0), (0, 0)).ravel()
    outside = np.random.default_rng(0).normal(size=25)
    outside -= spot * (outside @ spot) / (spot @ spot)
    spot, outside = spot / np.linalg.norm(spot), outside / np.linalg.norm(outside)
    for share, explained in ((0.83, 1.0), (0.7, 0.0)):
        mixed = math.sqrt(share) * spot + math.sqrt(1 - share) * outside
        assert structure_of(mixed.reshape(1, 5, 5)).gaussian_derivatives.value == explained


def test_an_axis_of_one_pixel_adds_no_types_and_widths_grow_with_the_kernel():
    stack = np.random.default_rng(0).normal(size=(64, 7))
    line, row, column = (structure_of(stack.reshape(64, *size)) for size in ((7,), (1, 7), (7, 1)))
    assert row.types == line.types
    assert row.gaussian_derivatives == line.gaussian_derivatives == column.gaussian_derivatives
    assert list(column.types) == ["G", "Gy", "Gyy"]
    counts = [gaussian_types((k,))[0].count("G") for k in (2, 3, 5, 9)]
    assert counts == [3, 9, 12, 18]  # three centres at each of the widths .25, .5, … up to (k/3)²
    assert len(dict.fromkeys(gaussian_types((3, 3, 3))[0])) == 14


@pytest.mark.parametrize(("size", "count"), [((3, 3), 24), ((5, 5), 64), ((2, 3), 200)])
def test_chance_is_what_independent_filters_show_and_its_range_is_seldom_left_nor_wide(size, count):
    rng = np.random.default_rng(5)
    trials = 150
    seen: dict[str, list[Number]] = {}
    for _ in range(trials):
        for name, number in structure_of(rng.normal(size=(count, *size)) * 0.3).numbers().items():
            seen.setdefault(name, []).append(number)
    for name, numbers in seen.items():
        values, first = np.array([number.value for number in numbers]), numbers[0]
        assert sum(number.beyond_chance for number in numbers) <= 4, name
        allowed = 4 * values.std() / math.sqrt(trials) + 0.15 * values.std() + 1e-5
        assert values.mean() == pytest.approx(first.chance, abs=allowed), name
        if name not in ("sparsity", "gaussian_derivatives"):
            assert first.high - first.low == pytest.approx(8 * values.std(), rel=0.35), name


@pytest.mark.parametrize(("size", "count"), [((2,), 3), ((3, 3), 3), ((3, 3), 10), ((5, 5), 60)])
def test_the_rank_of_few_filters_or_pixels_has_its_chance_too(size, count):
    stacks = np.random.default_rng(6).normal(size=(1000, count, *size))
    entropies = np.array([oracle_entropy(stack) for stack in stacks])
    number = structure_of(stacks[0]).effective_rank
    assert math.log(number.chance) == pytest.approx(entropies.mean(), rel=0.03, abs=0.2 * entropies.std())
    low = max(entropies.mean() - 4 * entropies.std(), 0.0)
    assert math.log(number.low) == pytest.approx(low, abs=0.5 * entropies.std())


@pytest.mark.parametrize(("n", "count"), [(1, 20), (1, 300), (2, 60)])
def test_the_chance_of_filters_near_zero_is_what_is_drawn(n, count):
    drawn = np.abs(np.random.default_rng(0).normal(size=(600_000 // count, count, n)))
    near_zero = (drawn.max(axis=2) <= NEAR_ZERO * drawn.max(axis=(1, 2))[:, None]).mean()
    number = structure_of(np.random.default_rng(1).normal(size=(count, n))).sparsity
    assert number.chance == pytest.approx(near_zero, rel=0.1)


def test_filters_near_zero_do_not_count_among_those_that_may_be_of_a_type_or_orthogonal():
    stack = np.random.default_rng(0).normal(size=(40, 3, 3))
    some = stack[:10]
    stack[10:] *= 1e-6
    with_dead, without = structure_of(stack), structure_of(some)
    assert with_dead.gaussian_derivatives == without.gaussian_derivatives
    assert with_dead.orthogonality == without.orthogonality
    types = with_dead.gaussian_derivatives
    assert types.chance == pytest.approx(0.06, abs=0.01)
    assert types.high == pytest.approx(types.chance + 4 * math.sqrt(types.chance * (1 - types.chance) / 10))


def test_the_range_of_chance_is_narrow_enough_to_see_a_little_structure_and_a_scale_changes_nothing():
    stack = np.random.default_rng(0).normal(size=(256, 5, 5))
    blurred = structure_of(stack + 0.3 * np.roll(stack, 1, axis=2))
    assert not any(number.beyond_chance for number in structure_of(stack).numbers().values())
    assert structure_of(stack + 0.35 * np.flip(stack, (1, 2))).even.beyond_chance
    assert blurred.effective_rank.beyond_chance
    assert blurred.orthogonality.beyond_chance
    one, other = (structure_of(scale * filters((5, 5))).numbers() for scale in (1.0, 1e-12))
    for name in NUMBERS:
        assert other[name].value == pytest.approx(one[name].value), name


def test_what_filters_cannot_tell_is_none_with_a_reason():
    alone = structure_of(np.ones((1, 3, 3)))
    missing = [name for name, number in alone.numbers().items() if number.value is None]
    assert missing == ["effective_rank", "orthogonality"]
    assert "effective_rank: one filter has no spread" in alone.as_record()["absent"]
    assert alone.as_record()["effective_rank_beyond_chance"] is None
    nothing = structure_of(np.zeros((4, 3, 3)))
    assert [number.value for number in nothing.numbers().values()] == [1.0, None, None, None, None]
    assert nothing.types is None
    pixel = structure_of(np.arange(1.0, 5.0).reshape(4, 1, 1))
    assert (pixel.gaussian_derivatives.value, pixel.effective_rank.value) == (None, 1.0)
    two = structure_of(np.random.default_rng(0).normal(size=(2, 3, 3)))
    assert two.effective_rank.value == pytest.approx(1.0)
    assert not any(n.beyond_chance for n in (*pixel.numbers().values(), two.effective_rank))
    kept = structure_of_layer(LayerStatistics("", (3, 3), 9, np.zeros(9), np.eye(9)))
    assert kept.sparsity == kept.orthogonality == kept.gaussian_derivatives
    assert "hold no filters" in kept.sparsity.reason
    for cov, size in ((np.zeros((9, 9)), 3), (np.eye(1), 1)):
        assert math.isnan(centredness(cov, size))
    for nothing in (0.0, 1e-300):  # whose squares vanish
        assert math.isnan(kronecker_residual(nothing * np.eye(9), 3))
    for bad in (np.full((4, 3, 3), np.nan), np.ones((4, 1, 3, 3, 3)), "filters"):
        with pytest.raises(CovarianceError):
            structure_of(bad)
