"""The structure numbers, against slow loops written from their definitions, and their chance levels against chance."""

import itertools
import math

import numpy as np
import pytest

from filtercov.errors import CovarianceError
from filtercov.structure import Number, structure_of
from filtercov.structure.singly import NEAR_ZERO, chance_of_a_type, gaussian_types
from filtercov.structure.spread import chance_entropy, quarter_turns

SIZES = [(3, 3), (4, 4), (3, 5), (7,), (6,), (3, 3, 3), (1, 3)]


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


def oracle_sparsity(stack):
    largest = max(abs(w) for w in stack.ravel())
    return sum(all(abs(w) <= NEAR_ZERO * largest for w in f.ravel()) for f in stack) / len(stack)


def live(stack):
    largest = np.abs(stack).max()
    return [f for f in stack if np.abs(f).max() > NEAR_ZERO * largest]


def oracle_entropy(stack):
    flat = stack.reshape(len(stack), -1)
    singular = np.linalg.svd(flat - flat.mean(axis=0), compute_uv=False)
    total = sum(s**2 for s in singular)
    return -sum(s**2 / total * math.log(s**2 / total) for s in singular if s > 1e-12 * singular[0])


def oracle_orthogonality(stack):
    squares = [
        (float((a * b).sum()) / math.sqrt(float((a * a).sum() * (b * b).sum()))) ** 2
        for a, b in itertools.combinations(live(stack), 2)
    ]
    return 1 - math.sqrt(sum(squares) / len(squares))


def oracle_even(stack):
    kept = total = 0.0
    for f in stack:
        turned = np.flip(f)
        kept += float((((f + turned) / 2) ** 2).sum())
        total += float((f**2).sum())
    return kept / total


def oracle_rotated(stack):
    """The share left by the average over all turns, taken by turning pictures; in 3-D by 24 signed permutations."""
    kept = total = 0.0
    axes = stack.ndim - 1
    for f in stack:
        turned = []
        for order in itertools.permutations(range(axes)):
            for flips in itertools.product((1, -1), repeat=axes):
                matrix = np.zeros((axes, axes))
                for row, (column, sign) in enumerate(zip(order, flips, strict=True)):
                    matrix[row, column] = sign
                if round(np.linalg.det(matrix)) == 1:
                    moved = f.transpose(order)
                    turned.append(moved[tuple(slice(None, None, sign) for sign in flips)])
        kept += float((np.mean(turned, axis=0) ** 2).sum())
        total += float((f**2).sum())
    return kept / total


def oracle_offset(stack):
    variance = stack.var(axis=0)
    places = list(itertools.product(*(range(k) for k in variance.shape)))
    total = sum(variance[p] for p in places)
    return [sum(variance[p] * (p[a] - (k - 1) / 2) for p in places) / total for a, k in enumerate(variance.shape)]


@pytest.mark.parametrize("size", SIZES)
def test_every_number_is_what_its_definition_says(size):
    stack = filters(size)
    structure = structure_of(stack)
    assert structure.sparsity.value == pytest.approx(oracle_sparsity(stack)) == pytest.approx(2 / 40)
    assert structure.effective_rank.value == pytest.approx(math.exp(oracle_entropy(stack)))
    mean, _ = chance_entropy(math.prod(size), 39)
    assert structure.variance_entropy.value == pytest.approx(oracle_entropy(stack) / mean)
    assert structure.orthogonality.value == pytest.approx(oracle_orthogonality(stack))
    assert structure.even.value == pytest.approx(oracle_even(stack))
    assert structure.odd.value == pytest.approx(1 - oracle_even(stack))
    assert structure.offset == pytest.approx(oracle_offset(stack))
    assert structure.off_centre.value == pytest.approx(math.dist(oracle_offset(stack), [0] * len(size)))
    if len(size) > 1 and len(set(size)) == 1:
        assert structure.rotated.value == pytest.approx(oracle_rotated(stack))
    else:
        assert structure.rotated.value is None
        assert "square or cubic" in structure.rotated.reason


def test_the_turns_of_a_square_are_4_and_of_a_cube_24():
    assert (len(quarter_turns((3, 3))), len(quarter_turns((4, 4))), len(quarter_turns((3, 3, 3)))) == (4, 4, 24)


def sampled(k, variance, centre, orders):
    """A derivative of a Gaussian from the limit of differences, pixel by pixel, by its order along each axis."""

    def value(place):
        return math.exp(-sum((p - (k - 1) / 2 - c) ** 2 for p, c in zip(place, centre, strict=True)) / (2 * variance))

    def derivative(place, left):
        for axis, order in enumerate(left):
            if order:
                less = [o - (a == axis) for a, o in enumerate(left)]
                step = [1e-4 * (a == axis) for a in range(len(place))]
                ahead = derivative([p + s for p, s in zip(place, step, strict=True)], less)
                behind = derivative([p - s for p, s in zip(place, step, strict=True)], less)
                return (ahead - behind) / 2e-4
        return value(place)

    places = itertools.product(range(k), repeat=len(orders))
    return np.array([derivative(list(place), list(orders)) for place in places]).reshape((k,) * len(orders))


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
    assert structure.types[kind] == 1.0
    assert structure.gaussian_derivatives.value == 1.0
    assert structure.gaussian_derivatives.beyond_chance


def test_what_explains_less_than_four_fifths_explains_nothing():
    spot = sampled(5, 1.0, (0.0, 0.0), (0, 0)).ravel()
    names, shapes = gaussian_types((5, 5))
    basis = np.linalg.svd(shapes)[2]
    outside = np.random.default_rng(0).normal(size=25)
    outside -= spot * (outside @ spot) / (spot @ spot)
    spot, outside = spot / np.linalg.norm(spot), outside / np.linalg.norm(outside)
    assert len(basis) == 25
    for share, explained in ((0.83, 1.0), (0.7, 0.0)):
        mixed = math.sqrt(share) * spot + math.sqrt(1 - share) * outside
        best = max(float((mixed @ shape) ** 2) for shape in shapes)
        assert (best >= 0.8) == bool(explained)
        assert structure_of(mixed.reshape(1, 5, 5)).gaussian_derivatives.value == explained
    assert len(names) == len(shapes)


@pytest.mark.parametrize(("size", "count"), [((3, 3), 24), ((5, 5), 64), ((7,), 16), ((3, 3, 3), 20), ((2, 3), 200)])
def test_chance_is_what_independent_filters_show_and_its_range_is_seldom_left(size, count):
    rng = np.random.default_rng(5)
    trials = 150
    seen: dict[str, list[Number]] = {}
    for _ in range(trials):
        for name, number in structure_of(rng.normal(size=(count, *size)) * 0.3).numbers().items():
            seen.setdefault(name, []).append(number)
    for name, numbers in seen.items():
        if numbers[0].value is None:
            continue
        values = np.array([number.value for number in numbers])
        assert sum(number.beyond_chance for number in numbers) <= 4, name
        if name == "off_centre":  # the usual distance is the root of the mean square
            assert math.sqrt((values**2).mean()) == pytest.approx(numbers[0].chance, rel=0.15)
        else:
            allowed = 4 * values.std() / math.sqrt(trials) + 0.15 * values.std() + 1e-5
            assert values.mean() == pytest.approx(numbers[0].chance, abs=allowed), name


@pytest.mark.parametrize(
    ("size", "count"), [((2,), 3), ((2,), 9), ((3,), 3), ((2, 2), 4), ((3, 3), 3), ((5,), 6), ((3, 3), 10), ((5, 5), 4)]
)
def test_the_entropy_of_few_filters_or_pixels_has_its_chance_too(size, count):
    rng = np.random.default_rng(6)
    stacks = rng.normal(size=(1500, count, *size))
    entropies = np.array([oracle_entropy(stack) for stack in stacks])
    mean, deviation = chance_entropy(math.prod(size), count - 1)
    assert entropies.mean() == pytest.approx(mean, rel=0.03)
    assert entropies.std() == pytest.approx(deviation, rel=0.1)
    numbers = [structure_of(stack).variance_entropy for stack in stacks[:100]]
    assert sum(number.beyond_chance for number in numbers) <= 3
    assert all(0 <= number.low <= number.value for number in numbers)


def test_the_range_of_chance_is_narrow_enough_to_see_a_little_structure():
    rng = np.random.default_rng(0)
    stack = rng.normal(size=(256, 5, 5))
    even = stack + 0.35 * np.flip(stack, (1, 2))
    pushed = stack * np.linspace(1.0, 1.25, 5)
    blurred = stack + 0.3 * np.roll(stack, 1, axis=2)
    assert not any(number.beyond_chance for number in structure_of(stack).numbers().values())
    assert structure_of(even).even.beyond_chance
    assert structure_of(pushed).off_centre.beyond_chance
    assert structure_of(blurred).variance_entropy.beyond_chance
    assert structure_of(blurred).orthogonality.beyond_chance


def test_chance_is_the_same_every_time_and_a_scale_changes_nothing():
    assert chance_of_a_type.__wrapped__((3, 3)) == chance_of_a_type.__wrapped__((3, 3)) > 0
    stack = filters((5, 5))
    one, other = structure_of(stack).numbers(), structure_of(1e-12 * stack).numbers()
    for name, number in one.items():
        assert other[name].value == pytest.approx(number.value), name


def test_what_filters_cannot_tell_is_none_with_a_reason():
    alone = structure_of(np.ones((1, 3, 3)))
    assert alone.effective_rank.value is None
    assert alone.off_centre.reason == "one filter has no spread"
    assert alone.orthogonality.reason == "fewer than two filters are not near zero"
    assert alone.even.value == 1.0
    nothing = structure_of(np.zeros((4, 3, 3)))
    assert [n.value for n in nothing.numbers().values()] == [1.0] + [None] * 8
    pixel = structure_of(np.arange(1.0, 5.0).reshape(4, 1, 1))
    assert pixel.gaussian_derivatives.reason == "one pixel has no shape to be of a type"
    assert pixel.effective_rank.value == 1.0
    assert not any(number.beyond_chance for number in pixel.numbers().values())
    with pytest.raises(CovarianceError, match="needed finite filters"):
        structure_of(np.full((4, 3, 3), np.nan))
    with pytest.raises(CovarianceError, match="needed at least one filter"):
        structure_of(np.ones((4, 1, 3, 3, 3)))


def test_an_axis_of_one_pixel_adds_no_types():
    filters = np.random.default_rng(0).normal(size=(64, 7))
    line, row, column = (structure_of(filters.reshape(64, *size)) for size in ((7,), (1, 7), (7, 1)))
    assert row.types == line.types
    assert row.gaussian_derivatives == line.gaussian_derivatives == column.gaussian_derivatives
    assert list(column.types) == ["G", "Gy", "Gyy"]
    assert gaussian_types((1, 7, 7))[0] == gaussian_types((7, 7))[0]
