"""Every experiment of the catalogue, at the smallest scale, from its graph to its report, by every engine."""

import io

import pytest

from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.builder import Options
from filtercov.lab.experiments.graph import in_order
from filtercov.lab.experiments.local import run_in_processes
from filtercov.lab.experiments.ray_engine import Cluster
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.speed import measure_speeds, write_speeds
from filtercov.lab.experiments.sweep import Engine, record, recorded, sweep
from filtercov.lab.report.results import results_page, write_reports
from filtercov.lab.report.results_text import to_csv, to_terminal


def all_runs(names=("*",)):
    return in_order(
        [run for experiment in catalogue.experiments(list(names), scale="smoke") for run in experiment.runs]
    )


def kind_of(run):
    return run.spec.init.partition(":")[0]


def one_of_each(runs):
    """A run of each initialisation, with those that they start from."""
    return in_order({kind_of(run): run for run in runs}.values())


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """All runs of all experiments, done by two worker processes."""
    runs = Runs(tmp_path_factory.mktemp("smoke"))
    experiments = catalogue.experiments(["*"], scale="smoke")
    failed = []
    run_in_processes(
        all_runs(),
        runs,
        workers=2,
        emit=lambda event: failed.append(event) if getattr(event, "status", "") == "failed" else None,
    )
    assert failed == []
    for experiment in experiments:
        record(experiment, runs, Options())
        if experiment.speed:
            write_speeds(runs.speed_file(experiment), measure_speeds(experiment.speed, batch_size=2, repeats=1))
    return runs


@pytest.mark.parametrize("name", catalogue.names())
def test_smoke_ends_in_a_complete_report(smoke, name):
    found = collect(catalogue.experiment(name, scale="smoke"), smoke, Options())
    assert found.missing == ()
    assert found.damaged == ()
    assert all(0 <= accuracy <= 100 for cell in found.cells for accuracy in cell.accuracies)
    html = results_page(found)
    assert found.title in to_terminal(found)
    assert f"filtercov reproduce {name} --scale smoke" in html
    assert len(to_csv(found).splitlines()) == 1 + len(found.cells)
    assert html.count("<svg") + html.count("image/svg+xml") >= max(1, len(found.drawings))


def test_the_report_of_all_lists_each_experiment_that_was_asked_for(smoke, tmp_path):
    asked = recorded(smoke)
    assert {experiment.name for experiment, _ in asked} == set(catalogue.names())
    chosen = [pair for pair in asked if pair[0].name in ("kronecker", "variance-schedule")]
    records = [collect(experiment, smoke, options) for experiment, options in chosen]
    written = write_reports(records, tmp_path / "report.html")
    index = written[0].read_text()
    assert all(f'href="report-{record.name}-smoke.html"' in index for record in records)
    assert (tmp_path / "report-kronecker-smoke.tex").exists()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray")
@pytest.mark.parametrize("name", ["local", "ray"])
def test_every_engine_does_the_same_runs(smoke, tmp_path, name):
    if name == "ray":
        pytest.importorskip("ray")
    engine = Engine(name, cluster=Cluster(local_cpus=2))
    several = all_runs(["kronecker", "claim-c17", "cifar-convnext-atto-p1", "imagenet-10-convnext-atto"])
    runs = one_of_each(several)
    kinds = {kind_of(run) for run in runs}
    assert kinds == {"uniform", "closed-form", "filters-of", "statistics-of", "covariances-of", "kronecker-of"}
    assert {run.spec.freeze_filters for run in runs} == {True, False}
    outcomes = sweep(runs, tmp_path, engine=engine, stream=io.StringIO())
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    here = Runs(tmp_path)
    for run in runs:
        assert here.result(run).weights_sha256 == smoke.result(run).weights_sha256
