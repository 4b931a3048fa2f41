"""Means, paired intervals and verdicts: right on paper, and right as often as they say."""

import math

import numpy as np
import pytest
from scipy import stats

from filtercov.lab.report.results_statistics import (
    Difference,
    judge,
    paired_difference,
    seeds_needed,
    t_quantile,
)

OURS, UNIFORM = {0: 54.1, 1: 55.5, 2: 57.2}, {0: 50.0, 1: 51.2, 2: 53.9}


def test_the_interval_is_scipys_of_paired_differences():
    found = paired_difference(OURS, UNIFORM)
    expected = stats.ttest_rel(list(OURS.values()), list(UNIFORM.values())).confidence_interval(0.95)
    assert found.mean == pytest.approx(3.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert found.n == 3


def test_seeds_are_paired_by_name_and_only_those_that_both_have():
    there = {2: 53.9, 7: 99.0, 0: 50.0, 1: 51.2}
    here = {9: 1.0, 1: 55.5, 0: 54.1}
    assert paired_difference(here, there) == paired_difference({0: 54.1, 1: 55.5}, {0: 50.0, 1: 51.2})
    assert paired_difference(here, there).n == 2
    assert paired_difference({0: 54.1}, {1: 50.0}) is None


@pytest.mark.parametrize("gain", [0.0, 4.0, 0.1])
def test_equal_differences_are_no_measurement_of_spread(gain):
    """Three differences of 0.1 differ in their last bits; that is no reason to be certain."""
    uniform = {0: 50.0, 1: 51.2, 2: 53.9}
    found = paired_difference({seed: value + gain for seed, value in uniform.items()}, uniform)
    assert found.mean == pytest.approx(gain)
    assert (found.low, found.high, found.n) == (None, None, 3)
    assert judge(found, 1.0) == "open"


@pytest.mark.parametrize(
    ("low", "high", "claim", "verdict"),
    [
        (0.1, 2.0, 5.0, "holds"),
        (-2.0, -0.1, -0.01, "holds"),
        (0.1, 2.0, -0.01, "contradicted"),
        (-2.0, -0.1, 5.0, "contradicted"),
        (-0.1, 2.0, 5.0, "open"),
        (0.0, 2.0, 5.0, "open"),
        (-2.0, 0.0, 5.0, "open"),
    ],
)
def test_a_claim_is_decided_by_an_interval_wholly_on_one_side(low, high, claim, verdict):
    assert judge(Difference((low + high) / 2, low, high, 3), claim) == verdict


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_quantiles_are_scipys_for_every_number_of_degrees_of_freedom(level):
    df = np.arange(1, 1001)
    found = [t_quantile(level, int(each)) for each in df]
    np.testing.assert_allclose(found, stats.t.ppf((1 + level) / 2, df), rtol=1e-11)


@pytest.mark.parametrize("std", [0.5, 0.8, 1.7, 3.0])
def test_about_so_many_seeds_decide_four_of_five_times(std):
    def power(n: int) -> float:
        return stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, math.sqrt(n) / std)

    n = seeds_needed(std, effect=1.0)
    assert power(n - 2) < 0.8 < power(n + 1)
    assert seeds_needed(2 * std, effect=2.0) == n
