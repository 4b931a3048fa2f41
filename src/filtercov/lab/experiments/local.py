"""The local engine: the runs of a sweep in this process, or in several with the threads divided among them."""

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

import torch

from filtercov.errors import ConfigError, FiltercovError, SweepError, TrainingInterrupted
from filtercov.lab.experiments.attempt import Machine
from filtercov.lab.experiments.graph import Run
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.worker import Emit, Note, work
from filtercov.lab.training.signals import StopRequest

DEATHS_PER_WORKER = 5  # beyond which something other than bad luck kills them


def run_here(wanted: Sequence[Run], runs: Runs, *, emit: Emit, machine: Machine | None = None) -> None:
    """Do the runs one after another in this process, with all of its threads."""
    work(wanted, runs, emit=emit, machine=machine)


def run_in_processes(
    wanted: Sequence[Run], runs: Runs, *, workers: int, emit: Emit, machine: Machine | None = None
) -> None:
    """Do the runs in `workers` processes at a time. A worker that dies is replaced; its run goes on where it was.

    SIGTERM and Ctrl-C make every worker write a checkpoint, and raise `TrainingInterrupted` when all have.
    """
    if workers < 1:
        raise ConfigError(f"a sweep needs at least one worker, got {workers}")
    threads = max(1, (os.cpu_count() or 1) // workers)
    with tempfile.TemporaryDirectory(prefix="filtercov-failures-") as failures, StopRequest() as stop:
        pool = _Pool([wanted, runs.root, machine, Path(failures), threads], emit)
        try:
            for _ in range(workers):
                pool.start()
            pool.watch(stop, most_deaths=DEATHS_PER_WORKER * workers)
        finally:
            pool.end()


class _Pool:
    """Worker processes, each with a pipe of its own: one that is killed in mid-word garbles nobody else's."""

    def __init__(self, arguments: Sequence[object], emit: Emit) -> None:
        self._arguments, self._emit = arguments, emit
        self._workers: dict[Connection, SpawnProcess] = {}
        self._seen: set[str] = set()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_main, args=(theirs, *self._arguments))
        process.start()
        theirs.close()
        self._workers[ours] = process

    def watch(self, stop: StopRequest, *, most_deaths: int) -> None:
        """Pass events on until every worker has ended."""
        deaths, asked = 0, False
        while self._workers:
            for pipe in cast(list[Connection], wait(list(self._workers), timeout=0.2)):
                try:
                    event = pipe.recv()
                except (EOFError, OSError):
                    process = self._workers.pop(pipe)
                else:
                    self._pass_on(event)
                    continue
                process.join()
                if process.exitcode and not asked:
                    deaths += 1
                    self._emit(Note(f"a worker died ({_cause(process.exitcode)}); another takes over its run"))
                    if deaths > most_deaths:
                        raise SweepError(f"{deaths} workers died, the last one {_cause(process.exitcode)}; giving up")
                    self.start()
            if stop.requested and not asked:
                asked = True
                for process in self._workers.values():
                    process.terminate()
        if asked:
            raise TrainingInterrupted("stopped on request; run the same command again to continue")

    def end(self) -> None:
        """Leave no process behind, whatever happened."""
        for process in self._workers.values():
            process.kill()
        for process in self._workers.values():
            process.join()

    def _pass_on(self, event: object) -> None:
        if isinstance(event, FiltercovError):
            raise event
        key = getattr(event, "key", None) if hasattr(event, "status") else None
        if key is None or key not in self._seen:  # every worker sees every run end
            self._emit(event)  # type: ignore[arg-type]  # workers send nothing else
        if key is not None:
            self._seen.add(key)


def _main(
    pipe: Connection, wanted: Sequence[Run], root: Path, machine: Machine | None, failures: Path, threads: int
) -> None:
    """Work as one of the processes."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches the parent, which asks once
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # between runs; a run that trains is asked by it, as by the parent
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # between runs there is nothing to save
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    try:
        work(
            wanted,
            Runs(root),
            emit=pipe.send,
            machine=machine,
            failures=failures,
            stop=lambda: parent is not None and not parent.is_alive(),
        )
    except TrainingInterrupted:
        pass
    except FiltercovError as error:
        pipe.send(error)
    except BrokenPipeError:
        pass  # the parent is gone


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"killed by {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"
