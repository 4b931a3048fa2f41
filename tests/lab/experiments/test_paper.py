"""Each claim has an experiment with the cells that decide it and no others; references answer as is known of them."""

import re
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.covariance import gaussian_covariance
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.execute import build_model, load_data
from filtercov.lab.experiments.paper import (
    CLAIMS,
    CellName,
    chance_of_rising,
    judge_references,
    paper_numbers,
    static_component,
)
from filtercov.lab.experiments.scales import SCALES, find_scale
from filtercov.lab.report.results_claims import judge_claim
from filtercov.lab.reproduction import reproduce

PAPERS = "cifar-convmixer-256-8-p2"
BY_NUMBER = {claim.number: claim for claim in CLAIMS}


def cells(number: str, scale: str) -> dict[CellName, tuple]:
    built = catalogue.experiment(BY_NUMBER[number].experiment, scale=scale)
    return {CellName(c.row, c.column, c.epochs): c.runs for c in built.cells}


@pytest.mark.parametrize("scale", SCALES)
def test_each_of_eighteen_is_an_experiment_of_what_its_comparisons_need_and_nothing_else(scale):
    assert [name for name in catalogue.PLACES if name.startswith("claim")] == [f"claim-c{i}" for i in range(1, 19)]
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

    means = {place[1:]: number.mean for place, number in paper_numbers().items() if place[0] == PAPERS}
    frozen, thawed = (
        np.mean([means[k, f"{state}/covariance", 20] - means[k, f"{state}/uniform", 20] for k in ("k7", "k9", "k15")])
        for state in ("frozen", "thawed")
    )
    assert differences("C2") == [round(frozen - thawed, 2)]
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
        drawn[column] = [layer.weight.detach().flatten(1).double() for layer in fc.depthwise_layers(model)]
    reference = fc.FilterStatistics.load(tmp_path / run.reference.key / "statistics.safetensors")
    for with_mean, without, layer in zip(*drawn.values(), reference, strict=True):
        assert abs(layer.mean).max() > 0.01
        assert (with_mean - without).numpy() == pytest.approx(np.tile(layer.mean, (len(without), 1)), abs=1e-6)


# --- Claims of references ---


def network(*, closed_form: bool) -> fc.FilterStatistics:
    """Statistics of four layers, one too small to fit, drawn from the closed form or independently."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(400, 400, k, groups=400) for k in (7, 3, 7, 7)]
    model = nn.Sequential(*layers)
    if closed_form:
        fc.init_(model, lambda layer: 0.5 + 2.0 * layer.depth, seed=0)
    return fc.FilterStatistics.from_model(model)


def test_filters_of_a_growing_closed_form_are_found_negative_and_growing():
    small = fc.FilterStatistics.from_model(nn.Sequential(nn.Conv2d(16, 16, 3, groups=16)))  # which say nothing
    networks = {"drawn": network(closed_form=True), "small": small, "plain": network(closed_form=False)}
    drawn, plain = judge_references(networks)
    assert drawn == ("drawn", 3, 3, 3, 3, pytest.approx(1 / 6))
    assert (plain.network, plain.layers, plain.negative) == ("plain", 3, 0)


@pytest.mark.parametrize("beta", [-2.0, 0.0, 0.5])
def test_the_static_component_is_that_of_the_covariance(beta):
    sigma, k = 1.2, 5
    z = np.exp(-((np.arange(k) - 2) ** 2) / (2 * sigma))
    static = np.outer(np.outer(z, z).ravel(), np.outer(z, z).ravel()) / 2
    closed_form = gaussian_covariance(k, sigma)
    covariance = 3 * (closed_form + (1 + beta) * static)
    found = static_component(covariance, (k, k), sigma)
    assert found == pytest.approx(3 * beta * np.trace(closed_form) / np.trace(covariance), abs=1e-9)


def test_the_chance_of_rising_is_counted_over_all_orders():
    orders = list(permutations(range(4)))
    rising = [sum(a < b for i, a in enumerate(order) for b in order[i + 1 :]) for order in orders]
    for pairs in range(7):
        assert chance_of_rising(4, pairs) == pytest.approx(sum(n >= pairs for n in rising) / len(orders))
