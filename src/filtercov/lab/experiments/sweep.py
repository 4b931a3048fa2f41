"""A sweep: the runs of some experiments, done by an engine, with what was asked for on record."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from filtercov.errors import ConfigError, ExperimentError
from filtercov.lab.experiments.attempt import Machine, Outcome
from filtercov.lab.experiments.builder import Options
from filtercov.lab.experiments.catalogue import experiment
from filtercov.lab.experiments.display import Display
from filtercov.lab.experiments.graph import Experiment, Run, in_order
from filtercov.lab.experiments.local import run_here, run_in_processes
from filtercov.lab.experiments.mirror import Mirror, is_address
from filtercov.lab.experiments.ray_engine import Cluster, run_on_ray
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.training.rundir import read_json, storage_error, write_atomic


@dataclass(frozen=True)
class Engine:
    """What does the runs: this process, `workers` processes, or Ray."""

    name: str = "local"
    workers: int = 1
    cluster: Cluster = field(default_factory=Cluster)


def sweep(
    wanted: Sequence[Run],
    root: Path | str,
    *,
    engine: Engine | None = None,
    machine: Machine | None = None,
    stream: IO[str] | None = None,
    expected: Callable[[Run], float] = lambda _: 1.0,
) -> dict[str, Outcome]:
    """Do the runs and all they start from under `root`; return how each ended, by key. What is done stays done."""
    engine = engine or Engine()
    ordered = in_order(wanted)
    display = Display(ordered, stream=stream, expected=expected)
    if engine.name not in ("local", "ray"):
        raise ConfigError(f"unknown engine {engine.name!r}; choose local or ray")
    if engine.workers < 1:
        raise ConfigError(f"a sweep needs at least one worker, got {engine.workers}")
    if is_address(str(root)) and engine.name != "ray":
        raise ConfigError(f"the runs at {root} can only be done with --engine ray; the local engine needs a directory")
    with display.watching():
        if engine.name == "ray":
            place = str(root) if is_address(str(root)) else str(Path(root).absolute())
            run_on_ray(ordered, place, cluster=engine.cluster, emit=display, machine=machine)
        elif engine.workers > 1:
            run_in_processes(ordered, Runs(root), workers=engine.workers, emit=display, machine=machine)
        else:
            run_here(ordered, Runs(root), emit=display, machine=machine)
    return display.outcomes


def local_copy(wanted: Sequence[Run], root: str) -> Path:
    """Return a directory that holds the runs of a root, which may be an fsspec address."""
    if not is_address(root):
        return Path(root)
    mirror = Mirror(root)
    for run in in_order(wanted):
        mirror.pull(run.key)
    return mirror.local


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
        raise ExperimentError(f"{path} does not say which experiment was run ({error}); delete it") from error
