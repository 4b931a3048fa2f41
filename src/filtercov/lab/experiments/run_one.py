"""`run_one`: do one run of a sweep. Claim it, check what is there, train, and say how it ended."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
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
from filtercov.lab.experiments.execute import execute
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Inputs, Run, RunSpec, read_inputs
from filtercov.lab.training import FitResult, Progress


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: done now or before, failed for good, or busy in other hands."""

    key: str
    status: Literal["done", "failed", "busy"]
    detail: str = ""
    seconds: float = 0.0  # spent training, by whoever did it


@dataclass(frozen=True)
class Machine:
    """How to run, which does not change what comes out."""

    data_root: Path | None = None
    download: bool = False
    device: str = "cpu"
    recovery_interval: int | None = None  # steps between checkpoints inside an epoch
    looked: int = 0  # when a sweep began: datasets are loaded once for all its runs, and again for the next sweep

    def looking_again(self) -> "Machine":
        """Return the same for another sweep of this process, which may find other data under the same name."""
        return replace(self, looked=time.monotonic_ns())


def run_one(
    run: Run,
    runs: Runs,
    *,
    machine: Machine | None = None,
    failures: Path | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Do a run unless it is done or in other hands.

    One that is damaged, or read something that has changed since, is reported, set aside and done again. Errors of the
    run make it failed; a full disk and a request to stop concern the whole sweep and are raised. Workers of one sweep
    share the directory `failures`, so that a run that failed in one worker is not tried by the others.
    """
    machine, result = machine or Machine(), None
    marker = failures / run.key if failures else None
    with suppress(DamagedRunError):
        if (result := _finished(run, runs, machine)) is not None:
            return Outcome(run.key, "done", seconds=result.seconds)
    with runs.claim(run) as mine:
        if not mine:
            return Outcome(run.key, "busy")
        if marker and marker.exists():  # read and written under the claim, or two workers would both try
            return Outcome(run.key, "failed", marker.read_text(encoding="utf-8"))
        try:
            result = _finished(run, runs, machine)
        except DamagedRunError as error:
            say(f"{error}; doing it again")
            runs.set_aside(run, str(error))
        if result is not None:
            return Outcome(run.key, "done", seconds=result.seconds)  # by another, a moment ago
        runs.note("began", run)
        outcome = _train(run, runs, machine, progress, say)
        runs.note({"done": "finished", "failed": "failed", "busy": "found busy"}[outcome.status], run)
        if marker and outcome.status == "failed":
            marker.write_text(outcome.detail, encoding="utf-8")
        return outcome


def _finished(run: Run, runs: Runs, machine: Machine) -> FitResult | None:
    """Return the result of a finished run that would read the same today; what is not there today does not count."""
    if not runs.directory(run).done:
        return None
    inputs: Inputs = {}
    with suppress(FiltercovError):  # the run it starts from may be damaged: whoever needs that one will say so
        inputs = read_inputs(run.spec, _content(*_wanted(run.spec), machine), init_root=runs.root)
    return runs.result(run, inputs=inputs)


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
        result = execute(
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
    return Outcome(run.key, "done", seconds=result.seconds)


def check_images(wanted: Iterable[Run], runs: Runs, machine: Machine) -> None:
    """Raise `DataError`, before anything is trained, for data that runs still need and that cannot be had."""
    unfinished = (run.spec for run in wanted if not runs.directory(run).done)
    for spec in {spec.data: spec for spec in unfinished}.values():
        dataset_of(spec, machine)


def dataset_of(spec: RunSpec, machine: Machine) -> Dataset:
    """The dataset of a specification, loaded once for all runs of this process that use it."""
    return _dataset(*_wanted(spec), machine)


def _wanted(spec: RunSpec) -> tuple[str, int | None, int | None, bool]:
    """Return which images a specification needs: name, limit, size, and whether with validation images."""
    return spec.data, spec.data_limit, spec.image_size, spec.evaluate == "validation"


@lru_cache(maxsize=64)
def _content(name: str, limit: int | None, image_size: int | None, validation: bool, machine: Machine) -> str | None:
    """Return the checksum of a dataset, None where it cannot be had; datasets may go, their checksums are kept."""
    try:
        return _dataset(name, limit, image_size, validation, machine).content_digest
    except DataError:
        return None


@lru_cache(maxsize=2)
def _dataset(name: str, limit: int | None, image_size: int | None, validation: bool, machine: Machine) -> Dataset:
    """Load a dataset once for all runs of this process that use it."""
    root, download = machine.data_root, machine.download
    return load(name, root=root, download=download, image_size=image_size, limit=limit, validation=validation)
