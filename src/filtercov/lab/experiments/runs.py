"""The directory of all runs: `KEY/` per run, found by the hash of its configuration and checked before it counts.

locks/KEY        held by whoever does the run
damaged/KEY-n    runs that were found incomplete or changed, set aside for a look
sweeps/          what was asked for, so that a report can name what is missing
speeds/          timings of experiments that have any
journal.jsonl    who began, finished, failed or set aside which run, and when
"""

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filtercov.errors import CheckpointError, ConfigError, DamagedRunError, FiltercovError, RunError
from filtercov.files import Lock, Source, files_sha256
from filtercov.lab.experiments.runspec import VERSION, Inputs, Run, RunSpec, changes
from filtercov.lab.experiments.timings import Timings
from filtercov.lab.training import FitResult, read_metrics, read_result
from filtercov.lab.training.config import FORMAT
from filtercov.lab.training.rundir import START_AGAIN, RunDirectory, read_json, storing
from filtercov.lab.training.state import read_checksum
from filtercov.printable import counted
from filtercov.statistics.filter_statistics import FilterStatistics

Record = dict[str, Any]  # a line of metrics.jsonl


class Runs:
    """The runs under `root`."""

    has_weights = True

    def __init__(self, root: Path | str) -> None:
        if "://" in str(root):
            raise ConfigError(f"runs need a directory that every worker sees, got {root}; mount it, or name another")
        self.root = Path(root)
        self.journal = self.root / "journal.jsonl"
        self.sweeps = self.root / "sweeps"

    def directory(self, run: Run) -> RunDirectory:
        """The directory of a run."""
        return RunDirectory(self.root / run.key)

    def result(self, run: Run, *, inputs: Inputs | None = None) -> FitResult | None:
        """A finished run's result, None for an unfinished one; raise `DamagedRunError` if it does not add up.

        With `inputs`, what the run would read today, it must have read the same.
        """
        directory = self.directory(run)
        if not directory.done:
            return None
        try:
            result = read_result(directory.path)
            assert result is not None  # it is done
            spec, there = read_identity(directory)
            if spec.key != run.key:
                raise RunError("its config.json is another run's")
            if changed := changes(there, inputs or {}):
                raise RunError(f"what it read has changed since: {'; '.join(changed)}")
            check_numbers(result, read_metrics(directory.metrics), directory.result)
            check_weights(directory, result)
        except (FiltercovError, ValueError) as error:  # ValueError: metrics that are not JSON
            raise DamagedRunError(f"run {run.key} is damaged and will not be used: {error}") from error
        return result

    def curve(self, run: Run) -> tuple[float, ...]:
        """The test accuracy of a run after each epoch."""
        return accuracies(read_metrics(self.directory(run).metrics))

    def speed_file(self, name: str, scale: str) -> Path:
        """Where an experiment's timings are kept."""
        return self.root / "speeds" / f"{name}--{scale}.json"

    def timings(self, name: str, scale: str) -> Timings:
        """An experiment's timings, without steps if there are none."""
        path = self.speed_file(name, scale)
        if not path.exists():
            return Timings()
        return Timings.parse(read_json(path, advice="delete it to have them taken again"), path)

    def source(self, finished: Iterable[Run], *, beside: Iterable[Path] = ()) -> Source:
        """Where finished runs are, and one checksum of their numbers.

        That is over the files `beside` and every result.json, which has the weights' checksum in it, and metrics.jsonl.
        """
        directories = [self.directory(run) for run in finished]
        files = [*beside, *(file for directory in directories for file in (directory.result, directory.metrics))]
        return source_of(self.root, len(directories), files)

    @contextmanager
    def claim(self, run: Run) -> Iterator[bool]:
        """Try to take a run's lock and yield whether it was free; it ends with its owner, however that dies."""
        path = self.root / "locks" / run.key
        lock = Lock(path)
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            mine = lock.acquire()
        try:
            yield mine
        finally:
            lock.release()

    def set_aside(self, run: Run, reason: str) -> Path:
        """Move what a run left out of the way, so that it can be done again; return where it went."""
        damaged = self.root / "damaged"
        with storing(damaged):
            damaged.mkdir(exist_ok=True)
            numbers = [entry.name.removeprefix(f"{run.key}-") for entry in damaged.glob(f"{run.key}-*")]
            taken = max((int(number) for number in numbers if number.isdecimal()), default=0)
            target = damaged / f"{run.key}-{taken + 1}"
            self.directory(run).path.rename(target)
        self.note("set aside", run, reason=reason, to=target.name)
        return target

    def note(self, event: str, run: Run, **more: Any) -> None:
        """Append a line to the journal."""
        who = {"host": socket.gethostname(), "process": os.getpid()}
        record = {"time": time.time(), "event": event, "run": run.key, **who, **more}
        with storing(self.journal):
            self.root.mkdir(parents=True, exist_ok=True)
            with self.journal.open("ab", buffering=0) as journal:  # one write, so that lines of others stay whole
                journal.write(json.dumps(record).encode() + b"\n")


def source_of(root: Path, runs: int, files: Sequence[Path]) -> Source:
    """How to call some runs under a root, and one checksum of their files."""
    name = f"{counted(runs, 'run')} in {root}" if runs else str(root)
    return Source(name, files_sha256(root, files) if files else "")


def accuracies(metrics: Iterable[Record]) -> tuple[float, ...]:
    """The test accuracy of each epoch in the metrics."""
    return tuple(record["test_accuracy"] for record in metrics if record.get("event") == "epoch")


def read_identity(directory: RunDirectory) -> tuple[RunSpec, Inputs]:
    """What a run's config.json says it is, and the checksums of what it read."""
    config = read_json(directory.config, advice=START_AGAIN)
    inputs = config.pop("inputs", None)
    versions = (config.pop("format", None), config.pop("version", None))
    if versions != (FORMAT, VERSION):
        raise RunError(
            f"its config.json is of format {versions[0]} and version {versions[1]}, this filtercov's are {FORMAT} and "
            f"{VERSION}"
        )
    if not isinstance(inputs, dict) or not isinstance(inputs.get("data"), str):
        raise RunError("its config.json does not say what it read")
    return RunSpec.from_dict(config), inputs


def check_numbers(result: FitResult, metrics: Sequence[Record], path: Path) -> None:
    """Raise unless a result repeats what the last line of the metrics says, which was written before it."""
    measured = [record.get("test_accuracy") for record in metrics if record.get("event") == "epoch"]
    if len(measured) != result.epochs or measured[-1] != result.test_accuracy:
        raise RunError(f"the result in {path} does not agree with the metrics")


def check_weights(directory: RunDirectory, result: FitResult) -> None:
    """Raise unless a run's weights are those that its result was written for, and its statistics can be read."""
    if read_checksum(directory.checkpoint) != result.weights_sha256:
        raise CheckpointError(
            f"{directory.checkpoint} holds other weights than {directory.result.name} was written for"
        )
    FilterStatistics.load(directory.path / "statistics.safetensors")
