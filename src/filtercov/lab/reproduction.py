"""`reproduce`: run one of the paper's experiments and return its table, with one's own initialisations as columns.

    filtercov.lab.experiments.register("mine", mine)
    table = reproduce("kronecker", scale="smoke", also=["kaiming"])
    print(table)               # as `filtercov reproduce` prints it; a notebook shows it as HTML
    table[0]["mean"]           # a dictionary per cell; pandas.DataFrame(table) has them as rows
    table.write("report.html")

What is done is kept under `runs`: the same call continues where it was interrupted, and trains nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from filtercov.errors import ConfigError
from filtercov.lab.costs import matching
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.catalogue import Options
from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.execute import Machine, Outcome, check_images
from filtercov.lab.experiments.initialisations import located
from filtercov.lab.experiments.records import ExperimentRecord, collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import in_order
from filtercov.lab.experiments.scales import find_scale
from filtercov.lab.experiments.sweep import refuse_failures, sweep
from filtercov.lab.experiments.timings import REPEATS, measure_speeds
from filtercov.lab.report import page
from filtercov.lab.report.results import write_reports
from filtercov.lab.report.results_table import notes, printed, to_rows, to_terminal
from filtercov.lab.training.distributed import usable_device
from filtercov.printable import counted


class ResultTable(list[dict[str, Any]]):
    """What came out of an experiment: a dictionary per cell, with the same names as the CSV's columns.

    Numbers are not rounded; None stands where something is missing or unknown.
    """

    def __init__(self, record: ExperimentRecord) -> None:
        super().__init__(to_rows(record))
        self.record = record

    def write(self, out: Path | str) -> list[Path]:
        """Write the report as a page, and beside it as Markdown and CSV; return the paths."""
        return write_reports([self.record], Path(out))

    def __repr__(self) -> str:
        return to_terminal(self.record)

    def _repr_html_(self) -> str:
        parts = [*printed(self.record), *notes(self.record)]
        return "".join(map(page.part, parts))


def reproduce(
    name: str,
    *,
    scale: str = "small",
    also: Sequence[str] = (),
    seeds: int | None = None,
    data: str = "cifar10",
    imagenet: str | None = None,
    runs: Path | str = "runs",
    workers: int = 1,
    device: str = "cpu",
    data_root: Path | None = None,
    download: bool = False,
) -> ResultTable:
    """Run an experiment of the paper, as `filtercov reproduce NAME` does, and return its table.

    `also` names initialisations to add as columns; those that were registered are columns of every table.
    """
    chosen = matching([name], list(catalogue.PLACES))
    if len(chosen) > 1:
        raise ConfigError(f"reproduce: needed one experiment, {name!r} matches {', '.join(chosen)}")
    (record,), outcomes = reproduce_all(
        chosen,
        scale=scale,
        options=Options(cifar=data, imagenet=imagenet, also=tuple(also), seeds=seeds),
        runs=str(runs),
        engine=Engine(workers=workers),
        machine=Machine(data_root=data_root, download=download, device=device),
    )
    refuse_failures(outcomes)
    return ResultTable(record)


def reproduce_all(
    patterns: Sequence[str],
    *,
    scale: str,
    options: Options,
    runs: str,
    engine: Engine,
    machine: Machine,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[list[ExperimentRecord], Mapping[str, Outcome]]:
    """Do every run of the experiments that match; return what they show, and how each run ended."""
    options = replace(options, also=tuple(map(located, options.also)))
    if engine.name == "local":  # Ray's nodes may have other devices
        machine = replace(machine, device=str(usable_device(machine.device)))
    chosen = catalogue.experiments(patterns, scale=scale, options=options)
    wanted = in_order([run for experiment in chosen for run in experiment.runs])
    names = chosen[0].name if len(chosen) == 1 else counted(len(chosen), "experiment")
    shown = {cell.init for experiment in chosen for cell in experiment.cells}
    if lost := [name for name in options.also if name not in shown]:
        raise ConfigError(f"{names} has no column for {', '.join(lost)}; choose a table that compares initialisations")
    say(f"{names}, scale {scale}: {counted(len(wanted), 'run')}")
    kept, repeats = Runs(runs), REPEATS if find_scale(scale).judges else 2
    if engine.name == "local":
        check_images(wanted, kept, machine)
    for experiment in chosen:
        kept.record(experiment)
    outcomes = sweep(wanted, kept.root, engine=engine, machine=machine)
    for experiment in (each for each in chosen if each.speed):  # timed in this process, whatever engine trains
        device = str(usable_device(machine.device))
        if not kept.timings(experiment.name, scale).enough(device, repeats):  # else here, and as often, before
            measured = measure_speeds(experiment.speed, repeats=repeats, device=device)
            measured.write(kept.speed_file(experiment.name, scale))
    return [collect(experiment, kept) for experiment in chosen], outcomes
