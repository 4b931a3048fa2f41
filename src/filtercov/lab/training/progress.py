"""Showing how training goes: a bar on a terminal, plain lines elsewhere, nothing where nobody looks."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Protocol

from rich.console import Console, ConsoleOptions, RenderResult
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
    judged_on: str = "test"  # which images that accuracy is of

    @property
    def reached(self) -> str:
        """What was reached, which stays true: epoch, loss and accuracies."""
        test = "" if self.test_accuracy is None else f"  {self.judged_on} {self.test_accuracy:5.2f} %"
        return f"epoch {self.epoch}/{self.epochs}  loss {self.loss:.4f}  train {self.accuracy:5.2f} %{test}"

    @property
    def pace(self) -> str:
        """How fast it goes, and how long it will still take."""
        return f"{self.speed}  {duration(self.seconds_left)} left".lstrip()

    @property
    def speed(self) -> str:
        """How many images it trains on in a second, if that was measured."""
        return "" if self.images_per_second is None else f"{self.images_per_second:,.0f} images/s"

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.reached}  {self.pace}"


class Progress(Protocol):
    """Something that is told about every step."""

    def update(self, snapshot: Snapshot) -> None:
        """Take note of a step, or of an epoch if its test accuracy is known."""
        ...

    def note(self, text: str) -> None:
        """Tell people something, once."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


class Silent:
    """Shows nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Lines:
    """Prints a line per epoch, and one a minute inside long epochs.

    A stream that takes nothing more, as a closed pipe or a full disk, ends the lines and not the training.
    """

    def __init__(
        self, stream: IO[str], *, label: str = "", every: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._every, self._clock = stream, every, clock
        self._label = f"{label}  " if label else ""
        self._last = clock()
        self._heard = True

    def update(self, snapshot: Snapshot) -> None:
        """Print at the end of an epoch, or when the last line is old."""
        if snapshot.test_accuracy is not None or self._clock() - self._last >= self._every:
            self.note(str(snapshot))
            self._last = self._clock()

    def note(self, text: str) -> None:
        """Print it."""
        if self._heard:
            try:
                print(f"{self._label}{text}", file=self._stream, flush=True)
            except OSError:
                self._heard = False

    def close(self) -> None:
        """Do nothing: every line is already out."""


class TerminalBar:
    """A bar that moves with every step, above it a line per epoch; when it is closed only the lines are left.

    A terminal that is gone ends the bar and not the training.
    """

    def __init__(self, console: Console, *, label: str = "") -> None:
        self._label = f"{label}  " if label else ""
        self._heard = True
        self._live = Live(console=console, transient=True, refresh_per_second=10, redirect_stdout=False)

    def update(self, snapshot: Snapshot) -> None:
        """Move the bar; keep the line of a finished epoch."""
        self._while_heard(lambda: self._move(snapshot))
        if snapshot.test_accuracy is not None:
            self.note(f"{snapshot.reached}  {snapshot.speed}".rstrip())

    def note(self, text: str) -> None:
        """Leave a line above the bar."""
        self._while_heard(lambda: self._live.console.print(Text(f"{self._label}{text}")))

    def close(self) -> None:
        """Take the bar off the screen."""
        with suppress(OSError):
            self._live.stop()

    def _move(self, snapshot: Snapshot) -> None:
        first = not self._live.is_started
        if first:
            self._live.start()
        self._live.update(_BarLine(self._label, replace(snapshot, test_accuracy=None)), refresh=first)

    def _while_heard(self, show: Callable[[], None]) -> None:
        if self._heard:
            try:
                show()
            except OSError:
                self._heard = False


class _BarLine:
    """The bar and what is known of the step, on one line of whatever width the terminal has now."""

    def __init__(self, label: str, snapshot: Snapshot) -> None:
        self._label, self._snapshot = label, snapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        snapshot = self._snapshot
        texts = [f"{self._label}{snapshot.reached}", f"{duration(snapshot.seconds_left)} left"]
        if options.max_width >= WIDE:
            texts[1] = snapshot.pace
        bar = ProgressBar(snapshot.steps, snapshot.step)
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True)
        grid.add_row(Text(texts[0]), bar, Text(texts[1]))
        # A terminal writes ^C behind the bar: on a line without room for it the bar could not be taken back.
        yield from console.render(grid, options.update_width(max(1, options.max_width - 4)))


def progress_on(stream: IO[str] | None = None, *, label: str = "") -> Progress:
    """Return the display that suits a stream: a bar if it is a terminal, lines if not, nothing if it is closed."""
    chosen: IO[str] | None = stream or sys.stderr
    if chosen is None:  # as Python has a standard error that was closed before the start
        return Silent()
    if chosen.isatty():
        return TerminalBar(Console(file=chosen), label=label)
    return Lines(chosen, label=label)


def duration(seconds: float) -> str:
    """Return a duration as people write it.

    >>> duration(59.6), duration(3671)
    ('1:00', '1:01:11')
    """
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
