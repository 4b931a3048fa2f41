"""`sweep`: what to run where. An engine does the runs, `run_one` each of them."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from filtercov.errors import ConfigError, RunError
from filtercov.lab.experiments.catalogue import Experiment, Options, experiment
from filtercov.lab.experiments.display import Display
from filtercov.lab.experiments.engines import Engine, Workers
from filtercov.lab.experiments.run_one import Machine, Outcome, forget_datasets
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, in_order
from filtercov.lab.training.rundir import read_json, storing, write_json
from filtercov.printable import counted

PAUSE = 0.5  # seconds between looks at a run in other hands


def sweep(
    wanted: Sequence[Run],
    root: Path | str,
    *,
    engine: Engine | None = None,
    machine: Machine | None = None,
    stream: IO[str] | None = None,
    weight: Callable[[Run], float] = lambda _: 1.0,
    epochs: bool = False,
) -> dict[str, Outcome]:
    """Do the runs and all they start from under `root`; return how each ended, by key. What is done stays done.

    `weight` says how long runs take relative to one another, for the time left; `epochs` prints a line for each epoch.
    """
    ordered, engine, machine = in_order(wanted), engine or Engine(), machine or Machine()
    display = Display(ordered, stream=stream, weight=weight, epochs=epochs)
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


def record(wanted: Experiment, runs: Runs, options: Options) -> None:
    """Note under the runs that an experiment was asked for, so that a report knows what to look for."""
    with storing(runs.sweeps):
        runs.sweeps.mkdir(parents=True, exist_ok=True)
    asked = {"name": wanted.name, "scale": wanted.scale, "options": asdict(options)}
    write_json(runs.sweeps / f"{wanted.name}--{wanted.scale}.json", asked)


def recorded(runs: Runs) -> list[tuple[Experiment, Options]]:
    """The experiments that were asked for under the runs, with the options they were asked for with."""
    return [asked_for(read_json(path), path) for path in sorted(runs.sweeps.glob("*.json"))]


def asked_for(asked: Mapping[str, Any], path: Path) -> tuple[Experiment, Options]:
    """The experiment and the options that the values of a file name."""
    try:
        options = Options(**{**asked["options"], "also": tuple(asked["options"]["also"])})
        return experiment(asked["name"], scale=asked["scale"], options=options), options
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} does not say which experiment was run ({error}); delete it") from error
