"""`sweep`: what to run where. An engine does the runs, `run_one` each of them."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

from filtercov.errors import RunError
from filtercov.lab.experiments.display import Display
from filtercov.lab.experiments.engines import Engine, Workers
from filtercov.lab.experiments.run_one import Machine, Outcome, forget_datasets
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, in_order
from filtercov.printable import counted

PAUSE = 0.5  # seconds between looks at a run in other hands


def sweep(
    wanted: Sequence[Run],
    root: Path | str,
    *,
    engine: Engine | None = None,
    machine: Machine | None = None,
    stream: IO[str] | None = None,
) -> dict[str, Outcome]:
    """Do the runs and all they start from under `root`; return how each ended, by key. What is done stays done."""
    ordered, engine, machine = in_order(wanted), engine or Engine(), machine or Machine()
    display = Display(ordered, stream=stream)
    forget_datasets()
    with display.watching(), closing(engine.start(Runs(root).root, machine, display)) as workers:
        hand_out(ordered, workers, display)
    return display.outcomes


def hand_out(ordered: Sequence[Run], workers: Workers, tell: Callable[[Outcome], None]) -> None:
    """Give each run to a worker as soon as the run it starts from is done; one in other hands is tried again."""
    waiting = {run.key: run for run in ordered}  # until their end
    due = dict.fromkeys(waiting, 0.0)  # when to start each
    failed: set[str] = set()

    def end(outcome: Outcome) -> None:
        del waiting[outcome.key]
        if outcome.status == "failed":
            failed.add(outcome.key)
        tell(outcome)

    while waiting:
        for run in list(waiting.values()):
            reference = run.reference.key if run.reference else ""
            if reference in failed:
                end(Outcome(run.key, "failed", f"the run it starts from, {reference}, failed"))
            elif reference not in waiting and due[run.key] <= time.monotonic() and workers.free():
                due[run.key] = math.inf
                workers.start(run)
        for outcome in workers.wait(PAUSE) if waiting else ():
            if outcome.status == "busy":
                due[outcome.key] = time.monotonic() + PAUSE
            else:
                end(outcome)


def refuse_failures(outcomes: Mapping[str, Outcome]) -> None:
    """Raise `RunError` if runs failed, every reason said once."""
    reasons = Counter(outcome.detail for outcome in outcomes.values() if outcome.status == "failed")
    if reasons:
        said = "; ".join(f"{reason} ({counted(n, 'run')})" if n > 1 else reason for reason, n in reasons.items())
        raise RunError(f"{reasons.total()} of {counted(len(outcomes), 'run')} failed: {said}")
