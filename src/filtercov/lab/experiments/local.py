"""The local engine: the runs of a sweep in this process, or in several with the threads divided among them.

Workers need no coordinator. Each goes through the list, takes what is neither finished nor claimed nor waiting for its
reference, and looks again for what others had in hand: a worker that dies leaves its run, with its last checkpoint, to
the next one that passes.
"""

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

import torch

from filtercov.errors import FiltercovError, RunError, TrainingInterrupted
from filtercov.lab.experiments.display import Emit, Note, Step
from filtercov.lab.experiments.run_one import Machine, Outcome, run_one
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.training.progress import Snapshot
from filtercov.lab.training.signals import StopRequest

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds, while all that is left is in other hands
STEP_INTERVAL = 0.5  # seconds between two reports of one run
DEATHS_PER_WORKER = 5  # beyond which something other than bad luck kills them


def run_here(
    wanted: Sequence[Run],
    runs: Runs,
    *,
    emit: Emit,
    machine: Machine | None = None,
    failures: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Do the wanted runs, references first as `in_order` has them, in this process, and emit how each ended.

    `failures` is passed to `run_one`; `stop` is asked between runs.
    """
    machine = (machine or Machine()).looking_again()
    waiting = {run.key: run for run in wanted}
    failed: set[str] = set()
    pause = FIRST_PAUSE

    def outcome_of(run: Run) -> Outcome | None:
        """Do a run; None if it has to wait for its reference."""
        if run.reference and run.reference.key in failed:
            return Outcome(run.key, "failed", f"the run it starts from, {run.reference.key}, failed")
        if run.reference and run.reference.key in waiting:
            return None
        watcher = _Watcher(run.key, emit)
        return run_one(
            run, runs, machine=machine, failures=failures, progress=watcher, say=lambda text: emit(Note(text))
        )

    while waiting and not stop():
        before = len(waiting)
        for run in list(waiting.values()):
            outcome = outcome_of(run)
            if outcome is None or outcome.status == "busy":
                continue
            del waiting[run.key]
            if outcome.status == "failed":
                failed.add(run.key)
            emit(outcome)
            if stop():
                return
        if len(waiting) < before:
            pause = FIRST_PAUSE
        elif waiting:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def run_in_processes(
    wanted: Sequence[Run], runs: Runs, *, workers: int, emit: Emit, machine: Machine | None = None
) -> None:
    """Do the runs in `workers` processes at a time. A worker that dies is replaced; its run goes on where it was.

    SIGTERM and Ctrl-C make every worker write a checkpoint, and raise `TrainingInterrupted` when all have.
    """
    threads = max(1, (os.cpu_count() or 1) // workers)
    with tempfile.TemporaryDirectory(prefix="filtercov-failures-") as failures, StopRequest() as stop:
        pool = _Pool([wanted, runs.root, machine, Path(failures), threads], emit)
        try:
            for _ in range(workers):
                pool.start()
            pool.watch(stop, most_deaths=DEATHS_PER_WORKER * workers)
        finally:
            pool.end()


class _Watcher:
    """A `Progress` that passes on the first step, the ends of epochs, and something in between."""

    def __init__(self, key: str, emit: Emit) -> None:
        self._key, self._emit, self._last = key, emit, -STEP_INTERVAL

    def update(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        if snapshot.test_accuracy is not None or now - self._last >= STEP_INTERVAL:
            self._emit(Step(self._key, snapshot))
            self._last = now

    def note(self, text: str) -> None:
        self._emit(Note(f"run {self._key}: {text}"))

    def close(self) -> None:
        pass


class _Pool:
    """Worker processes, each with a pipe of its own: one that is killed in mid-word garbles nobody else's."""

    def __init__(self, arguments: Sequence[object], emit: Emit) -> None:
        self._arguments, self._emit = arguments, emit
        self._workers: dict[Connection, SpawnProcess] = {}
        self._ended: set[str] = set()  # runs: every worker sees every run end

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(theirs, *self._arguments))
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
                        raise RunError(f"{deaths} workers died, the last one {_cause(process.exitcode)}; giving up")
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

    def _pass_on(self, event: Step | Note | Outcome | FiltercovError) -> None:
        if isinstance(event, FiltercovError):
            raise event
        if isinstance(event, Outcome):
            if event.key in self._ended:
                return
            self._ended.add(event.key)
        self._emit(event)


def _work(
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
        run_here(
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
