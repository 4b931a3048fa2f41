"""The Ray engine: every run is a task, on this machine or a cluster, and the run it starts from an argument of it.

Ray orders the graph, places tasks where their resources are free, and starts a task again when its worker dies; the
new attempt continues from the run's checkpoint. Runs live in a directory that every node sees.
"""

import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from filtercov.errors import ConfigError, FiltercovError
from filtercov.lab.experiments.display import Emit, Note
from filtercov.lab.experiments.run_one import Machine, Outcome, run_one
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run

PAUSE = 1.0  # seconds between looks at a run that someone outside this sweep is doing


@dataclass(frozen=True)
class Cluster:
    """Where to run and what each run gets. Without an address a Ray is started here, and ended afterwards.

    A Ray that this process is already connected to is used as it is.
    """

    address: str | None = None
    cpus_per_run: float = 1.0
    gpus_per_run: float = 0.0
    retries: int = 10  # of a run whose worker died
    local_cpus: int | None = None  # of a Ray started here; None: all

    def __post_init__(self) -> None:
        for name, share in (("CPUs", self.cpus_per_run), ("GPUs", self.gpus_per_run)):
            if not 0 <= share < math.inf:
                raise ConfigError(f"a run on Ray needs a number of {name} that is at least 0, got {share}")


@dataclass(frozen=True)
class _Report:
    """What comes back from a task: how the run ended, and what people should read."""

    outcome: Outcome
    notes: tuple[str, ...] = ()


def run_on_ray(
    wanted: Sequence[Run], root: Path, *, cluster: Cluster, emit: Emit, machine: Machine | None = None
) -> None:
    """Do the runs, references first as `in_order` has them, as Ray tasks, and emit how each ended."""
    machine = (machine or Machine()).looking_again()
    with _connected(cluster) as ray:
        task = ray.remote(_task).options(
            num_cpus=cluster.cpus_per_run, num_gpus=cluster.gpus_per_run, max_retries=cluster.retries
        )
        reports: dict[str, Any] = {}
        for run in wanted:
            reference = reports[run.reference.key] if run.reference else None
            reports[run.key] = task.remote(run, reference, root, machine, max(1, int(cluster.cpus_per_run)))
        keys = {report: key for key, report in reports.items()}
        waiting = list(keys)
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=1.0)
            for report in ready:
                found = _report(ray, report, keys[report])
                for note in found.notes:
                    emit(Note(note))
                emit(found.outcome)


def _task(run: Run, reference: _Report | None, root: Path, machine: Machine, threads: int) -> _Report:
    """Do one run on a worker of the cluster."""
    if reference is not None and reference.outcome.status == "failed":
        return _Report(Outcome(run.key, "failed", f"the run it starts from, {reference.outcome.key}, failed"))
    torch.set_num_threads(threads)
    notes: list[str] = []
    while (outcome := run_one(run, Runs(root), machine=machine, say=notes.append)).status == "busy":
        time.sleep(PAUSE)
    return _Report(outcome, tuple(notes))


def _report(ray: Any, report: Any, key: str) -> _Report:
    try:
        found: _Report = ray.get(report)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FiltercovError):  # a full disk, say, is the whole sweep's affair
            raise error.cause from None
        return _Report(Outcome(key, "failed", str(error.cause)))
    except ray.exceptions.RayError as error:
        return _Report(Outcome(key, "failed", f"Ray gave up on it: {str(error).splitlines()[0]}"))
    return found


@contextmanager
def _connected(cluster: Cluster) -> Iterator[Any]:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("the Ray engine needs Ray; pip install 'filtercov[ray]', or use --engine local") from error
    if ray.is_initialized():  # by whoever called us, and theirs to end
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a sweep has nothing to tell anyone
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # tasks without GPUs see none
    local: dict[str, Any] = (
        {"num_cpus": cluster.local_cpus, "include_dashboard": False} if cluster.address is None else {}
    )
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"cannot reach Ray at {cluster.address or 'this machine'}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
