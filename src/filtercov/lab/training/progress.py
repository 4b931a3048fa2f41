"""Showing how training goes: a bar on a terminal, plain lines elsewhere, nothing where nobody looks."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

WIDE = 100  # columns from which a bar has room for the speed


@dataclass(frozen=True)
class Snapshot:
    """Where training is."""

    step: int
    steps: int
    epoch: int  # 1 is the first
    epochs: int
    loss: float
    accuracy: float  # of this epoch's training images so far, in percent
    images_per_second: float | None  # of training in this epoch; None if none of it was trained here
    seconds_left: float
    test_accuracy: float | None = None  # at the end of an epoch
    judged_on: str = "test"  # the images of that accuracy

    @property
    def reached(self) -> str:
        """Epoch, loss and accuracies."""
        test = "" if self.test_accuracy is None else f"  {self.judged_on} {self.test_accuracy:5.2f} %"
        return f"epoch {self.epoch}/{self.epochs}  loss {self.loss:.4f}  train {self.accuracy:5.2f} %{test}"

    @property
    def speed(self) -> str:
        """Images trained on per second, with a gap before them; empty if not measured."""
        return "" if self.images_per_second is None else f"  {self.images_per_second:,.0f} images/s"

    @property
    def left(self) -> str:
        """The time left, with a gap before it."""
        return f"  {duration(self.seconds_left)} left"

    def __str__(self) -> str:
        return f"{self.reached}{self.speed}{self.left}"


class Progress(Protocol):
    """Something that is told about every step."""

    def update(self, snapshot: Snapshot) -> None:
        """Take note of a step, or of an epoch if its test accuracy is known."""

    def note(self, text: str) -> None:
        """Tell people something, once."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Silent:
    """Shows nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class _Display(Silent):
    """Shows as long as its stream takes it: a closed pipe or a full disk do not end training."""

    def __init__(self, label: str) -> None:
        self._label = f"{label}  " if label else ""

    def _show(self, write: Callable[[], None]) -> None:
        with suppress(OSError):
            write()


class Lines(_Display):
    """Prints a line per epoch, and one a minute inside long epochs."""

    def __init__(
        self, stream: IO[str], *, label: str = "", every: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(label)
        self._stream, self._every, self._clock = stream, every, clock
        self._last = clock()

    def update(self, snapshot: Snapshot) -> None:
        """Print at the end of an epoch, or when the last line is old."""
        if snapshot.test_accuracy is not None or self._clock() - self._last >= self._every:
            self.note(str(snapshot))
            self._last = self._clock()

    def note(self, text: str) -> None:
        """Print it."""
        self._show(lambda: print(f"{self._label}{text}", file=self._stream, flush=True))


class TerminalBar(_Display):
    """A bar that moves with every step, above it a line per epoch; when it is closed only the lines are left."""

    def __init__(self, console: Console, *, label: str = "") -> None:
        super().__init__(label)
        self._live = Live(console=console, transient=True, refresh_per_second=10, redirect_stdout=False)

    def update(self, snapshot: Snapshot) -> None:
        """Move the bar; keep the line of a finished epoch."""
        self._show(lambda: self._move(replace(snapshot, test_accuracy=None)))
        if snapshot.test_accuracy is not None:
            self.note(f"{snapshot.reached}{snapshot.speed}")

    def note(self, text: str) -> None:
        """Leave a line above the bar."""
        self._show(lambda: self._live.console.print(Text(f"{self._label}{text}")))

    def close(self) -> None:
        """Take the bar off the screen."""
        with suppress(OSError):
            self._live.stop()

    def _move(self, snapshot: Snapshot) -> None:
        console = self._live.console
        bar = Table.grid(padding=(0, 2, 0, 0), expand=True)
        bar.add_column(no_wrap=True, overflow="ellipsis")
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        bar.add_row(
            Text(f"{self._label}{snapshot.reached}"),
            ProgressBar(snapshot.steps, snapshot.step),
            Text(f"{snapshot.speed if console.width >= WIDE else ''}{snapshot.left}".strip()),
        )
        # A terminal writes ^C behind the bar: on a line without room for it the bar could not be erased.
        bar.width = max(1, console.width - 4)
        self._live.update(bar)
        self._live.start(refresh=True)


def progress_on(stream: IO[str] | None = None, *, label: str = "") -> Progress:
    """The display that suits a stream: a bar for a terminal, lines for others, nothing if it is closed."""
    chosen: IO[str] | None = stream or sys.stderr
    if chosen is None:  # closed before the start
        return Silent()
    return TerminalBar(Console(file=chosen), label=label) if chosen.isatty() else Lines(chosen, label=label)


def duration(seconds: float) -> str:
    """A duration as people write it.

    >>> duration(59.6), duration(3671)
    ('1:00', '1:01:11')
    """
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
