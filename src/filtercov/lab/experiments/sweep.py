"""`sweep`: what to run where, and how far it is. An engine does the runs, `run_one` each of them."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

from filtercov.errors import RunError
from filtercov.lab.experiments.engines import Engine, Event, Step, Workers
from filtercov.lab.experiments.execute import Machine, Outcome, forget_datasets
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, in_order
from filtercov.lab.training.progress import Snapshot, duration, progress_on
from filtercov.printable import counted

PAUSE = 0.5  # seconds between looks at a run in other hands


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
    """Shows a sweep as training is shown: how many runs are done, how many epochs of all are trained, the time left.

    What went wrong has a line of its own.
    """

    def __init__(
        self, wanted: Sequence[Run], *, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runs = {run.key: run for run in wanted}
        self._lines = progress_on(stream)
        self._epochs = {run.key: run.spec.train.epochs for run in wanted}
        self._trained: dict[str, float] = {}  # epochs of each run that was heard of
        self._here = 0.0  # of them, those trained in this sweep: of a run that is continued only what was new
        self._clock, self._began = clock, clock()
        self.outcomes: dict[str, Outcome] = {}

    def __call__(self, event: Event) -> None:
        """Take note of an event and show it."""
        if isinstance(event, Step):
            self._follow(event.key, event.reached)
        elif isinstance(event, Outcome):
            self.outcomes[event.key] = event
            if event.status == "done":
                self._follow(event.key, 1.0)
            if event.detail:
                self._lines.note(f"{event.status}: {self._runs[event.key]}: {event.detail}")
        else:
            self._lines.note(event)
        trained, total = sum(self._trained.values()), sum(self._epochs.values())
        line = f"{self._ended()}, {trained:.1f} of {counted(total, 'epoch')}"
        if self._here:
            waiting = self._epochs.keys() - self.outcomes.keys()
            left = sum(self._epochs[key] - self._trained.get(key, 0.0) for key in waiting)
            line += f", about {duration((self._clock() - self._began) / self._here * left)} left"
        self._lines.update(Snapshot(int(trained), total, line))

    def _follow(self, key: str, reached: float) -> None:
        trained = reached * self._epochs[key]
        self._here += trained - self._trained.get(key, trained)
        self._trained[key] = trained

    def close(self) -> None:
        """Leave a last line with the number of finished runs."""
        self._lines.note(self._ended())

    def _ended(self) -> str:
        failed = sum(outcome.status == "failed" for outcome in self.outcomes.values())
        return f"{len(self.outcomes) - failed} of {len(self._runs)} done" + (f", {failed} failed" if failed else "")
