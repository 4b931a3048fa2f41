"""Who in a ranking cannot be told apart from whom: by an independent paired test, and said in every text."""

import html
from itertools import combinations

import numpy as np
import pytest
import scipy.stats

from filtercov.lab.report.results import results_page
from filtercov.lab.report.results_ranking import NOT_RANKED, TOLD_APART, in_ranges, rank, rankings
from filtercov.lab.report.results_text import to_latex, to_markdown, to_terminal
from tests.lab.report.results_records import cell, record

RANKED = record(
    cell("frozen/uniform", 50.0, 51.0, 52.0),
    cell("frozen/dog", 50.5, 50.8, 52.5),
    cell("frozen/closed-form", 55.0, 56.1, 56.9),
    cell("frozen/uniform", 40.0, 41.0, 42.0, row="k15"),
    cell("frozen/dog", 41.0, 42.1, 43.0, row="k15"),
    cell("frozen/closed-form", missing=("a run",), row="k15"),
    cell("thawed/uniform", 60.0, 61.0, 62.0),
    chart="ranking",
)


def test_pairs_are_told_apart_as_a_paired_t_test_tells_them():
    rng = np.random.default_rng(0)
    seeds = range(5)
    inits = {f"i{i}": dict(zip(seeds, rng.normal(50 + 0.3 * i, 1.0, 5), strict=True)) for i in range(12)}
    found = rank("simulated", inits)
    alike = {place.init: {found.places[number - 1].init for number in place.alike} for place in found.places}
    told = 0
    for a, b in combinations(inits, 2):
        p = scipy.stats.ttest_rel(list(inits[a].values()), list(inits[b].values())).pvalue
        assert (b in alike[a]) == (a in alike[b]) == (p > 0.05)
        told += p < 0.05
    assert 0 < told < 66
    assert (found.told, found.pairs) == (told, 66)
    means = [np.mean(list(inits[place.init].values())) for place in found.places]
    assert means == sorted(means, reverse=True)
    assert [place.rank for place in found.places] == list(range(1, 13))
    assert str(found) == f"simulated: {told} of 66 pairs told apart, where chance alone would tell 3.3"


def test_pairs_are_of_common_seeds_and_without_an_interval_nobody_is_told_apart():
    found = rank("few", {"a": {0: 90.0}, "b": {0: 10.0}, "c": {7: 1.0}})
    assert [place.alike for place in found.places] == [(2, 3), (1, 3), (1, 2)]
    assert found.told == 0
    assert str(found).endswith("where chance alone would tell 0")
    # Paired, a small but steady gain is told from noise that both columns share; unpaired it would not be.
    steady = rank("steady", {"a": {0: 50.0, 1: 60.0, 2: 70.0}, "b": {2: 69.0, 1: 59.1, 0: 48.9}})
    assert [place.alike for place in steady.places] == [(), ()]
    assert steady.places[1].behind.mean == pytest.approx(-1.0)


def test_each_row_has_a_ranking_and_rows_together_one_of_what_all_of_them_have():
    overall, first, second = rankings(RANKED)
    assert overall.title == "frozen, mean of all 2 rows"
    assert str(overall).endswith("; not in all of these rows, and left out: closed-form")
    assert [place.init for place in overall.places] == ["dog", "uniform"]
    assert overall.places[0].measured.mean == pytest.approx((50.5 + 50.8 + 52.5 + 41.0 + 42.1 + 43.0) / 6)
    assert overall.places[0].measured.n == 3
    assert first.title == "k9: net_k9, frozen"
    assert [place.init for place in first.places] == ["closed-form", "dog", "uniform"]
    assert [place.alike for place in first.places] == [(), (3,), (2,)]
    assert [place.init for place in second.places] == ["dog", "uniform"]  # of what is missing nothing is said


def test_a_ranking_over_some_of_the_rows_says_of_how_many():
    more = cell("frozen/uniform", missing=("a run",), row="k3")
    assert rankings(record(*RANKED.cells, more, chart="ranking"))[0].title == "frozen, mean of 2 of 3 rows"


@pytest.mark.parametrize("make", [to_markdown, to_terminal, results_page])
def test_every_text_has_the_ranking_and_says_what_it_means(make):
    text = html.unescape(make(RANKED))
    assert TOLD_APART in text
    assert "k9: net_k9, frozen: 2 of 3 pairs told apart, where chance alone would tell 0.15" in text
    assert "cannot be told apart from" in text
    assert "| 2 | dog | 51.27 ± 1.08 | 3 | -4.73 [-5.96, -3.51], n = 3 | 3 |" in to_markdown(RANKED)


@pytest.mark.parametrize("make", [to_markdown, to_terminal, to_latex, results_page])
def test_accuracies_that_mean_nothing_are_not_ranked(make):
    smoke = record(*RANKED.cells, chart="ranking", scale="smoke")
    assert rankings(smoke) == []
    text = html.unescape(make(smoke))
    assert NOT_RANKED in text
    assert "told apart" not in text


def test_other_experiments_have_no_ranking():
    assert rankings(record(*RANKED.cells)) == []


def test_ranks_are_drawn_together():
    assert in_ranges([2, 3, 4, 6]) == "2-4, 6"
