"""SIGTERM and Ctrl-C as a request that the training loop honours between two batches."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class StopRequest:
    """While entered, the first SIGTERM or Ctrl-C sets `signal`; a second one is delivered as usual.

    A `patient` one ignores the second too: processes under torchrun get Ctrl-C from the terminal and once more from
    their launcher. Outside the main thread Python allows no handlers.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.signal: int | None = None
        self._patient = patient
        self._previous: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether a stop was asked for."""
        return self.signal is not None

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
        if self.signal is not None and not self._patient:
            signal.raise_signal(self.signal)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.signal = number
        if not self._patient:
            self.__exit__()  # so that a second signal ends the process at once
