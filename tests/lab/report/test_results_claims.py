"""Claims are judged by what was written down: all comparisons to hold, any one, corrected, to contradict."""

from dataclasses import replace

import pytest
from scipy import stats

from filtercov.lab.experiments.paper_claims import CLAIMS, CellName, Claim, Comparison
from filtercov.lab.experiments.timings import SpeedRecord
from filtercov.lab.report.results_claims import Finding, claim_lines, judge_claim
from tests.lab.report.results_records import cell, record

BY_NUMBER = {claim.number: claim for claim in CLAIMS}
UNIFORM, OURS = CellName("k9", "thawed/uniform"), CellName("k9", "thawed/covariance")
NOISE = (0.2, -0.1, 0.3, -0.4, 0.0)


def versus(says: str, one: CellName, other: CellName, asks: str = "above") -> Comparison:
    return Comparison(says, ((1.0, one), (-1.0, other)), asks)


def toy(*comparisons: Comparison) -> Claim:
    return Claim("C0", "", "Toys are better.", comparisons)


def seeds(mean: float, spread: float = 1.0) -> list[float]:
    return [mean + spread * noise for noise in NOISE]


def with_difference(difference: float, spread: float = 1.0):
    return record(cell("thawed/uniform", *[50.0] * 5), cell("thawed/covariance", *seeds(50.0 + difference, spread)))


@pytest.mark.parametrize(
    ("difference", "spread", "as_above", "as_at_least", "as_same"),
    [
        (+2.0, 1.0, "holds", "holds", "contradicted"),
        (+0.1, 1.0, "no difference", "holds", "holds"),  # equal within the margin
        (-0.5, 1.0, "contradicted", "holds", "holds"),  # worse, by less than the margin
        (-1.0, 1.0, "contradicted", "open", "open"),
        (-1.5, 1.0, "contradicted", "contradicted", "contradicted"),
        (+2.0, 10.0, "open", "open", "open"),
    ],
)
def test_above_is_above_zero_at_least_above_the_margin_and_same_within_it(
    difference, spread, as_above, as_at_least, as_same
):
    found = with_difference(difference, spread)
    for asks, expected in (("above", as_above), ("at least", as_at_least), ("same", as_same)):
        finding = judge_claim(toy(versus("", OURS, UNIFORM, asks)), found)
        assert finding.verdict == finding.compared[0].verdict == expected
        assert finding.n == 5
        assert finding.compared[0].difference.mean == pytest.approx(difference)


def test_a_comparison_says_its_interval_beside_the_papers_difference():
    compared = judge_claim(toy(versus("", OURS, UNIFORM)), with_difference(2.0)).compared[0]
    low, high = stats.t.interval(0.95, 4, loc=2.0, scale=stats.sem(NOISE))
    shown = f", must be above 0: +2.00 [{low:+.2f}, {high:+.2f}], n = 5 (the paper's: +1.50), holds"
    assert str(replace(compared, paper=1.5)) == shown


def claim_of(*means: float | None) -> tuple[Claim, object]:
    """A claim of a comparison for each mean, None for one that was not run, and the record."""
    rows = [f"k{i}" for i in range(len(means))]
    claim = toy(*(versus(row, CellName(row, "thawed/a"), CellName(row, "thawed/b")) for row in rows))
    cells = []
    for row, mean in zip(rows, means, strict=True):
        cells.append(cell("thawed/b", *[50.0] * 5, row=row))
        cells.append(
            cell("thawed/a", missing=("a run",), row=row)
            if mean is None
            else cell("thawed/a", *seeds(50.0 + mean), row=row)
        )
    return claim, record(*cells)


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
    finding = judge_claim(*claim_of(*means))
    assert finding.verdict == expected
    assert [one.verdict for one in finding.compared] == [
        "not run" if mean is None else {2.0: "holds", 0.1: "no difference", -2.0: "contradicted"}[mean]
        for mean in means
    ]


@pytest.mark.parametrize(("counting", "expected"), [(2.0, "holds"), (0.1, "no difference"), (None, "not run")])
def test_a_comparison_beside_the_claim_is_shown_and_decides_nothing(counting, expected):
    claim, found = claim_of(counting, -2.0)
    first, second = claim.comparisons
    finding = judge_claim(replace(claim, comparisons=(first, replace(second, beside="it is another matter"))), found)
    assert (finding.verdict, finding.in_part, finding.begun) == (expected, False, True)
    assert len(finding.counted) == 1
    assert str(finding.compared[1]).endswith("contradicted, beside the claim")
    assert f"Beside it stands '{second.says}': it is another matter." in finding.sentence


def test_what_contradicts_alone_does_not_among_many_unless_it_is_clear():
    """The level of one of m comparisons is 5 %/m: checked with scipy's p-value of each."""
    for mean in (-0.36, -0.5, -0.7, -2.0):
        p = stats.ttest_1samp(seeds(mean), 0.0).pvalue
        assert p < 0.05
        assert judge_claim(*claim_of(mean)).verdict == "contradicted"
        among = judge_claim(*claim_of(mean, *[2.0] * 9))
        assert among.compared[0].verdict == "contradicted"
        assert among.verdict == ("contradicted" if p < 0.05 / 10 else "open")
    assert stats.ttest_1samp(seeds(-0.36), 0.0).pvalue > 0.05 / 10 > stats.ttest_1samp(seeds(-2.0), 0.0).pvalue


def test_one_seed_leaves_a_claim_open_and_the_smoke_scale_says_nothing():
    cells = (cell("thawed/uniform", 50.0), cell("thawed/covariance", 60.0))
    one = judge_claim(toy(versus("", OURS, UNIFORM)), record(*cells))
    assert (one.verdict, one.n) == ("open", 1)
    smoke = judge_claim(toy(versus("", OURS, UNIFORM)), record(*with_difference(2.0).cells, scale="smoke"))
    assert (smoke.verdict, smoke.n) == ("not run", 0)
    assert "smoke" in smoke.sentence


def gains(column: str, by_row: dict[str, float], base: str = "uniform"):
    filters, _, init = column.partition("/")
    return [
        made
        for row, gain in by_row.items()
        for made in (
            cell(f"{filters}/{base}", *[50.0] * 5, row=row),
            cell(f"{filters}/{init}", *seeds(50.0 + gain), row=row),
        )
    ]


def test_growth_with_the_kernel_is_the_rise_of_the_line_through_all_sizes():
    sizes, values = [3, 7, 9, 15], [0.0, 3.0, 4.0, 6.0]
    found = judge_claim(
        BY_NUMBER["C5"],
        record(*gains("frozen/closed-form", {f"k{k}": v for k, v in zip(sizes, values, strict=True)})),
    )
    assert found.compared[0].difference.mean == pytest.approx(12 * stats.linregress(sizes, values).slope)


def test_most_of_a_grid_is_its_median():
    columns = [name.column for name in BY_NUMBER["C15"].comparisons[0].median_of]
    for better, expected in ((5, "holds"), (4, "contradicted")):
        cells = [
            cell(column, *(50.0 + (2.0 if place < better else -2.0) + 0.1 * seed for seed in range(5)))
            for place, column in enumerate(columns)
        ]
        assert judge_claim(BY_NUMBER["C15"], record(cell("frozen/uniform", *[50.0] * 5), *cells)).verdict == expected


def test_timings_are_judged_turn_by_turn():
    def speeds(*saved: float) -> tuple[SpeedRecord, ...]:
        sizes = zip((3, 9, 15), saved, strict=True)
        return tuple(SpeedRecord(f"net_k{k}", k, 1.0, 0.9, tuple(seeds(share, k / 9))) for k, share in sizes)

    def judged(*timed: SpeedRecord) -> Finding:
        return judge_claim(BY_NUMBER["C14"], replace(record(speeds=timed), versions={"timed on": "an abacus"}))

    finding = judged(*speeds(5.0, 10.0, 20.0))
    assert (finding.verdict, finding.sentence[:23]) == ("holds", "Of 3 comparisons 3 hold")
    assert finding.sentence.endswith("Timed on an abacus.")
    assert judged(*speeds(5.0, 10.0, 2.0)).verdict == "contradicted"
    assert judged(SpeedRecord("net_k3", 3, 1.0, 0.9)).verdict == "not run"


def test_the_verdict_is_printed_with_every_comparison_that_was_run():
    cells = gains("thawed/covariance", {"k7": 2.0, "k9": 3.0})
    lines = claim_lines(record(*cells, name="claim-c1"))
    assert lines[0].startswith("C1, Covariance transfer")
    assert lines[0].endswith("Verdict: open. Of 3 comparisons 2 hold, 1 was not run.")
    assert len(lines) == 3
    assert all("holds" in line and "n = 5" in line for line in lines[1:])
    assert claim_lines(record(*cells)) == []
