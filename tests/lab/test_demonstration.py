"""The demonstration: four runs that differ in their filters alone, and a page that decides nothing of one seed."""

import pytest

from filtercov.errors import RunError
from filtercov.lab import comparison
from filtercov.lab.demonstration import demo_table, demonstrate
from filtercov.lab.experiments.engines import Engine


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Of a network and data too small to show anything."""
    smaller = {"model": "convmixer_8_3_k5_p4", "data_limit": 520, "epochs": 2, "batch_size": 10}
    return demonstrate(tmp_path_factory.mktemp("demo"), engine=Engine(), **smaller)


def test_its_runs_are_those_of_before(monkeypatch, tmp_path):
    """Their names are the hash of all that decides how they end, so README's numbers stay those of this command."""
    asked = []

    def stop(runs, *_, **__):
        asked.extend(runs)
        raise RunError("enough")

    monkeypatch.setattr(comparison, "sweep", stop)
    with pytest.raises(RunError):
        demonstrate(tmp_path, seed=3)
    assert {run.key: (run.spec.init, run.spec.freeze_filters) for run in asked} == {
        "9cf60f20309800f7": ("uniform", True),
        "e8a4969f5f935884": ("closed-form", True),
        "d8b64dd3e1683827": ("uniform", False),
        "7cad767790df03d2": ("closed-form", False),
    }


def test_one_seed_settles_nothing_and_is_compared_with_uniform_in_the_same_state(result):
    head, uniform, closed_form, difference = demo_table(result.groups)
    assert head == ["filters", "frozen", "thawed"]
    for column in (1, 2):
        gain = float(closed_form[column]) - float(uniform[column])
        assert float(difference[column].split()[0]) == pytest.approx(gain, abs=0.011)
        assert difference[column].endswith(" (one seed)")
    assert "(one seed: no verdict)" in result.answer


def test_its_page_has_curves_filters_that_trained_and_covariances(result):
    page = result.page()
    assert page.count("<svg") == 1
    assert page.count("<img") == 2 * 3 * 2 + 3 * 3  # filters before and after, and covariances
    assert all(page.count(group.label) >= 2 for group in result.groups)  # legend and chart
    for group in result.groups[2:]:
        assert all((before != after).any() for before, after in group.runs[0].filters.values())
