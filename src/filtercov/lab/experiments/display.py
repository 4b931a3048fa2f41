"""How far a sweep is: on a terminal a line that is gone at the end, elsewhere a line for each run."""

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from filtercov.lab.experiments.run_one import Outcome
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.training.progress import Snapshot, duration


@dataclass(frozen=True)
class Step:
    """Where a run that is being trained is."""

    key: str
    snapshot: Snapshot


@dataclass(frozen=True)
class Note:
    """Something people should read."""

    text: str


Event = Step | Note | Outcome
Emit = Callable[[Event], None]


class Display:
    """Takes a sweep's events. What cannot be written, to a closed pipe or a full disk, is no reason to stop runs."""

    def __init__(
        self,
        wanted: Sequence[Run],
        *,
        stream: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = {run.key: run for run in wanted}
        self._stream = stream or sys.stderr or io.StringIO()  # none if it was closed before the start
        self._clock, self._began = clock, clock()  # when the first step was seen, once it was
        self._running: set[str] = set()
        self._seen: dict[str, tuple[float, float]] = {}  # from where to where in a run, of 1, we looked on
        self.outcomes: dict[str, Outcome] = {}
        self._live: Live | None = None
        if self._stream.isatty():
            console = Console(file=self._stream)
            self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Emit events inside; on a terminal how much was done stays when the line is gone."""
        try:
            yield
        finally:
            with suppress(OSError):
                if self._live:
                    self._live.stop()
                    self._live.console.print(Text(self._ended()))

    def __call__(self, event: Event) -> None:
        """Take note of an event and show it."""
        if isinstance(event, Step):
            self._follow(event.key, event.snapshot.step / event.snapshot.steps)
        elif isinstance(event, Outcome):
            if event.key in self._running and event.status == "done":
                self._follow(event.key, 1.0)
            self._running.discard(event.key)
            self.outcomes[event.key] = event
        with suppress(OSError):
            if self._live:
                self._live.start()
                if isinstance(event, Note) or (isinstance(event, Outcome) and event.status == "failed"):
                    self._live.console.print(Text(self._line(event)))
                self._live.update(Text(self._counts()), refresh=True)
            elif not isinstance(event, Step):
                print(self._line(event), file=self._stream, flush=True)

    def _line(self, event: Note | Outcome) -> str:
        if isinstance(event, Note):
            return event.text
        why = f": {event.detail}" if event.detail else ""
        return f"{self._counts()}  {event.status:6}  {self._runs[event.key]}{why}"

    def _follow(self, key: str, reached: float) -> None:
        if not self._seen:
            self._began = self._clock()
        self._seen[key] = (self._seen.get(key, (reached,))[0], reached)
        self._running.add(key)

    def time_left(self) -> float | None:
        """The seconds to go by the pace so far, None before there is one; runs count by their epochs.

        Of a run that continued, only the part that was trained under our eyes is a sign of speed.
        """
        epochs = {key: run.spec.train.epochs for key, run in self._runs.items()}
        worked = sum((end - start) * epochs[key] for key, (start, end) in self._seen.items())
        if worked <= 0:
            return None
        waiting = epochs.keys() - self.outcomes.keys()
        left = sum((1 - self._seen.get(key, (0.0, 0.0))[1]) * epochs[key] for key in waiting)
        return (self._clock() - self._began) / worked * left

    def _ended(self) -> str:
        done = sum(outcome.status == "done" for outcome in self.outcomes.values())
        failed = len(self.outcomes) - done
        return f"{done} of {len(self._runs)} done" + (f", {failed} failed" if failed else "")

    def _counts(self) -> str:
        left = self.time_left()
        parts = [self._ended()]
        parts += [f"{len(self._running)} running"] if self._running else []
        parts += [f"about {duration(left)} left"] if left is not None else []
        return ", ".join(parts)
