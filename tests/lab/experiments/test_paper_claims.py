"""Each claim has an experiment with the cells that decide it and no others, and the documentation lists them all."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import filtercov
from filtercov.lab.bench import describe_machine
from filtercov.lab.costs.listing import entries
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.builder import Options
from filtercov.lab.experiments.catalogue.grids import GRIDS
from filtercov.lab.experiments.execute import build_model, load_data
from filtercov.lab.experiments.paper_claims import CLAIMS, GRID, CellName, Claim
from filtercov.lab.experiments.paper_numbers import Place, paper_numbers
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.scales import SCALES, find_scale
from filtercov.lab.experiments.speed import measure_speeds, write_speeds
from filtercov.lab.report.results_claims import judge_claim
from filtercov.lab.reproduction import reproduce

DOCUMENT = Path(__file__).parents[3] / "docs" / "reproduce.md"

BY_NUMBER = {claim.number: claim for claim in CLAIMS}


def experiment(number: str, scale: str):
    return catalogue.experiment(BY_NUMBER[number].experiment, scale=scale)


def cells(number: str, scale: str) -> dict[CellName, tuple]:
    return {CellName(c.row, c.column, c.epochs): c.runs for c in experiment(number, scale).cells}


def test_there_are_eighteen_and_each_is_one_command():
    assert [claim.number for claim in CLAIMS] == [f"C{i}" for i in range(1, 19)]
    assert catalogue.names("claim-*") == tuple(claim.experiment for claim in CLAIMS)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.number)
def test_an_experiment_has_what_its_comparisons_need_and_nothing_else(claim, scale):
    needed = {name for comparison in claim.comparisons for name in comparison.cells}
    built = catalogue.experiment(claim.experiment, scale=scale)
    timed = {CellName(f"k{size}", "saved", 0) for size in (3, 9, 15)} if built.speed else set()
    assert set(cells(claim.number, scale)) | timed == needed
    assert [re.search(r"_k(\d+)_", name).group(1) for name in built.speed] == (["3", "9", "15"] if timed else [])
    assert built.shows == claim.says


def test_what_is_compared_differs_in_what_the_claim_is_about_alone():
    """Cells of one row share network, data, seeds and training; from where and how filters come is in the column."""
    for claim in CLAIMS:
        rows: dict[tuple[str, int], set] = {}
        for name, runs in cells(claim.number, "small").items():
            count = 3 if claim.number == "C15" else find_scale("small").claim_seeds
            assert [run.spec.train.seed for run in runs] == list(range(count))
            described = runs[0].spec
            rows.setdefault((name.row, name.epochs), set()).add(
                (described.model, described.data, described.data_limit, described.augment, described.train)
            )
            assert described.freeze_filters == name.column.startswith("frozen/")
        assert {len(kinds) for kinds in rows.values()} <= {1}, claim.number


def test_c3_claims_what_it_compares_and_no_more():
    """The paper's ConvNeXt with 2x2 patches has filters that gain more than the closed form."""
    says = BY_NUMBER["C3"].says
    built = cells("C3", "paper")
    assert {runs[0].spec.model for runs in built.values()} == {f"convmixer_256_8_k{k}_p2" for k in (7, 9, 15)}
    rivals: dict[str, set[str]] = {}
    for name in built:
        rivals.setdefault(name.row, set()).add(name.column.partition("/")[2])
    assert rivals["k9"] - {"closed-form"} == {"covariance", "covariance-eighth", "filters"}
    assert rivals["k7"] == rivals["k15"] == {"covariance", "closed-form"}
    assert says.startswith("In ConvMixers with 2x2 patches ")
    assert says.endswith("every transfer into 9x9 filters, and as covariance transfer into 7x7 and 15x15 ones.")
    for comparison in BY_NUMBER["C3"].comparisons:  # the paper's own numbers do not contradict it
        numbers = [
            weight * paper_numbers()[Place("cifar-convmixer-256-8-p2", *cell)].mean for weight, cell in comparison.terms
        ]
        assert sum(numbers) > -comparison.margin


def references(number: str, scale: str = "small") -> dict[str, tuple[str, str]]:
    """Column -> the network and data that it starts from."""
    found = {name.column: runs[0].reference for name, runs in cells(number, scale).items()}
    return {column: (run.spec.model, run.spec.data) for column, run in found.items() if run}


def test_references_are_those_that_the_claims_name():
    own = ("convmixer_64_8_k9_p2", "cifar10")
    assert references("C8")["frozen/covariance"] == own
    assert references("C8")["frozen/covariance-eighth"] == ("convmixer_32_8_k9_p2", "cifar10")
    assert references("C9") == {"frozen/covariance": own}
    assert cells("C9", "small")[CellName("depth 24", "frozen/covariance")][0].spec.model == "convmixer_64_24_k9_p2"
    assert references("C10")["frozen/covariance from p1"] == ("convmixer_32_8_k9_p1", "cifar10")
    assert references("C10")["frozen/covariance from p2"] == own
    assert references("C11") == {
        f"frozen/covariance from k{k}": (f"convmixer_64_8_k{k}_p2", "cifar10") for k in (3, 7, 15)
    }
    assert references("C18")["frozen/covariance from embedded"] == (own[0], "embedded")
    assert references("C18")["frozen/covariance from CIFAR-10"] == own
    for number, kind in (("C12", "kronecker-of"), ("C17", "covariances-of")):
        inits = {runs[0].spec.init.partition(":")[0] for runs in cells(number, "small").values()}
        assert inits == {"statistics-of", kind}


def test_references_train_ten_times_as_long_as_what_starts_from_them():
    for scale in ("paper", "small"):
        for claim in CLAIMS:
            for runs in cells(claim.number, scale).values():
                for run in runs:
                    assert run.reference is None or run.reference.spec.train.epochs == 10 * run.spec.train.epochs


def test_half_the_epochs_are_half_at_every_scale_that_judges():
    for scale in ("paper", "small"):
        epochs = {name.column: runs[0].spec.train.epochs for name, runs in cells("C13", scale).items()}
        assert 2 * epochs["thawed/closed-form"] == epochs["thawed/uniform"]


def test_the_nine_schedules_are_of_the_papers_grid_and_each_two_values_meet_once():
    grid = GRIDS["grid-cifar-p2"]
    numbers = [tuple(map(float, schedule.split(","))) for schedule in GRID]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert {(one[first], one[second]) for one in numbers} == {
            (a, b) for a in grid.axis(first, 3) for b in grid.axis(second, 3)
        }
    assert grid.schedule(*grid.centre) in GRID


@pytest.mark.parametrize("number", ["C13", "C17", "C18"])
def test_a_claim_runs_and_is_reported(tmp_path, number):
    claim = BY_NUMBER[number]
    table = reproduce(claim.experiment, scale="smoke", runs=tmp_path)
    assert table.record.missing == ()
    finding = judge_claim(claim, table.record)
    assert (finding.verdict, len(finding.compared)) == ("not run", len(claim.comparisons))  # smoke judges nothing


def test_covariances_alone_differ_from_statistics_by_their_means(tmp_path):
    reproduce("claim-c17", scale="smoke", runs=tmp_path)
    runs = {name.column: runs[0] for name, runs in cells("C17", "smoke").items()}
    drawn = {}
    for column, run in runs.items():
        model = build_model(run.spec, load_data(run.spec), init_root=tmp_path)
        drawn[column] = [layer.weight.detach().flatten(1).double() for layer in filtercov.depthwise_layers(model)]
    reference = filtercov.FilterStatistics.load(tmp_path / run.reference.key / "statistics.safetensors")
    for with_mean, without, layer in zip(*drawn.values(), reference, strict=True):
        assert abs(layer.mean).max() > 0.01
        assert (with_mean - without).numpy() == pytest.approx(np.tile(layer.mean, (len(without), 1)), abs=1e-6)


def test_timings_are_kept_turn_by_turn(tmp_path):
    timed = experiment("C14", "smoke")
    runs = Runs(tmp_path)
    timings = measure_speeds(timed.speed, batch_size=2, repeats=3)
    write_speeds(runs.speed_file(timed), timings)
    found = collect(timed, runs, Options())
    assert found.speeds == timings.steps
    assert found.versions["timed on"] == describe_machine()
    assert [len(speed.saved) for speed in found.speeds] == [3, 3, 3]
    assert all(share < 100 for speed in found.speeds for share in speed.saved)


def test_the_documentation_lists_every_claim_with_what_decides_it_and_its_runs():
    runs = {entry.name: entry.load("small").runs for entry in entries(["claim-*"])}

    def row(claim: Claim) -> str:
        bounds = Counter(0 - comparison.margin for comparison in claim.comparisons if not comparison.beside)
        needed = ", ".join(f"{count} above {bound:g}" for bound, count in sorted(bounds.items(), reverse=True))
        return f"| {claim.number} | {claim.says} | {needed} | {runs[claim.experiment]} |"

    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if re.match(r"\| C\d", line)] == [row(claim) for claim in CLAIMS]


def test_what_is_asked_for_besides_is_a_column_of_every_row_once():
    for claim in CLAIMS:
        built = catalogue.experiment(claim.experiment, scale="smoke", options=Options(also=("dog",)))
        names = [(cell.row, cell.column, cell.epochs) for cell in built.cells]
        assert len(names) == len(set(names))
        assert {row for row, _, _ in names} == {row for row, column, _ in names if column.endswith("/dog")}
