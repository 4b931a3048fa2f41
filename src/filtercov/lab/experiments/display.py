"""Showing how a sweep goes: on a terminal a live table that is gone at the end, plain lines elsewhere."""

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from filtercov.lab.experiments.run_one import Outcome
from filtercov.lab.experiments.runspec import Run
from filtercov.lab.training.progress import Snapshot, duration

MOST_ROWS = 20


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
    """Takes a sweep's events; runs take times in proportion to their `weight`.

    With `epochs`, plain lines tell of the end of every epoch and not of the end of a run. What cannot be written, to a
    closed pipe or a full disk, is no reason to stop runs.
    """

    def __init__(
        self,
        wanted: Sequence[Run],
        *,
        stream: IO[str] | None = None,
        weight: Callable[[Run], float] = lambda _: 1.0,
        epochs: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = {run.key: run for run in wanted}
        self._weights = {run.key: weight(run) for run in wanted}
        self._stream = stream or sys.stderr or io.StringIO()  # none if it was closed before the start
        self._epochs = epochs
        self._clock, self._began = clock, clock()  # when the first step was seen, once it was
        self._running: dict[str, Snapshot] = {}
        self._seen: dict[str, tuple[float, float]] = {}  # from where to where in a run, of 1, we looked on
        self.outcomes: dict[str, Outcome] = {}
        self._live: Live | None = None
        if self._stream.isatty():
            console = Console(file=self._stream)
            self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Emit events inside; on a terminal how much was done stays when the table is gone."""
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
            self._follow(event.key, event.snapshot)
        elif isinstance(event, Outcome):
            if self._running.pop(event.key, None) is not None and event.status == "done":
                self._seen[event.key] = (self._seen[event.key][0], 1.0)
            self.outcomes[event.key] = event
        with suppress(OSError):
            if self._live:
                self._live.start()
                if isinstance(event, Note):
                    self._live.console.print(Text(event.text))
                self._live.update(self._table(), refresh=True)
            elif (line := self._line(event)) is not None:
                print(line, file=self._stream, flush=True)

    def _line(self, event: Event) -> str | None:
        if isinstance(event, Note):
            return event.text
        run = self._runs[event.key]
        if isinstance(event, Step):
            ended = self._epochs and event.snapshot.test_accuracy is not None
            filters = "frozen" if run.spec.freeze_filters else "thawed"
            return f"{f'{run.spec.init}, {filters}':<21}{event.snapshot}" if ended else None
        return None if self._epochs else f"{self._counts()}  {event.status:6}  {run}{_why(event)}"

    def _follow(self, key: str, snapshot: Snapshot) -> None:
        if not self._seen:
            self._began = self._clock()
        reached = snapshot.step / snapshot.steps
        self._seen[key] = (self._seen.get(key, (reached,))[0], reached)
        self._running[key] = snapshot

    def time_left(self) -> float | None:
        """The seconds to go by the pace so far, None before there is one.

        Runs count by the part that was trained under our eyes, so that one that continued is no sign of speed.
        """
        worked = sum((end - start) * self._weights[key] for key, (start, end) in self._seen.items())
        if worked <= 0:
            return None
        waiting = self._weights.keys() - self.outcomes.keys()
        left = sum((1 - self._seen.get(key, (0.0, 0.0))[1]) * self._weights[key] for key in waiting)
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

    def _table(self) -> Group:
        table = Table(box=None, pad_edge=False)
        table.add_column("running", no_wrap=True, min_width=16)
        table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
        table.add_column("progress", no_wrap=True, min_width=26)
        for key, snapshot in list(self._running.items())[:MOST_ROWS]:
            progress = f"epoch {snapshot.epoch}/{snapshot.epochs}, {duration(snapshot.seconds_left)} left"
            table.add_row(key, str(self._runs[key]).partition("  ")[2], progress)
        failed = [outcome for outcome in self.outcomes.values() if outcome.status == "failed"][:MOST_ROWS]
        failures = [Text(f"failed: {self._runs[outcome.key]}{_why(outcome)}") for outcome in failed]
        return Group(*failures, table, Text(self._counts(), style="bold"))


def _why(outcome: Outcome) -> str:
    return f": {outcome.detail}" if outcome.detail else ""
