"""Showing how training goes: a bar on a terminal, plain lines elsewhere, nothing where nobody looks."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar


@dataclass(frozen=True)
class Snapshot:
    """Where training is."""

    step: int
    steps: int
    epoch: int  # 1 is the first
    epochs: int
    loss: float
    accuracy: float  # of this epoch's training images so far, in percent
    images_per_second: float
    seconds_left: float
    test_accuracy: float | None = None  # at the end of an epoch
    judged_on: str = "test"  # which images that accuracy is of

    def __str__(self) -> str:
        """Return one line for people."""
        test = "" if self.test_accuracy is None else f"  {self.judged_on} {self.test_accuracy:5.2f} %"
        return (
            f"epoch {self.epoch}/{self.epochs}  loss {self.loss:.4f}  train {self.accuracy:5.2f} %{test}"
            f"  {self.images_per_second:,.0f} images/s  {duration(self.seconds_left)} left"
        )


class Progress(Protocol):
    """Something that is told about every step."""

    def update(self, snapshot: Snapshot) -> None:
        """Take note of a step, or of an epoch if its test accuracy is known."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


class Silent:
    """Shows nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Lines:
    """Prints a line per epoch, and one a minute inside long epochs."""

    def __init__(
        self, stream: IO[str], *, label: str = "", every: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._every, self._clock = stream, every, clock
        self._label = f"{label}  " if label else ""
        self._last = clock()

    def update(self, snapshot: Snapshot) -> None:
        """Print at the end of an epoch, or when the last line is old."""
        if snapshot.test_accuracy is not None or self._clock() - self._last >= self._every:
            print(f"{self._label}{snapshot}", file=self._stream, flush=True)
            self._last = self._clock()

    def close(self) -> None:
        """Do nothing: every line is already out."""


class TerminalBar:
    """A bar that moves with every step, above it a line per epoch."""

    def __init__(self, console: Console, *, label: str = "") -> None:
        self._bar = Bar(TextColumn("{task.description}"), BarColumn(bar_width=24), console=console)
        self._label = f"{label}  " if label else ""
        self._task = self._bar.add_task(self._label, total=None)
        self._bar.start()

    def update(self, snapshot: Snapshot) -> None:
        """Move the bar; keep the line of a finished epoch."""
        text = f"{self._label}{snapshot}"
        self._bar.update(self._task, total=snapshot.steps, completed=snapshot.step, description=text)
        if snapshot.test_accuracy is not None:
            self._bar.console.print(text, highlight=False)

    def close(self) -> None:
        """Leave the last state of the bar on the screen."""
        self._bar.stop()


def progress_on(stream: IO[str] | None = None, *, label: str = "") -> Progress:
    """Return the display that suits a stream: a bar if it is a terminal, lines if not."""
    stream = stream or sys.stderr
    if stream.isatty():
        return TerminalBar(Console(file=stream), label=label)
    return Lines(stream, label=label)


def duration(seconds: float) -> str:
    """Return a duration as people write it.

    >>> duration(59.6), duration(3671)
    ('1:00', '1:01:11')
    """
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
