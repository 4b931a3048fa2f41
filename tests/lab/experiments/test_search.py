"""Searches: the grid tries every schedule, TPE as many, both on shared runs and studies."""

from collections import Counter

import pytest

from filtercov.errors import ExperimentError, StorageError
from filtercov.lab.experiments.catalogue.grids import GRIDS
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.search import _stream, search_grid, search_tpe, space
from tests.lab.experiments.children import run_children, search_by_tpe
from tests.lab.experiments.tiny import read_journal


@pytest.fixture
def where():
    return space("grid-imagenet-frozen", scale="smoke")


def test_the_grid_is_centred_on_the_papers_setting():
    grid = GRIDS["grid-cifar-p2"]
    assert grid.axis(0) == pytest.approx([0.02, 0.04, 0.08, 0.16])
    assert grid.axis(1, 1) == [0.37]
    assert space("grid-cifar-p2", scale="paper").budget == 64
    assert space("grid-cifar-p2", scale="small").budget == 27


def test_the_grid_tries_each_schedule_once_and_ranks_them(where, tmp_path):
    trials = search_grid(where, tmp_path)
    assert [trial.schedule for trial in trials] == ["0.15,0.5,0.25"]
    assert search_grid(where, tmp_path) == trials
    assert len(read_journal(Runs(tmp_path))) == 2  # began and finished, the first time


def test_tpe_spends_its_budget_once_however_often_and_wherever_it_is_called(where, tmp_path):
    pytest.importorskip("optuna")
    said = []
    first = search_tpe(where, tmp_path, trials=2, say=said.append)
    assert len(first) == 2
    assert first[0].accuracy >= first[1].accuracy
    assert search_tpe(where, tmp_path, trials=2, seed=1, say=said.append) == first
    assert len(said) == 2
    more = search_tpe(where, tmp_path, trials=3, seed=2, say=said.append)  # another machine adds one
    assert len(more) == 3
    assert set(first) < set(more)
    for trial in more:
        sigma0, v, a = (float(number) for number in trial.schedule.split(","))
        assert 0.075 <= sigma0 <= 0.3
        assert 0.25 <= v <= 1.0
        assert 0.125 <= a <= 0.5


def test_two_searches_at_once_work_on_one_study(where, tmp_path):
    pytest.importorskip("optuna")
    run_children(search_by_tpe, tmp_path, count=2)
    found = search_tpe(where, tmp_path, trials=4, say=lambda _: None)
    assert 4 <= len(found) <= 5
    assert len({trial.schedule for trial in found}) == len(found)
    journal = read_journal(Runs(tmp_path))
    finished = Counter(entry["run"] for entry in journal if entry["event"] == "finished")
    assert len(finished) == len(found)
    assert set(finished.values()) == {1}
    assert len({entry["process"] for entry in journal}) == 2


def test_seeds_of_any_size_have_proposals_of_their_own_and_small_ones_those_they_had(where, tmp_path):
    pytest.importorskip("optuna")
    assert [_stream(seed, trial) for seed, trial in ((0, 7), (3, 11), (42_949, 0))] == [7, 300_011, 4_294_900_000]
    large = [_stream(seed, trial) for seed in (42_950, 42_950 + 2**27, 2**32 - 1) for trial in (0, 1)]
    assert len(set(large)) == len(large)
    assert max(large) < 2**32
    assert len(search_tpe(where, tmp_path, trials=1, seed=2**32 - 1, say=lambda _: None)) == 1


def test_a_study_that_cannot_be_kept_is_refused_with_what_to_do(where, tmp_path):
    pytest.importorskip("optuna")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Not a directory"):
        search_tpe(where, tmp_path / "file", trials=1)


def test_only_the_papers_searches_have_a_space():
    with pytest.raises(ExperimentError, match="grid-convnext-sawtooth"):
        space("width-transfer", scale="smoke")
