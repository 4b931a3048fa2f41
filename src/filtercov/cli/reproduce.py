"""`filtercov reproduce`, `plan`, `search` and `report`: the paper's experiments from the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from filtercov.errors import ExperimentError, SweepError, TrainingInterrupted
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.attempt import Machine, Outcome
from filtercov.lab.experiments.builder import Options
from filtercov.lab.experiments.graph import Experiment, Run, in_order
from filtercov.lab.experiments.initialisations import find
from filtercov.lab.experiments.mirror import is_address
from filtercov.lab.experiments.planning import IMAGES_PER_SECOND_PER_CORE, YARDSTICK, expected_seconds
from filtercov.lab.experiments.planning import plan as make_plan
from filtercov.lab.experiments.ray_engine import Cluster
from filtercov.lab.experiments.records import collect, speed_file
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.search import search_grid, search_tpe, space
from filtercov.lab.experiments.speed import measure_speeds, write_speeds
from filtercov.lab.experiments.sweep import Engine, local_copy, record, recorded, sweep
from filtercov.lab.report.results import write_reports
from filtercov.lab.report.results_text import to_terminal
from filtercov.lab.report.results_words import show_seeds
from filtercov.lab.training.progress import duration

Names = Annotated[list[str] | None, typer.Argument(help="Experiments, or patterns such as 'cifar-*'; see --list.")]
ScaleOption = Annotated[str, typer.Option(help="paper, small (hours on 2 cores) or smoke (seconds).")]
RunsOption = Annotated[str, typer.Option("--runs", help="Where runs are kept and looked for; with Ray also s3://….")]
DataOption = Annotated[str, typer.Option("--data", help="CIFAR-10: cifar10 or folder:PATH.")]
ImagenetOption = Annotated[
    str | None, typer.Option(help="ImageNet: folder:PATH of train/CLASS/*.jpg, val/CLASS/*.jpg.")
]
AlsoOption = Annotated[list[str] | None, typer.Option(help="A further initialisation to compare; may be repeated.")]
SeedsOption = Annotated[int | None, typer.Option(help="Seeds per cell, in place of the scale's.")]
DataRootOption = Annotated[Path | None, typer.Option(help="Where data archives are looked for.")]
EngineOption = Annotated[str, typer.Option(help="local or ray.")]
WorkersOption = Annotated[int, typer.Option(help="Processes of the local engine, threads divided among them.")]


def reproduce(
    names: Names = None,
    scale: ScaleOption = "small",
    runs: RunsOption = "runs",
    data: DataOption = "cifar10",
    imagenet: ImagenetOption = None,
    also: AlsoOption = None,
    seeds: SeedsOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
    ray_address: Annotated[str | None, typer.Option(help="A Ray cluster; by default one is started here.")] = None,
    cpus_per_run: Annotated[float, typer.Option(help="Of each run on Ray.")] = 1.0,
    gpus_per_run: Annotated[float, typer.Option(help="Of each run on Ray.")] = 0.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    data_root: DataRootOption = None,
    download: Annotated[bool, typer.Option(help="Download CIFAR-10 if it is not there.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the report there, as .html.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments instead of running any.")] = False,
) -> None:
    """Run experiments of the paper and print their tables beside the paper's numbers. Run it again to continue."""
    options = Options(cifar=data, imagenet=imagenet, also=_located(also or ()), seeds=seeds)
    if list_:
        _print_list(scale, options)
        return
    if not names:
        raise ExperimentError("which experiment? filtercov reproduce --list shows them; '*' means all")
    chosen = catalogue.experiments(names, scale=scale, options=options)
    wanted = in_order([run for experiment in chosen for run in experiment.runs])
    if chosen[0].reduced:
        typer.echo(f"Scale {scale}. Smaller than in the paper: {chosen[0].reduced}.")
    machine = Machine(data_root=data_root, download=download, device=device)
    cluster = Cluster(ray_address, cpus_per_run, gpus_per_run)
    speed = _here()
    if not is_address(runs):
        for experiment in chosen:
            record(experiment, Runs(runs), options)
    with _interruptible():
        outcomes = sweep(
            wanted,
            runs,
            engine=Engine(engine, workers, cluster),  # type: ignore[arg-type]  # sweep refuses other names
            machine=machine,
            expected=lambda run: expected_seconds(run.spec, speed),
        )
    kept = Runs(local_copy(wanted, runs))
    _measure_speeds(chosen, kept, device)
    records = [collect(experiment, kept, options) for experiment in chosen]
    for found in records:
        typer.echo(f"\n{to_terminal(found)}")
    if out is not None:
        typer.echo(f"wrote {', '.join(str(path) for path in write_reports(records, out))}")
    _refuse_failures(outcomes, wanted)


def plan(
    names: Names = None,
    scale: ScaleOption = "paper",
    images_per_second: Annotated[
        float | None, typer.Option(help=f"Training throughput of {YARDSTICK} on one worker or GPU, as measured.")
    ] = None,
    gpus: Annotated[int, typer.Option(help="Workers or GPUs of that throughput.")] = 1,
    runs: RunsOption = "runs",
    data: DataOption = "cifar10",
    imagenet: ImagenetOption = None,
    also: AlsoOption = None,
    seeds: SeedsOption = None,
) -> None:
    """Print how many runs, epochs, operations, bytes and hours experiments take, without running any."""
    options = Options(cifar=data, imagenet=imagenet or _placeholder(), also=_located(also or ()), seeds=seeds)
    chosen = catalogue.experiments(names or ["*"], scale=scale, options=options)
    speed = images_per_second or _here()
    if speed <= 0 or gpus < 1:
        raise ExperimentError(f"a plan needs a throughput above 0 and at least one worker, got {speed} and {gpus}")
    kept = Runs(runs)
    rows = [(experiment.name, experiment.runs) for experiment in chosen]
    if len(chosen) > 1:
        rows.append(("all, shared runs once", in_order([run for _, group in rows for run in group])))
    typer.echo(f"{'experiment':34} {'runs':>5} {'done':>5} {'epochs':>7} {'FLOPs':>8} {'storage':>9} {'time':>12}")
    for name, group in rows:
        finished = [run.key for run in group if not is_address(runs) and kept.finished(run)]
        cost = make_plan(group, images_per_second=speed, finished=finished)
        typer.echo(
            f"{name:34} {cost.runs:>5} {cost.done:>5} {cost.epochs:>7} {cost.flops:>8.1e} "
            f"{cost.bytes_kept / 1e6:>6,.0f} MB {_hours(cost.hours(gpus)):>12}"
        )
    typer.echo(
        f"Time for {gpus} worker{'s' if gpus > 1 else ''} training {YARDSTICK} at {speed:g} images/s each; other "
        "networks by their multiply-adds and outputs. Storage is that of finished runs."
    )


def search(
    name: Annotated[str, typer.Argument(help="One of the grid searches, such as grid-cifar-p2.")],
    method: Annotated[str, typer.Option(help="grid or tpe (Optuna).")] = "grid",
    trials: Annotated[int | None, typer.Option(help="Of TPE, by default as many as the grid has points.")] = None,
    scale: ScaleOption = "small",
    runs: RunsOption = "runs",
    data: DataOption = "cifar10",
    imagenet: ImagenetOption = None,
    workers: WorkersOption = 1,
    study: Annotated[Path | None, typer.Option(help="TPE's journal, shared by the machines of a study.")] = None,
    seed: Annotated[int, typer.Option(help="Of TPE's proposals; give each machine its own.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    data_root: DataRootOption = None,
    best: Annotated[int, typer.Option(help="How many schedules to print.")] = 10,
) -> None:
    """Search for the schedule (σ0, v, a): the paper's grid, or TPE over the same space for the same budget.

    Accuracies are of validation images, a tenth of the training images where the data has no val/ beside test/: measure
    the schedule you choose on the test images, with filtercov train.
    """
    where = space(name, scale=scale, options=Options(cifar=data, imagenet=imagenet))
    machine = Machine(data_root=data_root, device=device)
    with _interruptible():
        if method == "grid":
            found = search_grid(where, Path(runs), engine=Engine(workers=workers), machine=machine)
        elif method == "tpe":
            found = search_tpe(
                where, Path(runs), trials=trials, seed=seed, study=study, machine=machine, say=typer.echo
            )
        else:
            raise ExperimentError(f"unknown method {method!r}; choose grid or tpe")
    typer.echo(
        f"{len(found)} schedules tried, {show_seeds([1])}: which is best is open. The highest validation accuracies, "
        "not to be reported as test accuracies:"
    )
    for trial in found[:best]:
        typer.echo(f"{trial.accuracy:6.2f} %  {trial.schedule}")


def report(
    runs: Annotated[Path, typer.Argument(help="The directory of runs that filtercov reproduce filled.")],
    out: Annotated[Path, typer.Option(help="The page to write; .md, .csv and .tex go beside it.")] = Path(
        "report.html"
    ),
    only: Annotated[str, typer.Option(help="Experiments to report, by name or pattern.")] = "*",
) -> None:
    """Write what the runs of a directory show as a page, Markdown, CSV and LaTeX; what is missing is named."""
    kept = Runs(runs)
    wanted = set(catalogue.names(only))
    asked = [(experiment, options) for experiment, options in recorded(kept) if experiment.name in wanted]
    if not asked:
        raise ExperimentError(f"no experiment was run in {runs}; filtercov reproduce NAME --runs {runs} runs one")
    records = [collect(experiment, kept, options) for experiment, options in asked]
    for path in write_reports(records, out):
        typer.echo(f"wrote {path}")
    for found in records:
        if found.missing:
            typer.echo(f"{found.name}, scale {found.scale}: {len(found.missing)} runs are missing")


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except (TrainingInterrupted, KeyboardInterrupt):
        message = "stopped; what is done is kept, run the same command again to continue"
        raise TrainingInterrupted(message) from None


def _print_list(scale: str, options: Options) -> None:
    known = Options(options.cifar, options.imagenet or _placeholder(), options.also, options.seeds)
    speed = _here()
    typer.echo(f"{'name':34} {'runs':>5} {'time here':>12}  what it shows (scale {scale})")
    for name in catalogue.names():
        experiment = catalogue.experiment(name, scale=scale, options=known)
        cost = make_plan(experiment.runs, images_per_second=speed)
        typer.echo(f"{name:34} {cost.runs:>5} {_hours(cost.hours(1)):>12}  {experiment.shows}")


def _measure_speeds(chosen: Sequence[Experiment], runs: Runs, device: str) -> None:
    for experiment in chosen:
        path = speed_file(experiment, runs)
        if experiment.speed and not path.exists():
            write_speeds(path, measure_speeds(experiment.speed, device=device))


def _refuse_failures(outcomes: dict[str, Outcome], wanted: Sequence[Run]) -> None:
    names = {run.key: str(run) for run in wanted}
    failed = [f"{names[key]}: {outcome.detail}" for key, outcome in outcomes.items() if outcome.status == "failed"]
    if failed:
        raise SweepError(f"{len(failed)} of {len(outcomes)} runs failed: {'; '.join(failed)}")


def _located(inits: Sequence[str]) -> tuple[str, ...]:
    """Return initialisations with the files they name made absolute: runs look for files under their own directory."""
    located = []
    for init in inits:
        kind, _, file = init.partition(":")
        located.append(f"{kind}:{Path(file).absolute()}" if find(kind).argument == "FILE" else init)
    return tuple(located)


def _here() -> float:
    return IMAGES_PER_SECOND_PER_CORE * (os.cpu_count() or 1)


def _placeholder() -> str:
    """Return a name for ImageNet that is good enough to count with."""
    return "folder:imagenet"


def _hours(hours: float) -> str:
    return duration(3600 * hours) if hours < 100 else f"{hours:,.0f} hours"
