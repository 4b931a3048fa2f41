"""Where the runs of a sweep are done: in this process, in several, or as Ray tasks.

All three have the same methods. `start` gives a run to workers that are `free`. `wait` returns how runs ended, after at
most so many seconds; those whose worker died are `busy`: another continues them from their last checkpoint. `close`
leaves no process behind.
"""

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from filtercov.errors import ConfigError, FiltercovError, RunError, TrainingInterrupted
from filtercov.lab.experiments.execute import Machine, Outcome, run_one
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.training.config import choice
from filtercov.lab.training.progress import Progress, Snapshot, StopRequest

DEATHS_PER_WORKER = 5  # beyond which something other than bad luck kills them
RAY_RETRIES = 10  # of a run whose Ray worker died


class Step(NamedTuple):
    """The share of a run that is trained, from 0 to 1."""

    key: str
    reached: float


Event = Step | Outcome | str  # words are for people to read; Ray reports outcomes alone
Emit = Callable[[Event], None]


@dataclass(frozen=True)
class Engine:
    """What does the runs: this process, `workers` processes, or Ray.

    Without an address a Ray is started here, and ended afterwards. A Ray that this process is already connected to is
    used as it is.
    """

    name: str = "local"
    workers: int = 1
    ray_address: str | None = None
    cpus_per_run: float = 1.0  # on Ray
    gpus_per_run: float = 0.0

    def __post_init__(self) -> None:
        choice("engine", self.name, ("local", "ray"))

    def start(self, root: Path, machine: Machine, emit: Emit) -> "Workers":
        """Start workers for the runs under `root`; they report steps and notes to `emit`."""
        if self.name == "ray":
            return _RayTasks(self, root.absolute(), machine)
        return _Processes(self.workers, root, machine, emit) if self.workers > 1 else _Here(root, machine, emit)


@dataclass
class _Watcher(Progress):
    """A `Progress` that reports steps of a run."""

    key: str
    emit: Emit

    def update(self, snapshot: Snapshot) -> None:
        self.emit(Step(self.key, snapshot.step / snapshot.steps))


def _told(run: Run, root: Path, machine: Machine, emit: Emit) -> Outcome:
    """Do a run, reporting its steps to `emit`."""
    return run_one(run, Runs(root), machine=machine, progress=_Watcher(run.key, emit))


class _Here:
    """This process, one run after another."""

    def __init__(self, root: Path, machine: Machine, emit: Emit) -> None:
        self._arguments = (root, machine, emit)
        self._ended: list[Outcome] = []

    def free(self) -> bool:
        return not self._ended

    def start(self, run: Run) -> None:
        self._ended.append(_told(run, *self._arguments))

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._ended:
            time.sleep(seconds)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        pass


class _Processes:
    """Worker processes with the threads divided among them, each with a pipe of its own; one that dies is replaced.

    SIGTERM and Ctrl-C make every worker write a checkpoint, and raise `TrainingInterrupted` when all have.
    """

    def __init__(self, count: int, root: Path, machine: Machine, emit: Emit) -> None:
        self._count, self._emit, self._deaths = count, emit, 0
        self._arguments = (root, machine, max(1, (os.cpu_count() or 1) // count))
        self._processes: dict[Connection, SpawnProcess] = {}
        self._runs: dict[Connection, Run] = {}  # of workers that are not idle
        self._stop = StopRequest().__enter__()

    def free(self) -> bool:
        return len(self._runs) < self._count

    def start(self, run: Run) -> None:
        pipe = next((pipe for pipe in self._processes if pipe not in self._runs), None)
        if pipe is None:
            context = multiprocessing.get_context("spawn")
            pipe, theirs = context.Pipe()
            self._processes[pipe] = context.Process(target=_work, args=(theirs, *self._arguments))
            self._processes[pipe].start()
            theirs.close()
        self._runs[pipe] = run
        with suppress(OSError):  # it has just died, as the next wait will find
            pipe.send(run)

    def wait(self, seconds: float) -> list[Outcome]:
        ended = []
        for pipe in cast(list[Connection], connection.wait(list(self._processes), timeout=min(seconds, 0.2))):
            try:
                event = pipe.recv()
            except (EOFError, OSError):
                ended += self._lost(pipe)
                continue
            if isinstance(event, FiltercovError):  # a full disk, say, is the whole sweep's affair
                raise event
            if isinstance(event, Outcome):
                del self._runs[pipe]
                ended.append(event)
            else:
                self._emit(event)
        if self._stop.requested:
            for process in self._processes.values():
                process.terminate()
            for process in self._processes.values():
                process.join()
            raise TrainingInterrupted("stopped on request; run the same command again to continue")
        return ended

    def _lost(self, pipe: Connection) -> list[Outcome]:
        process, run = self._processes.pop(pipe), self._runs.pop(pipe, None)
        process.join()
        if run is None or self._stop.requested:
            return []
        code = process.exitcode or 0
        cause = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._deaths += 1
        self._emit(f"a worker died ({cause}); another takes over its run")
        if self._deaths > DEATHS_PER_WORKER * self._count:
            raise RunError(f"{self._deaths} workers died, the last one {cause}; giving up")
        return [Outcome(run.key, "busy")]

    def close(self) -> None:
        self._stop.__exit__()
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.join()


def _work(pipe: Connection, root: Path, machine: Machine, threads: int) -> None:
    """Do the runs that come through a pipe, until it is closed; SIGTERM between runs ends it, for nothing is lost."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches the parent alone, which asks once
    torch.set_num_threads(threads)
    with suppress(EOFError, BrokenPipeError, TrainingInterrupted):  # the parent is gone, or asks to stop
        while True:
            run = pipe.recv()
            try:
                pipe.send(_told(run, root, machine, pipe.send))
            except TrainingInterrupted:
                raise
            except FiltercovError as error:
                pipe.send(error)


class _RayTasks:
    """Every run a Ray task, on this machine or a cluster, in a directory that every node sees.

    Ray places tasks where their resources are free, and starts a task again when its worker dies.
    """

    def __init__(self, engine: Engine, root: Path, machine: Machine) -> None:
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                "the Ray engine needs Ray; pip install 'filtercov[ray]', or use --engine local"
            ) from error
        self._ray: Any = ray
        self._ours = not ray.is_initialized()  # else it is for whoever called us to end
        if self._ours:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a sweep has nothing to tell anyone
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # tasks without GPUs see none
            local = {"include_dashboard": False} if engine.ray_address is None else {}
            try:
                ray.init(address=engine.ray_address, log_to_driver=False, logging_level=logging.ERROR, **local)
            except (OSError, ValueError, RuntimeError) as error:
                where = engine.ray_address or "this machine"
                raise ConfigError(f"cannot reach Ray at {where}: {error}") from error
        self._task = ray.remote(_ray_task).options(
            num_cpus=engine.cpus_per_run, num_gpus=engine.gpus_per_run, max_retries=RAY_RETRIES
        )
        self._arguments = (root, machine, max(1, int(engine.cpus_per_run)))
        self._keys: dict[Any, str] = {}

    def free(self) -> bool:
        return True  # Ray has a queue

    def start(self, run: Run) -> None:
        self._keys[self._task.remote(run, *self._arguments)] = run.key

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._keys:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(self._keys), timeout=seconds)
        return [self._outcome(task) for task in ready]

    def _outcome(self, task: Any) -> Outcome:
        key = self._keys.pop(task)
        try:
            return cast(Outcome, self._ray.get(task))
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error  # what the task raised, or why Ray gave up on it
            if isinstance(cause, FiltercovError):
                raise cause from None
            return Outcome(key, "failed", str(cause).partition("\n")[0])

    def close(self) -> None:
        if self._ours:
            self._ray.shutdown()


def _ray_task(run: Run, root: Path, machine: Machine, threads: int) -> Outcome:
    """Do one run on a worker of the cluster."""
    torch.set_num_threads(threads)
    return run_one(run, Runs(root), machine=machine)


Workers = _Here | _Processes | _RayTasks
