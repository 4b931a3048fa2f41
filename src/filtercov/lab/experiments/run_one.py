"""`run_one`: do one run of a sweep. Claim it, check what is there, train, and say how it ended."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from filtercov.errors import (
    CheckpointError,
    DamagedRunError,
    DataError,
    FiltercovError,
    RunBusyError,
    RunError,
    StorageError,
    TrainingInterrupted,
)
from filtercov.lab.data import Dataset, load
from filtercov.lab.experiments.execute import execute, load_data
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, RunSpec, read_inputs
from filtercov.lab.training import Progress

_load = lru_cache(maxsize=4)(load)
forget_datasets = _load.cache_clear  # another sweep of this process may find other images under the same name


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: done now or before, failed for good, or busy in other hands."""

    key: str
    status: Literal["done", "failed", "busy"]
    detail: str = ""


@dataclass(frozen=True)
class Machine:
    """How to run, which does not change what comes out."""

    data_root: Path | None = None
    download: bool = False
    device: str = "cpu"
    recovery_interval: int | None = None  # steps between checkpoints inside an epoch


def run_one(
    run: Run,
    runs: Runs,
    *,
    machine: Machine | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Do a run unless it is done or in other hands.

    One that is damaged, or read something that has changed since, is reported, set aside and done again. Errors of the
    run make it failed; a full disk and a request to stop concern the whole sweep and are raised.
    """
    machine = machine or Machine()
    with runs.claim(run) as mine:
        if not mine:
            return Outcome(run.key, "busy")
        try:
            if _finished(run, runs, machine):
                return Outcome(run.key, "done")
        except DamagedRunError as error:
            say(f"{error}; doing it again")
            runs.set_aside(run, str(error))
        runs.note("began", run)
        outcome = _train(run, runs, machine, progress, say)
        runs.note("finished" if outcome.status == "done" else outcome.status, run)
        return outcome


def _finished(run: Run, runs: Runs, machine: Machine) -> bool:
    """Whether a run is finished and would read the same today; inputs that are gone do not count."""
    if not runs.directory(run).done:
        return False
    content = None
    with suppress(DataError):
        content = dataset_of(run.spec, machine).content_digest
    inputs = {}
    with suppress(FiltercovError):  # the run it starts from may be damaged: whoever needs that one will say so
        inputs = read_inputs(run.spec, content, init_root=runs.root)
    return runs.result(run, inputs=inputs) is not None


def _train(
    run: Run,
    runs: Runs,
    machine: Machine,
    progress: Progress | None,
    say: Callable[[str], None],
    *,
    again: bool = False,
) -> Outcome:
    try:
        execute(
            run.spec,
            runs.directory(run).path,
            data=dataset_of(run.spec, machine),
            device=machine.device,
            init_root=runs.root,
            progress=progress,
            recovery_interval=machine.recovery_interval,
        )
    except (StorageError, TrainingInterrupted):
        raise
    except RunBusyError:
        return Outcome(run.key, "busy")
    except (RunError, CheckpointError) as error:
        # Of the run's own directory: what an earlier attempt left there cannot be continued.
        if again:
            return Outcome(run.key, "failed", str(error))
        say(f"run {run.key} cannot be continued ({error}); doing it again from the start")
        runs.set_aside(run, str(error))
        return _train(run, runs, machine, progress, say, again=True)
    except (FiltercovError, RuntimeError, ValueError, MemoryError) as error:
        return Outcome(run.key, "failed", f"{type(error).__name__}: {error}")
    return Outcome(run.key, "done")


def check_images(wanted: Iterable[Run], runs: Runs, machine: Machine) -> None:
    """Raise `DataError`, before anything is trained, for data that runs still need and that cannot be had."""
    unfinished = (run.spec for run in wanted if not runs.directory(run).done)
    for spec in {spec.data: spec for spec in unfinished}.values():
        dataset_of(spec, machine)


def dataset_of(spec: RunSpec, machine: Machine) -> Dataset:
    """The dataset of a specification, loaded once for all runs of a sweep that use it."""
    return load_data(spec, root=machine.data_root, download=machine.download, reader=_load)
