"""The structure numbers, against slow loops written from their definitions, and their chance levels against chance."""

import itertools
import math

import numpy as np
import pytest

import filtercov as fc
from filtercov.covariance import LayerStatistics, gaussian_covariance, nearest_kronecker
from filtercov.errors import CovarianceError
from filtercov.structure import (
    NEAR_ZERO,
    Number,
    centredness,
    kronecker_residual,
    spectrum,
    structure_of,
    structure_of_layer,
)

NUMBERS = ["sparsity", "effective_rank", "even"]


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
    assert structure.even.value == pytest.approx(even)
    cov = np.cov(stack.reshape(40, -1), rowvar=False)
    assert centredness(cov, size) == pytest.approx(oracle_centredness(stack.var(axis=0)))
    assert (np.diff(spectrum(cov)) <= 0).all()
    assert spectrum(cov).sum() == pytest.approx(np.trace(cov))


def test_the_kronecker_residual_is_the_distance_to_the_nearest_of_square_filters():
    cov = gaussian_covariance(3, 0.6)
    A = nearest_kronecker(cov, 3)
    distance = np.linalg.norm(cov - np.kron(A, A)) / np.linalg.norm(cov)
    assert kronecker_residual(cov, 3) == pytest.approx(distance, rel=1e-12)
    for cov, size in ((np.eye(6), (2, 3)), (np.eye(27), (3, 3, 3)), (np.zeros((9, 9)), 3), (1e-300 * np.eye(9), 3)):
        assert math.isnan(kronecker_residual(cov, size))


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
        if name != "sparsity":
            assert first.high - first.low == pytest.approx(8 * values.std(), rel=0.35), name


@pytest.mark.parametrize(("n", "count"), [(1, 20), (1, 300), (2, 60)])
def test_the_chance_of_filters_near_zero_is_what_is_drawn(n, count):
    drawn = np.abs(np.random.default_rng(0).normal(size=(600_000 // count, count, n)))
    near_zero = (drawn.max(axis=2) <= NEAR_ZERO * drawn.max(axis=(1, 2))[:, None]).mean()
    number = structure_of(np.random.default_rng(1).normal(size=(count, n))).sparsity
    assert number.chance == pytest.approx(near_zero, rel=0.1)


def test_what_filters_cannot_tell_is_none_with_a_reason():
    alone = structure_of(np.ones((1, 3, 3))).as_record()
    assert alone["absent"] == "effective_rank: one filter has no spread"
    assert alone["effective_rank"] is alone["effective_rank_beyond_chance"] is None
    nothing = structure_of(np.zeros((4, 3, 3)))
    assert [number.value for number in nothing.numbers().values()] == [1.0, None, None]
    pixel = structure_of(np.arange(1.0, 5.0).reshape(4, 1, 1))
    assert pixel.effective_rank.value == 1.0
    two = structure_of(np.random.default_rng(0).normal(size=(2, 3, 3)))
    assert two.effective_rank.value == pytest.approx(1.0)
    assert not any(n.beyond_chance for n in (*pixel.numbers().values(), two.effective_rank))
    few = structure_of(np.random.default_rng(0).normal(size=(15, 3, 3))).effective_rank  # its chance is not known
    assert (few.chance, few.beyond_chance) == (None, False)
    kept = structure_of_layer(LayerStatistics("", (3, 3), 9, np.zeros(9), np.eye(9))).sparsity
    assert (kept.value, kept.reason[:29]) == (None, "the statistics hold no filter")
    for cov, size in ((np.zeros((9, 9)), 3), (np.eye(1), 1)):
        assert math.isnan(centredness(cov, size))
    for bad in (np.full((4, 3, 3), np.nan), np.ones((4, 1, 3, 3, 3)), "filters"):
        with pytest.raises(CovarianceError):
            structure_of(bad)


@pytest.mark.parametrize(
    ("name", "means", "ranks_beyond_chance", "even_beyond_chance"),
    [
        ("convmixer-64-8-k3-p2", (0.7874461653, 0.7539110592, 6.306312836, 8.314942163, 0.5147957974), 8, 1),
        ("convmixer-64-8-k9-p2", (0.7179985605, 0.1858439099, 19.80472821, 42.48093890, 0.5398487810), 8, 5),
        ("convnext-atto-p2", (0.4388848516, 0.3015105044, 27.55493570, 38.77509146, 0.5561324231), 12, 5),
        ("efficientnet-lite0", (0.8631423022, 0.6187334977, 5.774338717, 17.44008017, 0.7013240648), 16, 14),
    ],
)
def test_the_numbers_of_references_stay_as_they_are(name, means, ranks_beyond_chance, even_beyond_chance):
    records = fc.FilterStatistics.shipped(name).to_records()
    numbers = ("likeness", "likeness_chance", "effective_rank", "effective_rank_chance", "even")
    found = [np.mean([record[number] for record in records if record[number] is not None]) for number in numbers]
    assert found == pytest.approx(means, rel=1e-8)
    assert sum(record["effective_rank_beyond_chance"] for record in records) == ranks_beyond_chance
    assert sum(record["even_beyond_chance"] for record in records) == even_beyond_chance
