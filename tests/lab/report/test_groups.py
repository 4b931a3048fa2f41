"""Groups of runs: the answer, the table and the page."""

import numpy as np
from scipy import stats

from filtercov.lab.report.groups import FinishedRun, Group, answer, group_table, groups_of, groups_page
from filtercov.lab.report.page import text
from filtercov.lab.report.results_statistics import Summary


def runs(*ends: float, step: float | None = None, filters=None) -> list[FinishedRun]:
    return [FinishedRun(seed, (end - 5, end - 6, end), step, filters or {}) for seed, end in enumerate(ends)]


def beside_first(found: dict[str, list[FinishedRun]]) -> list[Group]:
    return groups_of(found, against=dict.fromkeys(found, next(iter(found))))


def test_the_answer_says_who_is_ahead_since_when_and_what_is_too_few_to_tell():
    found = answer(
        beside_first({"own": runs(60.0, 61.0, 62.0), "ours": runs(63.0, 63.5, 65.2), "worse": runs(50, 52, 51.5)})
    )
    low, high = stats.t.interval(0.95, 2, loc=2.9, scale=stats.sem([3.0, 2.5, 3.2]))
    first, second = found.splitlines()
    assert first == f"ours ends 2.90 points above own, [{low:+.2f}, {high:+.2f}], n = 3; ahead from epoch 1."
    assert "points below own" in second
    assert "behind from epoch 1" in second
    unclear = answer(beside_first({"own": runs(60.0, 61.0, 62.0), "ours": runs(63.0, 59.5, 64.0)}))
    assert "too few to tell; about" in unclear
    hopeless = answer(beside_first({"own": runs(60.0, 61.0, 62.0), "ours": runs(62.0, 59.05, 62.0)}))
    assert "too few to tell; not even 200 seeds would be enough" in hopeless
    assert "one seed: no verdict" in answer(beside_first({"own": runs(60.0), "ours": runs(61.0)}))
    assert answer(beside_first({"own": runs(60.0, 62.0)})) == "own reaches 61.00 ± 1.41 % (2 seeds)."


def test_the_answer_names_the_time_that_freezing_saves():
    trained = Group("closed-form", [FinishedRun(seed, (50.0, 60.0 + seed), 0.2) for seed in range(3)])
    frozen = [FinishedRun(seed, (50.0, 59.5 + seed), 0.15) for seed in range(3)]
    said = answer([trained, Group("closed-form, frozen", frozen, trained)])
    assert "0.50 points below closed-form, in 25% less time a step" in said
    assert "time" not in answer([trained, Group("other", frozen, trained)])


def test_ahead_means_from_then_on():
    own = [FinishedRun(s, (50.0 + s, 60.0, 70.0)) for s in range(3)]
    late = [FinishedRun(s, (60.0, 55.0, 72.0 + s / 10)) for s in range(3)]
    assert "ahead from epoch 3" in answer(beside_first({"own": own, "late": late}))


def test_the_table_pairs_seeds_names_the_papers_distance_and_leaves_out_what_is_empty():
    found = {
        "uniform": runs(60.0, 61.0, step=0.010),
        "ours": runs(63.0, 64.5, step=0.012),
        "apart": [FinishedRun(7, (1.0,))],
    }
    papers = {"uniform": Summary(59.0, 0.1, 3), "ours": Summary(62.0, None, 1)}
    groups = groups_of(found, against={"uniform": "uniform", "ours": "uniform", "apart": "ours"}, paper=papers)
    head, uniform, ours, apart = group_table(groups)
    assert head == ["runs", "accuracy, %", "difference", "n", "the paper's", "from the paper's", "ms a step"]
    assert uniform[:4] == ["uniform", "60.50 ± 0.71", "", "2"]
    assert uniform[5].startswith("+1.50 [")
    assert ours[2].startswith("+3.25 [")
    assert (ours[5], ours[6]) == ("+1.75", "12")
    assert apart[2] == ""  # no seed in common
    assert group_table(beside_first({"a": runs(50.0)}))[0] == ["runs", "accuracy, %", "n"]


def test_the_page_has_the_answer_curves_with_bands_and_filters_before_and_after():
    filters = {f"layer {i}": (np.random.default_rng(i).normal(size=(9, 5, 5)), np.ones((9, 5, 5))) for i in range(4)}
    groups = beside_first({"<b>own</b>": runs(60.0, 61.0, 62.0, filters=filters), "ours": runs(63.0, 63.5, 65.2)})
    html = groups_page("Mine", groups, notes=["so"])
    assert f'<p class="lead">{text(answer(groups))}</p>' in html
    assert '<p class="note">so</p>' in html
    counts = {'<path class="band': 2, '<p class="legend"': 1, "<img ": 6}  # images: 3 layers before and after
    assert {part: html.count(part) for part in counts} == counts
    assert "bands are one standard deviation" in html
    assert "bands" not in groups_page("One seed", beside_first({"own": runs(60.0)}))
