"""Every kind of run at the smallest scale, from the catalogue to its report: each initialisation and kind of chart."""

from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.catalogue import Options
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import in_order
from filtercov.lab.experiments.sweep import sweep
from filtercov.lab.report.results import write_reports
from tests.lab.experiments.tiny import timings

REPORTED = ("kronecker", "grid-cifar-p2", "variance-schedule", "example-filters")  # one of each chart, and drawings


def one_of_each(runs):
    """A run of each initialisation, of the cheaper network, and of each kind of network by each recipe."""
    runs = sorted(runs, key=lambda run: run.spec.model.startswith("convmixer"))
    inits = {run.spec.init.partition(":")[0]: run for run in runs}
    networks = {(run.spec.model.partition("_")[0], run.spec.train.clip_grad): run for run in runs}
    return in_order([*inits.values(), *networks.values()])


def test_every_kind_of_run_is_done_and_reports_are_complete_and_list_what_was_asked_for(tmp_path):
    runs, options = Runs(tmp_path / "runs"), Options(seeds=1)
    every = [run for one in catalogue.experiments(["*"], scale="smoke", options=options) for run in one.runs]
    reported = catalogue.experiments(REPORTED, scale="smoke", options=options)
    outcomes = sweep([*one_of_each(every), *(run for one in reported for run in one.runs)], runs.root)
    assert {outcome.status for outcome in outcomes.values()} == {"done"}
    for one in [*reported, *catalogue.experiments(["frozen-speed", "ranking"], scale="smoke", options=options)]:
        runs.record(one)
        if one.speed:
            timings(one).write(runs.speed_file(one.name, one.scale))
    records = [collect(one, runs) for one in runs.experiments()]
    assert {found.name for found in records} == {*REPORTED, "frozen-speed", "ranking"}
    assert {found.name for found in records if found.missing} == {"ranking"}
    assert all(found.damaged == () for found in records)
    assert all(0 <= accuracy <= 100 for found in records for cell in found.cells for accuracy in cell.by_seed.values())
    index = write_reports(records, tmp_path / "report.html")[0].read_text()
    for found in records:
        page = (tmp_path / f"report-{found.name}-smoke.html").read_text()
        assert f'href="report-{found.name}-smoke.html"' in index
        assert f"filtercov reproduce {found.name} --scale smoke --seeds 1" in page
        assert page.count("<svg") + page.count("<img") >= max(found.missing == (), len(found.drawings))
