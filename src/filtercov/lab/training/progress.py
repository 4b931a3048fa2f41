"""Showing how training goes: a line per epoch; in between one that moves on a terminal, or one a minute elsewhere."""

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

_ERASE = "\r\x1b[K"  # back to the start of the line, and clear it


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

    def __str__(self) -> str:
        test = "" if self.test_accuracy is None else f"  eval {self.test_accuracy:5.2f} %"
        speed = "" if self.images_per_second is None else f"  {self.images_per_second:,.0f} images/s"
        reached = f"epoch {self.epoch}/{self.epochs}  loss {self.loss:.4f}  train {self.accuracy:5.2f} %{test}"
        return f"{reached}{speed}  {duration(self.seconds_left)} left"


class Progress:
    """What is told how training goes. This one shows nothing; subclasses do."""

    def update(self, snapshot: Snapshot) -> None:
        """Take note of a step, or of an epoch if its test accuracy is known."""

    def note(self, text: str) -> None:
        """Tell people something, once."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Lines(Progress):
    """Shows training on a stream, as long as that takes it: a closed pipe or a full disk do not end training."""

    def __init__(self, stream: IO[str], *, label: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._label, self._clock = stream, f"{label}  " if label else "", clock
        self._terminal = stream.isatty()
        self._last = clock()

    def update(self, snapshot: Snapshot) -> None:
        """Keep the line of a finished epoch; show a step if the last one shown is old."""
        if snapshot.test_accuracy is not None or self._clock() - self._last >= (0.1 if self._terminal else 60.0):
            self._last = self._clock()
            if snapshot.test_accuracy is None and self._terminal:
                # A terminal writes ^C behind the line, which could not be erased if it had no room for that.
                room = shutil.get_terminal_size().columns - 4
                self._write(f"{_ERASE}{f'{self._label}{snapshot}'[:room]}")
            else:
                self.note(str(snapshot))

    def note(self, text: str) -> None:
        """Print it on a line of its own."""
        self._write(f"{_ERASE if self._terminal else ''}{self._label}{text}\n")

    def close(self) -> None:
        """Take the moving line off the terminal."""
        if self._terminal:
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


def progress_on(stream: IO[str] | None = None, *, label: str = "") -> Progress:
    """What shows training on a stream, by default standard error; nothing if that is closed."""
    chosen: IO[str] | None = stream or sys.stderr
    return Progress() if chosen is None else Lines(chosen, label=label)


def duration(seconds: float) -> str:
    """A duration as people write it.

    >>> duration(59.6), duration(3671)
    ('1:00', '1:01:11')
    """
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
