"""What passes between training and its user: lines of progress, SIGTERM and Ctrl-C."""

import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import IO, Any, Self

_ERASE = "\r\x1b[K"  # back to the start of the line, and clear it


@dataclass(frozen=True)
class Snapshot:
    """A moment of training: a step, or with a test accuracy the end of an epoch."""

    step: int
    steps: int
    line: str  # for people to read
    test_accuracy: float | None = None  # in percent


class Progress:
    """A listener to training. This one shows nothing; subclasses do."""

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
        now, within = self._clock(), snapshot.test_accuracy is None
        if within and now - self._last < (0.1 if self._terminal else 60.0):
            return
        self._last = now
        if within and self._terminal:
            # A terminal writes ^C behind the line, which could not be erased if it had no room for that.
            room = shutil.get_terminal_size().columns - 4
            self._write(f"{_ERASE}{f'{self._label}{snapshot.line}'[:room]}")
        else:
            self.note(snapshot.line)

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
    """A listener that prints to a stream, by default standard error; a silent one if that is closed."""
    shown = stream or sys.stderr
    return Lines(shown, label=label) if shown else Progress()


def duration(seconds: float) -> str:
    """A duration as people write it.

    >>> duration(59.6), duration(3671)
    ('1:00', '1:01:11')
    """
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


class StopRequest:
    """While entered, the first SIGTERM or Ctrl-C sets `requested`; a second one is delivered as usual.

    A `patient` one ignores the second too: processes under torchrun get Ctrl-C from the terminal and once more from
    their launcher. Outside the main thread Python allows no handlers.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.requested = 0  # the signal that asked for a stop
        self._patient = patient
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    def pass_on(self) -> None:
        """Deliver a request that came too late to be honoured; call it when the handlers are the caller's again.

        A sweep, say, would go on with its next run. Processes under torchrun leave it to their launcher.
        """
        if self.requested and not self._patient:
            signal.raise_signal(self.requested)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.requested = number
        if not self._patient:
            self.__exit__()  # so that a second signal ends the process at once
