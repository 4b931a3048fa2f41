"""`sweep`: what to run where. An engine does the runs, `run_one` each of them."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from filtercov.errors import ConfigError, RunError
from filtercov.lab.experiments.catalogue import Experiment, Options, experiment
from filtercov.lab.experiments.display import Display
from filtercov.lab.experiments.local import run_here, run_in_processes
from filtercov.lab.experiments.ray_engine import Cluster, run_on_ray
from filtercov.lab.experiments.run_one import Machine, Outcome
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, in_order
from filtercov.lab.training.rundir import read_json, storage_error, write_atomic
from filtercov.printable import counted


@dataclass(frozen=True)
class Engine:
    """What does the runs: this process, `workers` processes, or Ray."""

    name: str = "local"
    workers: int = 1
    cluster: Cluster = field(default_factory=Cluster)

    def __post_init__(self) -> None:
        if self.name not in ("local", "ray"):
            raise ConfigError(f"unknown engine {self.name!r}; choose local or ray")
        if self.workers < 1:
            raise ConfigError(f"a sweep needs at least one worker, got {self.workers}")


def sweep(
    wanted: Sequence[Run],
    root: Path | str,
    *,
    engine: Engine | None = None,
    machine: Machine | None = None,
    stream: IO[str] | None = None,
    expected: Callable[[Run], float] = lambda _: 1.0,
    epochs: bool = False,
) -> dict[str, Outcome]:
    """Do the runs and all they start from under `root`; return how each ended, by key. What is done stays done.

    `expected` guesses the seconds of a run, for the time left; `epochs` prints a line for each epoch.
    """
    engine, runs, ordered = engine or Engine(), Runs(root), in_order(wanted)
    display = Display(ordered, stream=stream, expected=expected, epochs=epochs)
    with display.watching():
        if engine.name == "ray":
            run_on_ray(ordered, runs.root.absolute(), cluster=engine.cluster, emit=display, machine=machine)
        elif engine.workers > 1:
            run_in_processes(ordered, runs, workers=engine.workers, emit=display, machine=machine)
        else:
            run_here(ordered, runs, emit=display, machine=machine)
    return display.outcomes


def refuse_failures(outcomes: Mapping[str, Outcome]) -> None:
    """Raise `RunError` if runs failed, every reason said once."""
    reasons = Counter(outcome.detail for outcome in outcomes.values() if outcome.status == "failed")
    if reasons:
        said = "; ".join(f"{reason} ({counted(n, 'run')})" if n > 1 else reason for reason, n in reasons.items())
        raise RunError(f"{reasons.total()} of {counted(len(outcomes), 'run')} failed: {said}")


def record(wanted: Experiment, runs: Runs, options: Options) -> None:
    """Note under the runs that an experiment was asked for, so that a report knows what to look for."""
    try:
        runs.sweeps.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(runs.sweeps, error) from error
    asked = {"name": wanted.name, "scale": wanted.scale, "options": asdict(options)}
    write_atomic(runs.sweeps / f"{wanted.name}--{wanted.scale}.json", json.dumps(asked, indent=2).encode() + b"\n")


def recorded(runs: Runs) -> list[tuple[Experiment, Options]]:
    """Return the experiments that were asked for under the runs, with the options they were asked for with."""
    return [asked_for(read_json(path), path) for path in sorted(runs.sweeps.glob("*.json"))]


def asked_for(asked: Mapping[str, Any], path: Path) -> tuple[Experiment, Options]:
    """Return the experiment and the options that the values of a file name."""
    try:
        options = Options(**{**asked["options"], "also": tuple(asked["options"]["also"])})
        return experiment(asked["name"], scale=asked["scale"], options=options), options
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} does not say which experiment was run ({error}); delete it") from error
