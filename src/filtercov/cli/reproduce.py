"""`filtercov reproduce`: the paper's tables from the command line. Its list and its help do not wait for torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from filtercov.cli import options
from filtercov.cli.say import say, say_table
from filtercov.errors import ExperimentError, TrainingInterrupted
from filtercov.lab.costs.listing import entries, hours_and_minutes
from filtercov.lab.costs.machine_speed import MachineSpeed, keep_speed, kept_speed
from filtercov.printable import counted

UNMEASURED = "-"


def reproduce(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, or patterns such as 'cifar-*'.")] = None,
    scale: options.Scale = options.SCALE,
    runs: options.Runs = options.RUNS,
    data: options.Data = options.CIFAR,
    imagenet: options.Imagenet = None,
    also: options.Also = None,
    seeds: options.Seeds = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: options.Workers = 1,
    ray_address: Annotated[str | None, typer.Option(help="A Ray cluster; one is started here if not given.")] = None,
    cpus_per_run: Annotated[float, typer.Option(callback=options.within(0), help="CPUs of each run on Ray.")] = 1.0,
    gpus_per_run: Annotated[float, typer.Option(callback=options.within(0), help="GPUs of each run on Ray.")] = 0.0,
    device: options.Device = "cpu",
    data_root: options.DataRoot = None,
    download: options.Download = False,
    out: Annotated[Path | None, typer.Option(help="Also write the report there, as .html.")] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the experiments at --scale instead of running any.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="With --list: time some training steps here, and keep the result.")
    ] = False,
) -> None:
    """Run experiments of the paper and print their tables beside the paper's numbers. Run it again to continue."""
    if list_ or measure:
        if also or seeds:
            raise ExperimentError("--list shows each scale as it is; filtercov plan counts with --also and --seeds")
        _list(names or [], scale, measure_here() if measure else kept_speed())
        return
    if engine != "ray" and (ray_address is not None or cpus_per_run != 1.0 or gpus_per_run):
        raise ExperimentError(
            f"--ray-address, --cpus-per-run and --gpus-per-run are for --engine ray, got them with {engine}"
        )
    if not names:
        raise ExperimentError("which experiment? filtercov reproduce --list shows them; '*' means all")
    from filtercov.lab import reproduction as lab  # which imports torch
    from filtercov.lab.experiments.attempt import Machine
    from filtercov.lab.experiments.builder import Options
    from filtercov.lab.experiments.ray_engine import Cluster
    from filtercov.lab.experiments.sweep import Engine
    from filtercov.lab.report.results import check_place, write_reports
    from filtercov.lab.report.results_claims import claim_lines
    from filtercov.lab.report.results_ranking import TOLD_APART, rankings
    from filtercov.lab.report.results_text import notes_once, speed_lines, title_line

    if out is not None:
        check_place(out)
    options.tell_of_data(scale, data)
    with interruptible():
        done = lab.reproduce_all(
            names,
            scale=scale,
            options=Options(cifar=data, imagenet=imagenet, also=lab.located(also or ()), seeds=seeds),
            runs=runs,
            engine=Engine(engine, workers, Cluster(ray_address, cpus_per_run, gpus_per_run)),
            machine=Machine(data_root=data_root, download=download, device=device),
            say=say,
        )
    own, shared = notes_once([table.record for table in done.tables])
    for table, notes in zip(done.tables, own, strict=True):
        say(f"\n{title_line(table.record)}")
        say_table(table.shown)
        ranked = rankings(table.record)
        for ranking in ranked:
            say(f"\n{ranking}")
            say_table(ranking.table())
        if ranked:
            say(f"\n{TOLD_APART}")
        for line in (*speed_lines(table.record), *claim_lines(table.record), *notes):
            say(line)
    if shared:
        say("\n" + "\n".join(shared))
    if out is not None:
        written = write_reports([table.record for table in done.tables], out, command=context.obj)
        say(f"wrote {', '.join(map(str, written))}")
    done.refuse_failures()


def measure_here() -> MachineSpeed:
    """Time some training steps, and keep the result for the commands that follow."""
    from filtercov.lab.experiments.speed import measure_machine

    say("measuring the speed of training here…", err=True)
    speed = measure_machine()
    keep_speed(speed)
    return speed


def described(speed: MachineSpeed) -> str:
    """Say what times were computed from."""
    return (
        f"{speed.images_per_second:g} images/s, measured here on {speed.measured} with "
        f"{counted(speed.threads, 'thread')}"
    )


@contextmanager
def interruptible() -> Iterator[None]:
    """Say after Ctrl-C that nothing is lost."""
    try:
        yield
    except (TrainingInterrupted, KeyboardInterrupt):
        message = "stopped; what is done is kept, run the same command again to continue"
        raise TrainingInterrupted(message) from None


def _list(patterns: list[str], scale: str, speed: MachineSpeed | None) -> None:
    rows = [("name", "in the paper", "runs", "h:mm", "what it shows")]
    for entry in entries(patterns or ["*"]):
        load = entry.load(scale)
        time = hours_and_minutes(load.seconds(speed.images_per_second)) if speed else UNMEASURED
        rows.append((entry.name, entry.place or "-", f"{load.runs:,}", time, entry.shows))
    say_table(rows, right=(2, 3))
    if speed:
        say(f"Scale {scale}. Hours and minutes are for one worker at {described(speed)}; --measure measures again.")
    else:
        say(f"Scale {scale}. Times are not measured here yet; filtercov reproduce --list --measure takes seconds to.")
