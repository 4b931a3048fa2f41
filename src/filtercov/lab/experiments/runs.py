"""The directory of all runs: `KEY/` per run, found by the hash of its configuration and checked before it counts.

locks/KEY        held by whoever does the run
damaged/KEY-n    runs that were found incomplete or changed, set aside for a look
sweeps/          what was asked for, so that a report can name what is missing
speeds/          timings of experiments that have any
journal.lock     held for the moment that a line is added to the journal
journal.jsonl    who began, finished, failed or set aside which run, and when
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from filtercov.errors import CheckpointError, DamagedRunError, FiltercovError, RunDirectoryError, StorageError
from filtercov.files import Lock, Source, files_sha256
from filtercov.lab.experiments.graph import Experiment, Run
from filtercov.lab.experiments.inputs import Inputs, changes
from filtercov.lab.experiments.runspec import VERSION, RunSpec
from filtercov.lab.experiments.timings import Timings
from filtercov.lab.training import FitResult, read_metrics, read_result
from filtercov.lab.training.config import FORMAT
from filtercov.lab.training.rundir import START_AGAIN, RunDirectory, read_json, storage_error
from filtercov.lab.training.state import read_checksum
from filtercov.printable import counted
from filtercov.statistics.filter_statistics import FilterStatistics

Record = dict[str, Any]
JOURNAL_PATIENCE = 10.0  # seconds


class Runs:
    """The runs under `root`; `on_checkpoint` is told the directory of one that has just written a checkpoint."""

    has_weights = True

    def __init__(self, root: Path | str, *, on_checkpoint: Callable[[Path], None] | None = None) -> None:
        self.root = Path(root)
        self.on_checkpoint = on_checkpoint
        self.journal = self.root / "journal.jsonl"
        self.sweeps = self.root / "sweeps"

    def directory(self, run: Run) -> RunDirectory:
        """Return the directory of a run."""
        return RunDirectory(self.root / run.key)

    def lock(self, run: Run) -> Path:
        """Return the lock file of a run."""
        return self.root / "locks" / run.key

    def finished(self, run: Run) -> bool:
        """Return whether the run says it is finished; `result` also checks that it is."""
        return self.directory(run).done

    def result(self, run: Run, *, inputs: Inputs | None = None) -> FitResult | None:
        """Return a finished run's result, None for an unfinished one; raise `DamagedRunError` if it does not add up.

        With `inputs`, what the run would read today, it must have read the same.
        """
        directory = self.directory(run)
        if not directory.done:
            return None
        try:
            result = read_result(directory.path)
            assert result is not None  # it is done
            _check_identity(directory, run, inputs or {})
            check_numbers(result, read_metrics(directory.metrics), directory.result)
            check_weights(directory, result)
        except (FiltercovError, ValueError) as error:  # ValueError: metrics that are not JSON
            raise DamagedRunError(f"run {run.key} is damaged and will not be used: {error}") from error
        return result

    def curve(self, run: Run) -> tuple[float, ...]:
        """Return the test accuracy of a run after each epoch."""
        return accuracies(read_metrics(self.directory(run).metrics))

    def speed_file(self, experiment: Experiment) -> Path:
        """Return where an experiment's timings are kept."""
        return self.root / "speeds" / f"{experiment.name}--{experiment.scale}.json"

    def timings(self, experiment: Experiment) -> Timings:
        """Return an experiment's timings, without steps if there are none."""
        path = self.speed_file(experiment)
        if not path.exists():
            return Timings()
        return Timings.parse(read_json(path, advice="delete it to have them taken again"), path)

    def source(self, finished: Iterable[Run], *, place: str | None = None, beside: Iterable[Path] = ()) -> Source:
        """Return where finished runs lie, by `place` or the root as it was given, and the checksum of their numbers.

        That is over the files `beside` and every result.json, which has the weights' checksum in it, and metrics.jsonl.
        """
        directories = [self.directory(run) for run in finished]
        files = [*beside, *(file for directory in directories for file in (directory.result, directory.metrics))]
        where = place or str(self.root)
        name = f"{counted(len(directories), 'run')} in {where}" if directories else where
        return Source(name, files_sha256(self.root, files) if files else "")

    def set_aside(self, run: Run, reason: str) -> Path:
        """Move what a run left out of the way, so that it can be done again; return where it went."""
        damaged = self.root / "damaged"
        try:
            damaged.mkdir(exist_ok=True)
            numbers = [entry.name.removeprefix(f"{run.key}-") for entry in damaged.glob(f"{run.key}-*")]
            taken = max((int(number) for number in numbers if number.isdecimal()), default=0)
            target = damaged / f"{run.key}-{taken + 1}"
            self.directory(run).path.rename(target)
        except OSError as error:
            raise storage_error(damaged, error) from error
        self.note("set aside", run, reason=reason, to=target.name)
        return target

    def note(self, event: str, run: Run, **more: Any) -> None:
        """Append a line to the journal."""
        who = {"host": socket.gethostname(), "process": os.getpid()}
        record = {"time": time.time(), "event": event, "run": run.key, **who, **more}
        self.root.mkdir(parents=True, exist_ok=True)
        lock = Lock(self.root / "journal.lock")
        try:
            # Appending is one step on a local POSIX disk; on Windows and network filesystems lines would overwrite one
            # another. A line is worth waiting for, but not worth losing over a lock.
            lock.acquire(timeout=JOURNAL_PATIENCE)
            with self.journal.open("ab", buffering=0) as journal:
                journal.write(json.dumps(record).encode() + b"\n")
        except OSError as error:
            raise StorageError(
                f"cannot write {self.journal}: {error.strerror}; make room or choose another directory"
            ) from error
        finally:
            lock.release()


def accuracies(metrics: Iterable[Record]) -> tuple[float, ...]:
    """Return the test accuracy of each epoch that metrics have a line of."""
    return tuple(record["test_accuracy"] for record in metrics if record.get("event") == "epoch")


def read_identity(directory: RunDirectory) -> tuple[RunSpec, Inputs]:
    """Return what a run's config.json says it is, and the checksums of what it read."""
    config = read_json(directory.config, advice=START_AGAIN)
    inputs = config.pop("inputs", None)
    versions = (config.pop("format", None), config.pop("version", None))
    if versions != (FORMAT, VERSION):
        raise RunDirectoryError(
            f"its config.json is of format {versions[0]} and version {versions[1]}, this filtercov's are {FORMAT} and "
            f"{VERSION}"
        )
    if not isinstance(inputs, dict) or not isinstance(inputs.get("data"), str):
        raise RunDirectoryError("its config.json does not say what it read")
    return RunSpec.from_dict(config), inputs


def check_numbers(result: FitResult, metrics: Sequence[Record], path: Path) -> None:
    """Raise unless a result repeats what the last line of the metrics says, which was written before it."""
    epochs = [record for record in metrics if record.get("event") == "epoch"]
    measured = [record.get("test_accuracy") for record in epochs]
    if len(epochs) != result.epochs or measured[-1] != result.test_accuracy:
        raise RunDirectoryError(f"the result in {path} does not agree with the metrics")


def check_weights(directory: RunDirectory, result: FitResult) -> None:
    """Raise unless a run's weights are those that its result was written for, and its statistics can be read."""
    if read_checksum(directory.checkpoint) != result.weights_sha256:
        raise CheckpointError(
            f"{directory.checkpoint} holds other weights than {directory.result.name} was written for"
        )
    FilterStatistics.load(directory.path / "statistics.safetensors")


def _check_identity(directory: RunDirectory, run: Run, inputs: Inputs) -> None:
    """Raise unless the run is the one its directory is named for, and read what `inputs` says."""
    spec, there = read_identity(directory)
    if spec.key != run.key:
        raise RunDirectoryError("its config.json is another run's")
    changed = changes(there, inputs)
    if changed:
        raise RunDirectoryError(f"what it read has changed since: {'; '.join(changed)}")
