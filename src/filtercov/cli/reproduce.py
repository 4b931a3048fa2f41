"""`filtercov reproduce`: the paper's tables from the command line. Its list and its help do not wait for torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from filtercov.cli import options
from filtercov.cli.options import say, say_all, say_table
from filtercov.errors import ConfigError, TrainingInterrupted
from filtercov.lab.costs import YARDSTICK, entries


def reproduce(
    context: Context,
    names: Annotated[list[str] | None, Argument(help="Experiments, or patterns such as 'cifar-*'.")] = None,
    scale: Annotated[str, Option(help="paper, small (hours on 2 cores) or smoke (seconds).")] = "small",
    runs: options.Runs = options.RUNS,
    data: Annotated[str, Option(help="CIFAR-10: cifar10, or folder:PATH of a directory or a zip.")] = "cifar10",
    imagenet: Annotated[str | None, Option(help="ImageNet: folder:PATH of train/CLASS/*.jpg, val/CLASS/*.jpg.")] = None,
    also: Annotated[
        list[str] | None,
        Option(help="A further initialisation to compare, such as kaiming or stats:FILE; may be repeated."),
    ] = None,
    seeds: Annotated[int | None, Option(min=1, help="Seeds per cell, in place of the scale's.")] = None,
    engine: options.EngineName = "local",
    workers: options.Workers = 1,
    ray_address: options.RayAddress = None,
    cpus_per_run: options.CpusPerRun = 1.0,
    gpus_per_run: options.GpusPerRun = 0.0,
    device: options.Device = "cpu",
    data_root: options.DataRoot = None,
    download: options.Download = False,
    out: Annotated[Path | None, Option(help="Also write the report there, as .html.")] = None,
    list_: Annotated[bool, Option("--list", help="List the experiments at --scale instead of running any.")] = False,
    measure: Annotated[
        bool, Option("--measure", help="With --list: time some training steps here, and say how long each takes.")
    ] = False,
) -> None:
    """Run experiments of the paper and print their tables beside the paper's numbers. Run it again to continue."""
    if list_ or measure:
        _list(names or ["*"], scale, measure=measure)
        return
    if not names:
        raise ConfigError("which experiment? filtercov reproduce --list shows them; '*' means all")
    from filtercov.lab.experiments.catalogue import Options  # which imports torch, as do the others
    from filtercov.lab.experiments.engines import Engine
    from filtercov.lab.experiments.execute import Machine
    from filtercov.lab.experiments.sweep import refuse_failures
    from filtercov.lab.report.results import check_place, write_reports
    from filtercov.lab.report.results_table import notes, printed
    from filtercov.lab.reproduction import reproduce_all

    if out is not None:
        check_place(out)
    with interruptible():
        records, outcomes = reproduce_all(
            names,
            scale=scale,
            options=Options(cifar=data, imagenet=imagenet, also=tuple(also or ()), seeds=seeds),
            runs=runs,
            engine=Engine(engine, workers, ray_address, cpus_per_run, gpus_per_run),
            machine=Machine(data_root=data_root, download=download, device=device),
            say=say,
        )
    for record in records:
        say_all(["", *printed(record)])
    shared = dict.fromkeys(note for record in records for note in notes(record))
    say_all(["", *shared])
    if out is not None:
        written = write_reports(records, out, command=context.obj)
        say(f"wrote {', '.join(map(str, written))}")
    refuse_failures(outcomes)


@contextmanager
def interruptible() -> Iterator[None]:
    """Say after Ctrl-C that nothing is lost."""
    try:
        yield
    except (TrainingInterrupted, KeyboardInterrupt):
        message = "stopped; what is done is kept, run the same command again to continue"
        raise TrainingInterrupted(message) from None


def _list(patterns: list[str], scale: str, *, measure: bool) -> None:
    found, speed = entries(patterns, scale=scale), 0.0
    times = ["-"] * len(found)
    if measure:
        from filtercov.lab.experiments.timings import images_per_second  # which imports torch, as does the other
        from filtercov.lab.training.progress import duration

        say("measuring the speed of training here…", err=True)
        speed = images_per_second()
        times = [duration(entry.seconds(speed)) for entry in found]
    rows = [("name", "in the paper", "runs", "epochs", "time", "what it shows")]
    for entry, time in zip(found, times, strict=True):
        rows.append((entry.name, entry.place or "-", f"{entry.runs:,}", f"{entry.epochs:,}", time, entry.shows))
    say_table(rows, right=(2, 3, 4))
    petaflops = sum(entry.petaflops for entry in found)
    megabytes = sum(entry.megabytes for entry in found)
    say(f"Scale {scale}: {petaflops:,.3g} PFLOP of training, {megabytes:,.0f} MB of finished runs.")
    if speed:
        say(f"Times are for one worker at the {speed:.3g} images/s of {YARDSTICK} here.")
    else:
        say("Times are not measured; filtercov reproduce --list --measure takes seconds to.")
