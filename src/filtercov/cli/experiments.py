"""`filtercov compare`, `report`, `keep` and `demo`: trained networks side by side, and what runs show."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from filtercov.cli import options
from filtercov.cli.options import say, say_table
from filtercov.cli.reproduce import interruptible
from filtercov.lab.comparison import compare as run_comparison
from filtercov.lab.demonstration import demo_table, demonstrate
from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.evidence import Evidence
from filtercov.lab.experiments.evidence import keep as keep_runs
from filtercov.lab.experiments.execute import Machine
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.report.evidence import read_view, write_evidence
from filtercov.lab.report.groups import runs_page
from filtercov.lab.report.page import write_output
from filtercov.lab.report.results import check_place, write_reports
from filtercov.printable import counted


def compare(
    context: typer.Context,
    model: options.Network,
    data: options.Images = "embedded",
    init: Annotated[
        str, typer.Option(help="Initialisations with commas between; default is the network's own. See train --init.")
    ] = "default,closed-form",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, with seeds from 0.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 10,
    freeze_filters: Annotated[str, typer.Option(help="no, yes or both: keep the filters as they start.")] = "no",
    batch_size: options.BatchSize = None,
    lr: options.LearningRate = None,
    data_limit: options.DataLimit = None,
    img_size: options.ImageSize = None,
    augment: options.Augment = None,
    runs: options.Runs = options.RUNS,
    workers: options.Workers = 1,
    engine: options.EngineName = "local",
    ray_address: options.RayAddress = None,
    cpus_per_run: options.CpusPerRun = 1.0,
    gpus_per_run: options.GpusPerRun = 0.0,
    device: options.Device = "cpu",
    data_root: options.DataRoot = None,
    download: options.Download = False,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("compare.html"),
) -> None:
    """Train a network from several initialisations, and say which ends higher, by how much, and how sure that is."""
    check_place(out)
    with interruptible():
        result = run_comparison(
            model,
            data,
            inits=[name.strip() for name in init.split(",") if name.strip()],
            seeds=seeds,
            epochs=epochs,
            freeze_filters=freeze_filters,
            run_dir=runs,
            batch_size=batch_size,
            lr=lr,
            augment=augment,
            image_size=img_size,
            data_limit=data_limit,
            engine=Engine(engine, workers, ray_address, cpus_per_run, gpus_per_run),
            machine=Machine(data_root=data_root, download=download, device=device),
            command=context.obj,
        )
    say(result.answer)
    say_table(result.table, right=range(1, len(result.table[0])))
    say(result.note)
    say(f"wrote {result.write(out)}")


def report(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Runs, or evidence that filtercov keep made of them.")] = Path(
        options.RUNS
    ),
    out: Annotated[Path, typer.Option(help="The page to write; .md and .csv go beside it.")] = Path("report.html"),
) -> None:
    """Write what the runs of a directory show as a page, Markdown and CSV; what is missing is named.

    Of evidence, which has no weights: runs at the paper's size, its claims and the controls on one page, and a page for
    each experiment.
    """
    runs, records = Runs(directory), []
    if Evidence.is_at(directory):
        view = read_view(directory)
        records, left_out = list(view.records), list(view.damaged)
        written = write_evidence(view, out, command=context.obj)
    elif asked := runs.experiments():
        records = [collect(experiment, runs) for experiment in asked]
        written = write_reports(records, out, command=context.obj)
        known = {run.key for experiment in asked for run in experiment.runs}
        others = {path.parent.name for path in directory.glob("*/config.json")} - known
        left_out = [f"{name}, of no experiment here" for name in sorted(others)]
    else:  # runs of filtercov train and compare, which belong to no experiment
        html, left_out = runs_page(directory, command=context.obj)
        written = [write_output(out, html)]
    for path in written:
        say(f"wrote {path}")
    for words in left_out:
        say(f"left out: {words}", err=True)
    for record in records:
        if record.missing:
            say(f"{record.name}, scale {record.scale}: missing {counted(len(record.missing), 'run')}")


def keep(
    directories: Annotated[list[Path], typer.Argument(help="Directories of finished runs.")],
    to: Annotated[Path, typer.Option(help="The directory of evidence, made if it is not there.")] = Path("evidence"),
) -> None:
    """Put the configuration, metrics and result of finished runs into a directory of evidence, without weights.

    Every run is checked first, and if one is damaged nothing is written. What is there stays as it is, but for timings
    of fewer repeats. Data and files are called by their last name, and known by their checksums.
    """
    kept = keep_runs(directories, to)
    if kept.unfinished:
        say(f"left out, not finished: {', '.join(kept.unfinished)}")
    say(f"{counted(len(kept.new), 'run')} new in {to}, {len(kept.there)} there already")


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Where the runs and the page go.")] = Path("demo"),
    seed: options.Seed = 0,
) -> None:
    """Train a small network four times on embedded data: uniform and closed-form filters, frozen and thawed."""
    started = time.monotonic()
    with interruptible():
        result = demonstrate(out, seed=seed, command=context.obj)
    path = result.write(out / "index.html")
    say("Test accuracy, %. One seed: no interval, no verdict.\n")
    say_table(demo_table(result.groups), right=(1, 2))
    say(f"\n{counted(round(time.monotonic() - started), 'second')}; open {path} for curves, filters and covariances")
