"""SIGTERM and Ctrl-C as a request that the training loop honours between two batches."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class StopRequest:
    """While entered, the first SIGTERM or Ctrl-C sets `signal`; a second one is delivered as usual.

    A `patient` one ignores the second too: processes under torchrun get Ctrl-C from the terminal and once more from
    their launcher. Outside the main thread Python allows no handlers, and only `request` can ask.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.signal: int | None = None
        self._patient = patient
        self._previous: dict[int, Any] = {}

    def request(self, number: int = signal.SIGTERM) -> None:
        """Ask for a stop, as the signal `number` would."""
        self.signal = number

    @property
    def requested(self) -> bool:
        """Whether a stop was asked for."""
        return self.signal is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.request(number)
        if not self._patient:
            self._restore()  # so that a second signal ends the process at once

    def _restore(self) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        self._previous = {}
