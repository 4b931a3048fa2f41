"""`filtercov plan`, `search`, `report` and `keep`: what experiments take, choosing schedules, what runs show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from filtercov.cli import options
from filtercov.cli.reproduce import described, interruptible, measure_here
from filtercov.cli.say import say, say_table
from filtercov.errors import ExperimentError
from filtercov.lab.costs.listing import hours_and_minutes
from filtercov.lab.costs.machine_speed import kept_speed
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.attempt import Machine
from filtercov.lab.experiments.builder import Options
from filtercov.lab.experiments.evidence import Evidence
from filtercov.lab.experiments.graph import in_order
from filtercov.lab.experiments.keeping import keep as keep_runs
from filtercov.lab.experiments.mirror import is_address
from filtercov.lab.experiments.planning import YARDSTICK
from filtercov.lab.experiments.planning import plan as make_plan
from filtercov.lab.experiments.records import collect
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.search import search_grid, search_tpe, space
from filtercov.lab.experiments.sweep import Engine, recorded
from filtercov.lab.report.evidence_page import write_evidence
from filtercov.lab.report.evidence_view import read_view
from filtercov.lab.report.results import write_reports
from filtercov.lab.report.results_words import show_seeds
from filtercov.lab.reproduction import located
from filtercov.printable import counted


def plan(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, or patterns such as 'cifar-*'.")] = None,
    scale: options.Scale = options.SCALE,
    images_per_second: Annotated[
        float | None,
        typer.Option(
            callback=options.within(1e-6),
            help=f"Training throughput of {YARDSTICK} on one worker or GPU; measured here if not given.",
        ),
    ] = None,
    gpus: Annotated[int, typer.Option(callback=options.within(1), help="Workers or GPUs of that throughput.")] = 1,
    runs: options.Runs = options.RUNS,
    data: options.Data = options.CIFAR,
    imagenet: options.Imagenet = None,
    also: options.Also = None,
    seeds: options.Seeds = None,
) -> None:
    """Print how many runs, epochs, operations, bytes and hours experiments take, without running any."""
    # ImageNet need not be there to be counted.
    asked = Options(cifar=data, imagenet=imagenet or "folder:imagenet", also=located(also or ()), seeds=seeds)
    chosen = catalogue.experiments(names or ["*"], scale=scale, options=asked)
    if images_per_second is None:
        here = kept_speed() or measure_here()
        images_per_second, source = here.images_per_second, described(here)
    else:
        source = f"{images_per_second:g} images/s"
    kept = Runs(runs)
    groups = [(experiment.name, experiment.runs) for experiment in chosen]
    if len(chosen) > 1:
        groups.append(("all, shared runs once", in_order([run for _, group in groups for run in group])))
    rows: list[tuple[str, ...]] = [("experiment", "runs", "done", "epochs", "FLOPs", "storage", "h:mm")]
    for name, group in groups:
        finished = [run.key for run in group if not is_address(runs) and kept.finished(run)]
        cost = make_plan(group, images_per_second=images_per_second, finished=finished)
        rows.append(
            (
                name,
                *(f"{count:,}" for count in (cost.runs, cost.done, cost.epochs)),
                f"{cost.flops:.1e}",
                f"{cost.bytes_kept / 1e6:,.0f} MB",
                hours_and_minutes(cost.seconds / gpus),
            )
        )
    say_table(rows, right=range(1, 7))
    say(
        f"Scale {scale}. Hours and minutes are for {counted(gpus, 'worker')} training {YARDSTICK} at {source}; other "
        "networks by their multiply-adds and outputs. Storage is that of finished runs."
    )


def search(
    name: Annotated[str, typer.Argument(help="One of the grid searches, such as grid-cifar-p2.")],
    method: Annotated[str, typer.Option(help="grid or tpe (Optuna).")] = "grid",
    trials: Annotated[
        int | None,
        typer.Option(callback=options.within(1), help="Schedules TPE tries; as many as the grid has if not given."),
    ] = None,
    scale: options.Scale = options.SCALE,
    runs: options.Runs = options.RUNS,
    data: options.Data = options.CIFAR,
    imagenet: options.Imagenet = None,
    workers: options.Workers = 1,
    study: Annotated[Path | None, typer.Option(help="TPE's journal, shared by the machines of a study.")] = None,
    seed: Annotated[
        int,
        typer.Option(callback=options.within(0, 2**32 - 1), help="Seed of TPE's proposals; give each machine its own."),
    ] = 0,
    device: options.Device = "cpu",
    data_root: options.DataRoot = None,
    download: options.Download = False,
    best: Annotated[int, typer.Option(callback=options.within(1), help="How many schedules to print.")] = 10,
) -> None:
    """Search for the schedule (σ0, v, a): the paper's grid, or TPE over the same space for the same budget.

    Accuracies are of validation images, a tenth of the training images where the data has no val/ beside test/: measure
    the schedule you choose on the test images, with filtercov train.
    """
    _check_method(method, {"--trials": trials, "--study": study}, workers)
    options.tell_of_data(scale, data)
    where = space(name, scale=scale, options=Options(cifar=data, imagenet=imagenet))
    root = options.runs_directory(runs, "filtercov search")
    machine = Machine(data_root=data_root, download=download, device=device)
    with interruptible():
        if method == "grid":
            found = search_grid(where, root, engine=Engine(workers=workers), machine=machine)
        else:
            found = search_tpe(where, root, trials=trials, seed=seed, study=study, machine=machine, say=say)
    say(
        f"{counted(len(found), 'schedule')} tried, {show_seeds([1])}: which is best is open. The highest validation "
        "accuracies, not to be reported as test accuracies:"
    )
    for trial in found[:best]:
        say(f"{trial.accuracy:6.2f} %  {trial.schedule}")


def _check_method(method: str, of_tpe: dict[str, object], workers: int) -> None:
    """Refuse a method that is none, and what the other one alone would heed."""
    if method not in ("grid", "tpe"):
        raise ExperimentError(f"unknown method {method!r}; choose grid or tpe")
    given = [flag for flag, value in of_tpe.items() if value is not None]
    if method == "grid" and given:
        raise ExperimentError(f"{given[0]} is for --method tpe, got it with grid, which tries every schedule once")
    if method == "tpe" and workers > 1:
        raise ExperimentError(
            "--workers is for --method grid, got it with tpe, which tries one schedule after another; start the "
            "command twice, with --seed of its own each, to work on a study with two processes"
        )


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

    Of evidence, which has no weights: the paper's row at its own size, its claims and the ranking on one page, and a
    page for each experiment.
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
        if not found:
            raise ExperimentError(
                f"no experiment was run in {directory}; filtercov reproduce NAME --runs {directory} runs one"
            )
        if not asked:
            there = ", ".join(dict.fromkeys(experiment.name for experiment, _ in found))
            raise ExperimentError(f"--only: needed one of the experiments in {directory}, {there}, got {only!r}")
        records = tuple(collect(experiment, kept, chosen) for experiment, chosen in asked)
        written = write_reports(records, out, command=context.obj)
    for path in written:
        say(f"wrote {path}")
    for record in records:
        if record.missing:
            are = "is" if len(record.missing) == 1 else "are"
            say(f"{record.name}, scale {record.scale}: {counted(len(record.missing), 'run')} {are} missing")


def keep(
    directories: Annotated[list[Path], typer.Argument(help="Directories of finished runs, or of one run each.")],
    to: Annotated[Path, typer.Option(help="The directory of evidence, made if it is not there.")] = Path("evidence"),
    note: Annotated[
        str,
        typer.Option(help="Kept with each run; needed by one whose weights an earlier version wrote, to say so."),
    ] = "",
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
