"""Means and paired intervals: right on paper, and right as often as they say."""

import math

import numpy as np
import pytest
from scipy import stats

from filtercov.lab.report.results_statistics import (
    Summary,
    paired_difference,
    seeds_needed,
    summarise,
    t_quantile,
    welch_interval,
)

UNIFORM = {0: 50.0, 1: 51.2, 2: 53.9}


def test_the_interval_is_scipys_of_paired_differences():
    ours = {0: 54.1, 1: 55.5, 2: 57.2}
    found = paired_difference(ours, UNIFORM)
    expected = stats.ttest_rel(list(ours.values()), list(UNIFORM.values())).confidence_interval(0.95)
    assert (found.mean, found.n) == (pytest.approx(3.9), 3)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_seeds_are_paired_by_name_and_only_those_that_both_have():
    here, there = {9: 1.0, 1: 55.5, 0: 54.1}, {2: 53.9, 7: 99.0, 0: 50.0, 1: 51.2}
    assert paired_difference(here, there) == paired_difference({0: 54.1, 1: 55.5}, {0: 50.0, 1: 51.2})
    assert paired_difference({0: 54.1}, {1: 50.0}) is None


@pytest.mark.parametrize("gain", [0.0, 4.0, 0.1])
def test_equal_differences_are_no_measurement_of_spread(gain):
    """Three differences of 0.1 differ in their last bits; that is no reason to be certain."""
    found = paired_difference({seed: value + gain for seed, value in UNIFORM.items()}, UNIFORM)
    assert found.mean == pytest.approx(gain)
    assert (found.low, found.high, found.n, found.decided) == (None, None, 3, False)


def test_welchs_interval_is_scipys_at_whole_degrees_of_freedom():
    ours, theirs = [59.7, 60.1, 60.9, 61.3], [58.7, 59.0, 59.3]
    test = stats.ttest_ind(ours, theirs, equal_var=False)
    low, high = stats.t.interval(0.95, math.floor(test.df), loc=1.5, scale=1.5 / test.statistic)
    assert welch_interval(summarise(ours), summarise(theirs)) == f"+1.50 [{low:+.2f}, {high:+.2f}]"
    assert welch_interval(summarise(ours), Summary(59.0, None, 1)) == "+1.50"


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
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
