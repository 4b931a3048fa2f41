import dataclasses
import io
import re

import pytest

from filtercov.lab.experiments.demo import demo_specs, run_demo
from filtercov.lab.report.demo_page import demo_page, demo_rows
from filtercov.lab.training import TrainConfig


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The demonstration's four runs, of a network and data too small to show anything."""
    small = [
        dataclasses.replace(
            spec, model="convmixer_8_3_k5_p4", data_limit=520, train=TrainConfig(epochs=2, batch_size=10)
        )
        for spec in demo_specs()
    ]
    stream = io.StringIO()
    runs = run_demo(tmp_path_factory.mktemp("demo"), specs=small, workers=1, stream=stream)
    assert "4 of 4 done" in stream.getvalue().splitlines()[-1]
    return runs


def test_the_four_runs_differ_in_initialisation_and_freezing_alone():
    specs = demo_specs(seed=3)
    assert {(spec.init, spec.freeze_filters) for spec in specs} == {
        (init, frozen) for init in ("uniform", "closed-form") for frozen in (True, False)
    }
    same = [dataclasses.replace(spec, init="uniform", schedule=None, freeze_filters=False) for spec in specs]
    assert len(set(same)) == 1
    assert same[0].train.seed == 3


def test_frozen_filters_are_shown_unchanged_and_thawed_ones_changed(runs):
    for run in runs:
        for layer in run.layers:
            assert (layer.before == layer.after).all() == run.frozen
            assert layer.before.shape == (8, 5, 5)


def test_one_seed_settles_nothing_and_its_page_says_so(runs):
    head, uniform, closed_form, difference = demo_rows(runs)
    assert head == ["filters", "frozen", "thawed"]
    for column in (1, 2):
        gain = float(closed_form[column]) - float(uniform[column])
        assert float(difference[column].split()[0]) == pytest.approx(gain, abs=0.011)
        assert difference[column].endswith(" (one seed)")
    page = demo_page(runs)
    assert page.count("<svg") == 1
    assert page.count("<img") == 2 * 3 * 2 + 3 * 3  # filters before and after, and covariances
    for run in runs:
        assert f"<td>{run.result.test_accuracy:.2f}</td>" in page
        assert page.count(run.label) >= 2  # legend and chart
    assert not {"open", "holds", "contradicts"} & set(re.findall(r"<td>(.*?)</td>", page))
    assert "one seed each: no interval, no verdict" in page
