"""Groups of runs: means and paired intervals; the answer, the table and the page, also of anyone's runs."""

import json
import math
import re
import shutil

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from filtercov.cli.app import app
from filtercov.errors import ConfigError
from filtercov.lab.experiments.execute import execute
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.report.groups import (
    FinishedRun,
    Group,
    answer,
    curves_figure,
    group_table,
    groups_page,
    runs_page,
    with_baselines,
)
from filtercov.lab.report.page import text
from filtercov.lab.report.results_statistics import (
    OVER_SEEDS,
    Difference,
    Summary,
    paired_difference,
    seeds_needed,
    summarise,
    t_quantile,
    welch_interval,
)
from filtercov.lab.training import TrainConfig

UNIFORM = {0: 50.0, 1: 51.2, 2: 53.9}


def test_the_interval_is_scipys_of_paired_differences():
    ours = {0: 54.1, 1: 55.5, 2: 57.2}
    found = paired_difference(ours, UNIFORM)
    expected = stats.ttest_rel(list(ours.values()), list(UNIFORM.values())).confidence_interval(0.95)
    assert (found.mean, found.n) == (pytest.approx(3.9), 3)
    assert found.bounds() == pytest.approx((expected.low, expected.high), rel=1e-5)
    here, there = {9: 1.0, 1: 55.5, 0: 54.1}, {2: 53.9, 7: 99.0, 0: 50.0, 1: 51.2}
    assert paired_difference(here, there) == paired_difference({0: 54.1, 1: 55.5}, {0: 50.0, 1: 51.2})
    assert paired_difference({0: 54.1}, {1: 50.0}) is None

    for gain in (4.0, 0.1):  # three differences of 0.1 differ in their last bits: no measurement of spread
        found = paired_difference({seed: value + gain for seed, value in UNIFORM.items()}, UNIFORM)
        assert (found.mean, found.bounds(), found.n, found.sign) == (pytest.approx(gain), None, 3, 0)


def test_welchs_interval_is_scipys_at_whole_degrees_of_freedom():
    for ours, theirs in (([59.7, 60.1, 60.9, 61.3], [58.7, 59.0, 59.3]), ([59.0, 62.0], [*range(50, 58), 71.0])):
        test, mean = stats.ttest_ind(ours, theirs, equal_var=False), np.mean(ours) - np.mean(theirs)
        low, high = stats.t.interval(0.95, math.floor(test.df), loc=mean, scale=mean / test.statistic)
        assert welch_interval(summarise(ours), summarise(theirs)) == f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
    assert welch_interval(summarise(ours), Summary(59.0, None, 1)) == "+1.50"


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_quantiles_are_scipys_for_every_number_of_degrees_of_freedom(level):
    df = np.arange(1, 1001)
    found = [t_quantile(level, int(each)) for each in df]
    np.testing.assert_allclose(found, stats.t.ppf((1 + level) / 2, df), rtol=3e-6)


@pytest.mark.parametrize("std", [0.5, 0.8, 1.7, 3.0])
def test_about_so_many_seeds_decide_four_of_five_times(std):
    def power(n: int) -> float:
        return stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, math.sqrt(n) / std)

    n = seeds_needed(Difference(-1.0, std, 3))
    assert power(n - 2) < 0.8 < power(n + 1)
    assert seeds_needed(Difference(2.0, 2 * std, 5)) == n


def runs(*ends: float, step: float | None = None, filters=None) -> list[FinishedRun]:
    return [FinishedRun(seed, (end - 5, end - 6, end), step, filters or {}) for seed, end in enumerate(ends)]


def beside_first(found: dict[str, list[FinishedRun]]) -> list[Group]:
    groups = {label: Group(label, runs) for label, runs in found.items()}
    return with_baselines(groups, lambda _: next(iter(found)))


def test_the_answer_says_who_is_ahead_since_when_and_what_is_too_few_to_tell():
    own = runs(60.0, 61.0, 62.0)
    first, second = answer(
        beside_first({"own": own, "ours": runs(63.0, 63.5, 65.2), "worse": runs(50, 52, 51.5)})
    ).splitlines()
    low, high = stats.t.interval(0.95, 2, loc=2.9, scale=stats.sem([3.0, 2.5, 3.2]))
    assert first == f"ours ends 2.90 points above own, [{low:+.2f}, {high:+.2f}], n = 3; ahead from epoch 1."
    assert "points below own" in second
    assert "behind from epoch 1" in second
    for ours, said in (
        (runs(63.0, 59.5, 64.0), "n = 3: too few to tell; about"),
        (runs(62.0, 59.05, 62.0), "too few to tell; not even 200 seeds would be enough"),
        (runs(61.0), "(one seed: no verdict)."),
    ):
        assert said in answer(beside_first({"own": own, "ours": ours}))
    late = [FinishedRun(seed, (60.0, 50.0, 64.0 + 1.1 * seed)) for seed in range(3)]
    assert "; ahead from epoch 3." in answer(beside_first({"own": own, "late": late}))  # and in the first, not since
    assert answer(beside_first({"own": runs(60.0, 62.0)})) == "own reaches 61.00 ± 1.41 % (2 seeds)."


def test_the_answer_names_the_time_that_freezing_saves():
    trained, frozen = Group("closed-form", runs(60.0, 61.0, 62.0, step=0.2)), runs(59.5, 60.5, 61.5, step=0.15)
    said = answer([trained, Group("closed-form, frozen", frozen, trained)])
    assert "0.50 points below closed-form, in 25% less time a step" in said
    assert "time" not in answer([trained, Group("other", frozen, trained)])


def test_the_table_pairs_seeds_names_the_papers_distance_and_leaves_out_what_is_empty():
    found = {
        "uniform": runs(60.0, 61.0, step=0.010),
        "ours": runs(63.0, 64.5, step=0.012),
        "apart": [FinishedRun(7, (1.0,))],
    }
    papers = {"uniform": Summary(59.0, 0.1, 3), "ours": Summary(62.0, None, 1)}
    alone = {label: Group(label, members, paper=papers.get(label)) for label, members in found.items()}
    groups = with_baselines(alone, {"uniform": "uniform", "ours": "uniform", "apart": "ours"}.__getitem__)
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
    counts = {'<path class="band': 2, '<p class="legend"': 1}
    assert {part: html.count(part) for part in counts} == counts
    captions = [f"layer {number}, {when}" for number in (1, 3, 4) for when in ("before", "after")]
    assert re.findall("<figcaption>(layer.*?)</figcaption>", html) == captions
    alone = groups_page("One seed", beside_first({"own": runs(60.0)}))
    assert '<path class="band' not in alone
    assert [OVER_SEEDS in curves for curves in (html, alone)] == [True, False]


def test_frozen_and_thawed_filters_of_one_initialisation_share_a_colour():
    def styles(*labels):
        return re.findall('<path class="(line.*?)"', curves_figure([Group(label, runs(60.0)) for label in labels], "c"))

    assert styles("a", "b, thawed", "b, frozen") == ["line s0", "line s1", "line dashed s1"]
    assert styles(*"abcdefg")[-2:] == ["line s5", "line dashed s0"]


def train(run_dir, init="uniform", lr=0.01):
    config = TrainConfig(epochs=2, batch_size=30, lr=lr)
    spec = RunSpec(model="convmixer_4_2_k5_p7", data="embedded", data_limit=60, init=init, train=config)
    execute(spec, run_dir)


def test_runs_are_grouped_by_what_was_trained_and_what_is_left_out_is_named(tmp_path):
    root = tmp_path / "own"
    for init in ("uniform", "closed-form"):
        train(root / init, init)
    for name in ("unfinished", "broken"):
        shutil.copytree(root / "uniform", root / name)
    (root / "unfinished" / "result.json").unlink()
    result = json.loads((root / "broken" / "result.json").read_text())
    (root / "broken" / "result.json").write_text(json.dumps(result | {"test_accuracy": 99.0}))
    out = CliRunner().invoke(app, ["report", str(root), "--out", str(tmp_path / "p.html")])
    assert out.exit_code == 0, out.output
    for said in (
        "<h1>convmixer_4_2_k5_p7 on 60 images of the embedded data, 2 epochs",
        "thawed closed-form imagenet-thawed",
        "left out: unfinished: not finished",
        "left out: run broken is damaged",
    ):
        assert said in (tmp_path / "p.html").read_text()
    assert "thawed closed-form" not in runs_page(root / "uniform")[0]
    train(root / "other", lr=0.02)
    html, _ = runs_page(root)
    assert '<p class="lead">2 settings, each with its own table.</p>' in html
    assert all(f"2 epochs, lr {lr}</h2>" in html for lr in (0.01, 0.02))
    assert html.count("<table>") == 2
    with pytest.raises(ConfigError):
        runs_page(tmp_path / "nowhere")
