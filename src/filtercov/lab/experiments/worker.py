"""The loop every local worker runs: do whatever of a sweep can be done, until all of it is.

Workers need no coordinator. Each goes through the list, takes what is neither finished nor claimed nor waiting for its
reference, and looks again for what others had in hand: a worker that dies leaves its run, with its last checkpoint, to
the next one that passes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filtercov.lab.experiments.attempt import Machine, Outcome, attempt
from filtercov.lab.experiments.graph import Run
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.training.progress import Snapshot

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds, while all that is left is in other hands
STEP_INTERVAL = 0.5  # seconds between two reports of one run


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


def work(
    wanted: Sequence[Run],
    runs: Runs,
    *,
    emit: Emit,
    machine: Machine | None = None,
    failures: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Do the wanted runs, references first as `in_order` has them, and emit how each ended.

    Workers of one sweep share the directory `failures`, so that what failed in one is not tried by all. `stop` is asked
    between runs.
    """
    machine = (machine or Machine()).looking_again()
    waiting = {run.key: run for run in wanted}
    failed: dict[str, str] = {}
    pause = FIRST_PAUSE
    while waiting and not stop():
        before = len(waiting)
        for run in list(waiting.values()):
            outcome = _outcome(run, runs, waiting, failed, emit=emit, machine=machine, failures=failures)
            if outcome is None or outcome.status == "busy":
                continue
            del waiting[run.key]
            if outcome.status == "failed":
                failed[run.key] = outcome.detail
            emit(outcome)
            if stop():
                return
        if len(waiting) < before:
            pause = FIRST_PAUSE
        elif waiting:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _outcome(
    run: Run,
    runs: Runs,
    waiting: dict[str, Run],
    failed: dict[str, str],
    *,
    emit: Emit,
    machine: Machine | None,
    failures: Path | None,
) -> Outcome | None:
    """Return how a run ended, None if it has to wait for its reference."""
    marker = failures / run.key if failures else None
    if marker and marker.exists():
        return Outcome(run.key, "failed", marker.read_text(encoding="utf-8"))
    reference = run.reference
    if reference and reference.key in failed:
        return Outcome(run.key, "failed", f"the run it starts from, {reference.key}, failed")
    if reference and reference.key in waiting:
        return None
    watcher = _Watcher(run.key, emit)
    outcome = attempt(run, runs, machine=machine, progress=watcher, say=lambda text: emit(Note(text)))
    if marker and outcome.status == "failed":
        marker.write_text(outcome.detail, encoding="utf-8")
    return outcome


class _Watcher:
    """A `Progress` that passes on the first step, the ends of epochs, and something in between."""

    def __init__(self, key: str, emit: Emit) -> None:
        self._key, self._emit, self._last = key, emit, -STEP_INTERVAL

    def update(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        if snapshot.test_accuracy is not None or now - self._last >= STEP_INTERVAL:
            self._emit(Step(self._key, snapshot))
            self._last = now

    def note(self, text: str) -> None:
        self._emit(Note(f"run {self._key}: {text}"))

    def close(self) -> None:
        pass
