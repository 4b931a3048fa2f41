"""Claims are judged by what was written down: all comparisons to hold, any one, corrected, to contradict."""

from dataclasses import replace

import pytest
from scipy import stats

from filtercov.lab.experiments.paper import CLAIMS, CellName, Claim, Comparison
from filtercov.lab.experiments.timings import SpeedRecord
from filtercov.lab.report.results_claims import claim_table, claims_answer, comparison_table, finding_of, judge_claim
from tests.lab.report.results_records import cell, record

BY_NUMBER = {claim.number: claim for claim in CLAIMS}
NOISE = (0.2, -0.1, 0.3, -0.4, 0.0)


def seeds(mean, spread=1.0):
    return [mean + spread * noise for noise in NOISE]


def judged(*means, asks="above", spread=1.0, beside=(), **more):
    """The finding on a claim with a comparison for each mean, None for one that was not run."""
    comparisons, cells = [], []
    for i, mean in enumerate(means):
        ours, theirs = (CellName(f"k{i}", f"thawed/{init}") for init in ("ours", "uniform"))
        reason = "another matter" if i in beside else ""
        comparisons.append(Comparison(f"k{i}", ((1.0, ours), (-1.0, theirs)), asks, beside=reason))
        found = () if mean is None else seeds(50.0 + mean, spread)
        cells += [cell("thawed/uniform", *[50.0] * 5, row=f"k{i}"), cell("thawed/ours", *found, row=f"k{i}")]
    return judge_claim(Claim("C0", "Toys are better.", tuple(comparisons)), record(*cells, **more))


@pytest.mark.parametrize(
    ("difference", "spread", "verdicts"),
    [
        (+2.0, 1.0, ("holds", "holds", "contradicted")),
        (+0.1, 1.0, ("no difference", "holds", "holds")),  # equal within the margin
        (-0.5, 1.0, ("contradicted", "holds", "holds")),  # worse, by less than the margin
        (-1.0, 1.0, ("contradicted", "open", "open")),
        (-1.5, 1.0, ("contradicted", "contradicted", "contradicted")),
        (+2.0, 10.0, ("open", "open", "open")),
    ],
)
def test_above_is_above_zero_at_least_above_the_margin_and_same_within_it(difference, spread, verdicts):
    for asks, expected in zip(("above", "at least", "same"), verdicts, strict=True):
        finding = judged(difference, asks=asks, spread=spread)
        assert finding.verdict == finding.compared[0].verdict() == expected
        assert finding.compared[0].difference.mean == pytest.approx(difference)


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((2.0, 2.0), "holds"),
        ((2.0, 0.1), "no difference"),
        ((0.1, None), "open"),
        ((2.0, -2.0), "contradicted"),
        ((2.0, None), "open"),
        ((-2.0, None), "contradicted"),
        ((None, None), "not run"),
    ],
)
def test_all_comparisons_must_hold_and_one_can_contradict(means, expected):
    alone = {None: "not run", 2.0: "holds", 0.1: "no difference", -2.0: "contradicted"}
    finding = judged(*means)
    assert finding.verdict == expected
    assert [one.verdict() for one in finding.compared] == [alone[mean] for mean in means]


@pytest.mark.parametrize(("counting", "expected"), [(2.0, "holds"), (0.1, "no difference"), (None, "not run")])
def test_a_comparison_beside_the_claim_is_shown_with_its_interval_and_decides_nothing(counting, expected):
    finding = judged(counting, -2.0, beside=(1,))
    assert finding.verdict == expected
    low, high = stats.t.interval(0.95, 4, loc=-2.0, scale=stats.sem(NOISE))
    shown = ["k1", "above 0", f"-2.00 [{low:+.2f}, {high:+.2f}], n = 5", "contradicted, beside the claim"]
    assert comparison_table(finding)[2] == shown
    assert "Beside it stands 'k1': another matter." in finding.sentence


@pytest.mark.parametrize("mean", [-0.36, -0.5, -0.7, -2.0])
def test_what_contradicts_alone_does_not_among_many_unless_it_is_clear(mean):
    """The level of one of m comparisons is 5 %/m: checked with scipy's p-value."""
    p = stats.ttest_1samp(seeds(mean), 0.0).pvalue
    assert (p < 0.05, judged(mean).verdict) == (True, "contradicted")
    among = judged(mean, *[2.0] * 9)
    assert among.compared[0].verdict() == "contradicted"
    assert among.verdict == ("contradicted" if p < 0.05 / 10 else "open")


def test_one_seed_leaves_a_claim_open_and_the_smoke_scale_says_nothing():
    cells = cell("thawed/uniform", 50.0), cell("frozen/closed-form", 60.0)
    one = judge_claim(BY_NUMBER["C4"], record(*cells))
    assert (one.verdict, claim_table([one])[1][-1]) == ("open", "1")
    smoke = judged(2.0, scale="smoke")
    assert (smoke.verdict, smoke.run) == ("not run", ())
    assert "smoke" in smoke.sentence


def gains(column, by_row):
    filters = column.partition("/")[0]
    uniform = [cell(f"{filters}/uniform", *[50.0] * 5, row=row) for row in by_row]
    return uniform + [cell(column, *seeds(50.0 + gain), row=row) for row, gain in by_row.items()]


def test_growth_with_the_kernel_is_the_rise_of_the_line_through_all_sizes():
    values = {3: 0.0, 7: 3.0, 9: 4.0, 15: 6.0}
    cells = gains("frozen/closed-form", {f"k{k}": value for k, value in values.items()})
    rise = 12 * stats.linregress(list(values), list(values.values())).slope
    assert judge_claim(BY_NUMBER["C5"], record(*cells)).compared[0].difference.mean == pytest.approx(rise)


@pytest.mark.parametrize(("better", "expected"), [(5, "holds"), (4, "contradicted")])
def test_most_of_a_grid_is_its_median(better, expected):
    columns = [name.column for name in BY_NUMBER["C15"].comparisons[0].median_of]
    cells = [
        cell(column, *(50.0 + (2.0 if place < better else -2.0) + 0.1 * seed for seed in range(5)))
        for place, column in enumerate(columns)
    ]
    assert judge_claim(BY_NUMBER["C15"], record(cell("frozen/uniform", *[50.0] * 5), *cells)).verdict == expected


@pytest.mark.parametrize(
    ("saved", "expected"),
    [((5.0, 10.0, 20.0), "holds"), ((5.0, 10.0, 2.0), "contradicted"), ((None, None, None), "not run")],
)
def test_timings_are_judged_turn_by_turn(saved, expected):
    turns = [() if share is None else tuple(seeds(share, k / 9)) for k, share in zip((3, 9, 15), saved, strict=True)]
    timed = tuple(SpeedRecord(f"net_k{k}", k, 1.0, 0.9, each) for k, each in zip((3, 9, 15), turns, strict=True))
    finding = judge_claim(BY_NUMBER["C14"], replace(record(speeds=timed), versions={"timed on": "an abacus"}))
    assert finding.verdict == expected
    assert finding.sentence.endswith("Timed on an abacus.")


def test_a_claim_is_shown_by_the_comparison_that_is_worst_for_it():
    def finding(*gains, spreads=(1, 1, 1)):
        cells = []
        for row, gain, spread in zip(("k7", "k9", "k15"), gains, spreads, strict=False):
            cells.append(cell("thawed/uniform", *[50.0] * 5, row=row))
            cells.append(cell("frozen/closed-form", *seeds(50.0 + gain, spread), row=row))
        return judge_claim(BY_NUMBER["C4"], record(*cells, name="claim-c4"))

    holds, against = finding(3.0, 2.0, 4.0), finding(-3.0, 2.0, -4.0, spreads=(1, 1, 5))
    assert against.worst.difference.mean == pytest.approx(-3.0)  # the other is further off, and less sure
    (_, _, verdict, ours, paper, n), (_, _, last, *_) = claim_table([holds, against])[1:]
    assert (paper, n, verdict, last) == ("+1.30", "5", "holds", "contradicted")
    assert ours.startswith("+2.00 [")
    assert ours.endswith("], the worst of 3")
    cells = gains("thawed/covariance", {"k7": 2.0, "k9": 3.0})
    said = finding_of(record(*cells, name="claim-c1")).sentence
    assert said == "Of 3 comparisons 2 hold, 1 was not run."
    (_, partly) = claim_table([finding(3.0, 2.0)])
    assert partly[3].endswith("], the worst of 2, 1 not run")
    assert claims_answer([holds, against]) == "Of 2 claims 1 holds (C4), 1 is contradicted (C4)."
    assert [row[2] for row in comparison_table(holds)[1:]] == ["+0.56", "+1.30", "+3.74"]
