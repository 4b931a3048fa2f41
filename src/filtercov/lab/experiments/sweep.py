"""`sweep`: what to run where, and how far it is. An engine does the runs, `run_one` each of them."""

import io
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

from filtercov.errors import RunError
from filtercov.lab.experiments.engines import Engine, Event, Step, Workers
from filtercov.lab.experiments.execute import Machine, Outcome, forget_datasets
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, in_order
from filtercov.lab.training.progress import duration
from filtercov.printable import counted

PAUSE = 0.5  # seconds between looks at a run in other hands
ERASE = "\r\x1b[K"  # back to the start of the line, and clear it


def sweep(
    wanted: Sequence[Run],
    root: Path | str,
    *,
    engine: Engine | None = None,
    machine: Machine | None = None,
    stream: IO[str] | None = None,
) -> dict[str, Outcome]:
    """Do the runs and all they start from under `root`; return how each ended, by key. What is done stays done."""
    ordered, engine, machine = in_order(wanted), engine or Engine(), machine or Machine()
    display = Display(ordered, stream=stream)
    forget_datasets()
    with closing(display), closing(engine.start(Runs(root).root, machine, display)) as workers:
        hand_out(ordered, workers, display)
    return display.outcomes


def hand_out(ordered: Sequence[Run], workers: Workers, tell: Callable[[Outcome], None]) -> None:
    """Give each run to a worker as soon as the run it starts from has ended; one in other hands is tried again."""
    waiting = {run.key: run for run in ordered}  # until their end
    due = dict.fromkeys(waiting, 0.0)  # when to start each
    while waiting:
        for run in waiting.values():
            ready = run.reference is None or run.reference.key not in waiting
            if ready and due[run.key] <= time.monotonic() and workers.free():
                due[run.key] = math.inf
                workers.start(run)
        for outcome in workers.wait(PAUSE):
            if outcome.status == "busy":
                due[outcome.key] = time.monotonic() + PAUSE
            else:
                del waiting[outcome.key]
                tell(outcome)


def refuse_failures(outcomes: Mapping[str, Outcome]) -> None:
    """Raise `RunError` if runs failed, every reason said once."""
    reasons = Counter(outcome.detail for outcome in outcomes.values() if outcome.status == "failed")
    if reasons:
        said = "; ".join(f"{reason} ({counted(n, 'run')})" if n > 1 else reason for reason, n in reasons.items())
        raise RunError(f"{reasons.total()} of {counted(len(outcomes), 'run')} failed: {said}")


class Display:
    """Shows a sweep's events: on a terminal by a line that moves, elsewhere by a line for each run that ends.

    What cannot be written, to a closed pipe or a full disk, is no reason to stop runs.
    """

    def __init__(
        self, wanted: Sequence[Run], *, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runs = {run.key: run for run in wanted}
        self._stream = stream or sys.stderr or io.StringIO()  # none if it was closed before the start
        self._terminal = self._stream.isatty()
        self._clock, self._began = clock, clock()  # when the first step was seen, once it was
        self._epochs = {run.key: run.spec.train.epochs for run in wanted}
        self._reached: dict[str, float] = {}  # the part of a run, of 1, that is trained
        self._worked = 0.0  # epochs that were trained in this sweep
        self.outcomes: dict[str, Outcome] = {}

    def __call__(self, event: Event) -> None:
        """Take note of an event and show it."""
        line = event if isinstance(event, str) else ""
        if isinstance(event, Step):
            self._follow(event.key, event.reached)
        if isinstance(event, Outcome):
            if event.key in self._reached and event.status == "done":
                self._follow(event.key, 1.0)
            self.outcomes[event.key] = event
            if event.status == "failed" or not self._terminal:
                why = f": {event.detail}" if event.detail else ""
                line = f"{self._counts()}  {event.status:6}  {self._runs[event.key]}{why}"
        self._write(f"{line}\n" if line else "", moving=self._counts())

    def close(self) -> None:
        """Leave on a terminal how much was done."""
        self._write(f"{self._ended()}\n" if self._terminal else "")

    def _write(self, lines: str, *, moving: str = "") -> None:
        if self._terminal:
            room = shutil.get_terminal_size().columns - 4  # as a terminal writes ^C behind the line
            lines = f"{ERASE}{lines}{moving[:room]}"
        with suppress(OSError):
            self._stream.write(lines)
            self._stream.flush()

    def time_left(self) -> float | None:
        """The seconds to go by the pace so far, None before there is one; runs count by their epochs.

        Of a run that was continued, only the part trained in this sweep counts.
        """
        if self._worked <= 0:
            return None
        waiting = self._runs.keys() - self.outcomes.keys()
        left = sum((1 - self._reached.get(key, 0.0)) * self._epochs[key] for key in waiting)
        return (self._clock() - self._began) / self._worked * left

    def _follow(self, key: str, reached: float) -> None:
        if not self._reached:
            self._began = self._clock()
        self._worked += (reached - self._reached.get(key, reached)) * self._epochs[key]
        self._reached[key] = reached

    def _ended(self) -> str:
        failed = sum(outcome.status == "failed" for outcome in self.outcomes.values())
        return f"{len(self.outcomes) - failed} of {len(self._runs)} done" + (f", {failed} failed" if failed else "")

    def _counts(self) -> str:
        left, running = self.time_left(), self._reached.keys() - self.outcomes.keys()
        parts = [self._ended()]
        parts += [f"{len(running)} running"] if running else []
        parts += [f"about {duration(left)} left"] if left is not None else []
        return ", ".join(parts)
