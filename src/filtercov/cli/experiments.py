"""`filtercov report` and `keep`: what runs show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from filtercov.cli import options
from filtercov.cli.say import say
from filtercov.errors import ConfigError
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.evidence import Evidence
from filtercov.lab.experiments.keeping import keep as keep_runs
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.sweep import recorded
from filtercov.lab.report.evidence import read_view, write_evidence
from filtercov.lab.report.own_runs import runs_page
from filtercov.lab.report.page import write_output
from filtercov.lab.report.results import write_reports
from filtercov.printable import counted


def report(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Runs, or evidence that filtercov keep made of them.")] = Path(
        options.RUNS
    ),
    out: Annotated[Path, typer.Option(help="The page to write; .md, .csv and .tex go beside it.")] = Path(
        "report.html"
    ),
    only: Annotated[
        str, typer.Option(help="Experiments to report, by name or pattern; of evidence these alone.")
    ] = "*",
) -> None:
    """Write what the runs of a directory show as a page, Markdown, CSV and LaTeX; what is missing is named.

    Of evidence, which has no weights: runs at the paper's size, its claims and the controls on one page, and a page for
    each experiment.
    """
    wanted = set(catalogue.names(only))
    kept = Evidence(directory) if Evidence.is_at(directory) else Runs(directory)
    if isinstance(kept, Evidence) and only == "*":
        view = read_view(directory)
        records, written = view.records, write_evidence(view, out, command=context.obj)
        for text in view.damaged:
            say(text, err=True)
    else:
        found = kept.experiments() if isinstance(kept, Evidence) else recorded(kept)
        asked = [(experiment, chosen) for experiment, chosen in found if experiment.name in wanted]
        if not found:  # runs of filtercov train, which belong to no experiment
            html, left_out = runs_page(directory, command=context.obj)
            say(f"wrote {write_output(out, html)}")
            for words in left_out:
                say(f"left out: {words}", err=True)
            return
        if not asked:
            there = ", ".join(dict.fromkeys(experiment.name for experiment, _ in found))
            raise ConfigError(f"--only: needed one of the experiments in {directory}, {there}, got {only!r}")
        records = tuple(collect(experiment, kept, chosen) for experiment, chosen in asked)
        written = write_reports(records, out, command=context.obj)
        if isinstance(kept, Runs):
            of_experiments = {run.key for experiment, _ in found for run in experiment.runs}
            others = [
                run.parent.name for run in directory.glob("*/config.json") if run.parent.name not in of_experiments
            ]
            if others:
                say(f"left out, of no experiment here: {', '.join(sorted(others))}", err=True)
    for path in written:
        say(f"wrote {path}")
    for record in records:
        if record.missing:
            are = "is" if len(record.missing) == 1 else "are"
            say(f"{record.name}, scale {record.scale}: {counted(len(record.missing), 'run')} {are} missing")


def keep(
    directories: Annotated[list[Path], typer.Argument(help="Directories of finished runs, or of one run each.")],
    to: Annotated[Path, typer.Option(help="The directory of evidence, made if it is not there.")] = Path("evidence"),
    note: Annotated[str, typer.Option(help="Kept with each run.")] = "",
) -> None:
    """Put the configuration, metrics and result of finished runs into a directory of evidence, without weights.

    Every run is checked first, and if one is damaged nothing is written. What is there stays as it is, but for timings
    of fewer repeats. Data and files are called by their last name, and known by their checksums.
    """
    kept = keep_runs(directories, to, note=note)
    for sentence in kept.differing:
        say(sentence)
    if kept.unfinished:
        say(f"left out, not finished: {', '.join(kept.unfinished)}")
    if kept.timed:
        say(f"new timings of {', '.join(kept.timed)}")
    say(f"{counted(len(kept.new), 'run')} new in {to}, {len(kept.there)} there already; {kept.size:,} bytes in all")
