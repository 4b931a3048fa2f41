"""Each claim has an experiment with the cells that decide it and no others, and the documentation lists them all."""

import re

import numpy as np
import pytest

import filtercov
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.execute import build_model, load_data
from filtercov.lab.experiments.paper import CLAIMS, CellName, Place, paper_numbers
from filtercov.lab.experiments.scales import SCALES, find_scale
from filtercov.lab.report.results_claims import judge_claim
from filtercov.lab.reproduction import reproduce

BY_NUMBER = {claim.number: claim for claim in CLAIMS}


def cells(number: str, scale: str) -> dict[CellName, tuple]:
    built = catalogue.experiment(BY_NUMBER[number].experiment, scale=scale)
    return {CellName(c.row, c.column, c.epochs): c.runs for c in built.cells}


@pytest.mark.parametrize("scale", SCALES)
def test_each_of_eighteen_is_an_experiment_of_what_its_comparisons_need_and_nothing_else(scale):
    assert catalogue.names("claim-*") == tuple(f"claim-c{i}" for i in range(1, 19))
    for claim in CLAIMS:
        needed = {name for comparison in claim.comparisons for name in comparison.cells}
        built = catalogue.experiment(claim.experiment, scale=scale)
        timed = [re.search(r"_k(\d+)_", name).group(1) for name in built.speed]
        assert timed == (["3", "9", "15"] if claim.number == "C14" else [])
        assert set(cells(claim.number, scale)) | {CellName(f"k{size}", "saved", 0) for size in timed} == needed
        assert built.shows == claim.says


def test_what_is_compared_differs_in_what_the_claim_is_about_alone():
    """Cells of one row share network, data, seeds and training; from where and how filters come is in the column."""
    for claim in CLAIMS:
        rows: dict[tuple[str, int], set] = {}
        for name, runs in cells(claim.number, "small").items():
            count = 3 if claim.number == "C15" else find_scale("small").claim_seeds
            assert [run.spec.train.seed for run in runs] == list(range(count))
            one = runs[0].spec
            rows.setdefault((name.row, name.epochs), set()).add((one.model, one.data, one.data_limit, one.train))
            assert one.freeze_filters == name.column.startswith("frozen/")
        assert {len(kinds) for kinds in rows.values()} <= {1}, claim.number


def test_the_papers_own_difference_is_that_of_its_tables():
    def differences(number: str) -> list[float | None]:
        claim = BY_NUMBER[number]
        found = [claim.paper_difference(comparison) for comparison in claim.comparisons]
        return [None if value is None else round(value, 2) for value in found]

    def mean(column: str, row: str) -> float:
        return paper_numbers()[Place("cifar-convmixer-256-8-p2", row, column, 20)].mean

    gains = [
        mean(f"{filters}/covariance", f"k{k}") - mean(f"{filters}/uniform", f"k{k}")
        for filters in ("frozen", "thawed")
        for k in (7, 9, 15)
    ]
    assert differences("C2") == [round(np.mean(gains[:3]) - np.mean(gains[3:]), 2)]
    assert differences("C8")[0] == round(mean("frozen/covariance-eighth", "k9") - mean("frozen/covariance", "k9"), 2)
    assert differences("C16") == [7.18, 8.17, None]  # 79.36 - 72.18, 81.13 - 72.96, and no sawtooth
    assert differences("C15") == [None]


def test_c17_runs_and_its_covariances_differ_from_statistics_by_their_means(tmp_path):
    record = reproduce("claim-c17", scale="smoke", runs=tmp_path).record
    assert record.missing == ()
    assert judge_claim(BY_NUMBER["C17"], record).verdict == "not run"  # smoke judges nothing
    runs = {name.column: runs[0] for name, runs in cells("C17", "smoke").items()}
    drawn = {}
    for column in ("frozen/covariance", "frozen/covariance, no means"):
        run = runs[column]
        model = build_model(run.spec, load_data(run.spec), init_root=tmp_path)
        drawn[column] = [layer.weight.detach().flatten(1).double() for layer in filtercov.depthwise_layers(model)]
    reference = filtercov.FilterStatistics.load(tmp_path / run.reference.key / "statistics.safetensors")
    for with_mean, without, layer in zip(*drawn.values(), reference, strict=True):
        assert abs(layer.mean).max() > 0.01
        assert (with_mean - without).numpy() == pytest.approx(np.tile(layer.mean, (len(without), 1)), abs=1e-6)
