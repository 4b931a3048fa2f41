"""The directory of all runs: `KEY/` per run, found by the hash of its configuration and checked before it counts.

locks/KEY        held by the process that does the run
damaged/KEY-n    runs that were found incomplete or changed, set aside for a look
sweeps/          what was asked for, so that a report can name what is missing
speeds/          timings of experiments that have any
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from filtercov.errors import CheckpointError, ConfigError, DamagedRunError, FiltercovError, RunError
from filtercov.files import Lock
from filtercov.lab.experiments.catalogue import Experiment, Options, experiment
from filtercov.lab.experiments.runspec import VERSION, Run, RunSpec, key_of
from filtercov.lab.experiments.timings import Timings
from filtercov.lab.training import FitResult, read_metrics, read_result
from filtercov.lab.training.config import FORMAT
from filtercov.lab.training.rundir import START_AGAIN, Record, RunDirectory, read_json, storing, write_json
from filtercov.lab.training.state import read_checksum
from filtercov.statistics.filter_statistics import FilterStatistics

_KEY = re.compile(r"[0-9a-f]{16}")  # the name of a run beside others; in a directory of its own it may have any


@dataclass(frozen=True)
class KeptRun:
    """A finished run, as its directory or evidence holds it."""

    config: Mapping[str, Any]
    epochs: tuple[Record, ...]  # the numbers of each
    result: FitResult

    @property
    def key(self) -> str:
        """The name of the run."""
        described = {name: value for name, value in self.config.items() if name != "inputs"}
        return key_of(described, self.config["inputs"].get("code"))

    @property
    def spec(self) -> RunSpec:
        """The run's specification; raise `RunError` if its settings meant something else than they do today."""
        settings = {name: value for name, value in self.config.items() if name not in ("inputs", "format", "version")}
        versions = (self.config.get("format"), self.config.get("version"))
        if versions != (FORMAT, VERSION):
            raise RunError(f"it is of format and version {versions}, this filtercov's are {(FORMAT, VERSION)}")
        return RunSpec.from_dict(settings)

    @property
    def curve(self) -> tuple[float, ...]:
        """The test accuracy after each epoch."""
        return tuple(epoch["test_accuracy"] for epoch in self.epochs)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; the first line of the epochs has the names of their numbers."""
        names = list(dict.fromkeys(name for epoch in self.epochs for name in epoch))
        rows = [names, *([epoch.get(name) for name in names] for epoch in self.epochs)]
        return {"config": dict(self.config), "epochs": rows, "result": vars(self.result)}


class Runs:
    """The runs under `root`, the experiments that were asked for, and their timings."""

    has_weights = True

    def __init__(self, root: Path | str) -> None:
        if "://" in str(root):
            raise ConfigError(f"runs need a directory that every worker sees, got {root}; mount it, or name another")
        self.root = Path(root)

    def directory(self, run: Run) -> RunDirectory:
        """The directory of a run."""
        return RunDirectory(self.root / run.key)

    def file(self, key: str) -> Path:
        """The file that is there once a run is finished: its result.json, which has the weights' checksum in it."""
        return self.root / key / "result.json"

    def read(self, key: str) -> KeptRun:
        """A finished run; raise `DamagedRunError` unless its files agree with one another and with its name."""
        path = self.file(key)
        try:
            found = self.load(key)
            lengths = {found.spec.train.epochs, len(found.epochs), found.result.epochs}
            if len(lengths) > 1 or found.curve[-1] != found.result.test_accuracy:
                raise RunError(f"the result in {path} does not agree with the metrics")
            if key != found.key and (_KEY.fullmatch(key) or not self.has_weights):
                raise RunError(f"{path} is another run's, {found.key}")
        except (FiltercovError, AttributeError, KeyError, TypeError, ValueError) as error:  # not JSON, or other values
            raise DamagedRunError(f"run {key} is damaged and will not be used: {error}") from error
        return found

    def load(self, key: str) -> KeptRun:
        """The run in a directory, its weights and statistics compared with their checksums."""
        directory = RunDirectory(self.root / key)
        result, metrics = read_result(directory.path), read_metrics(directory.metrics)
        if result is None:
            raise RunError("it is not finished")
        if read_checksum(directory.checkpoint) != result.weights_sha256:
            raise CheckpointError(f"{directory.checkpoint} holds other weights than its result was written for")
        FilterStatistics.load(directory.path / "statistics.safetensors")
        epochs = tuple(record for record in metrics if record.pop("event", None) == "epoch")
        return KeptRun(read_json(directory.config, advice=START_AGAIN), epochs, result)

    def values(self, path: Path) -> dict[str, Any]:
        """The values of a JSON file."""
        return read_json(path)

    def finished(self, key: str) -> KeptRun | None:
        """A run, if it is finished."""
        there = os.path.exists(self.file(key))  # noqa: PTH110 - Path.exists raises where it may not look
        return self.read(key) if there else None

    def usable(self, keys: Iterable[str]) -> tuple[dict[str, KeptRun], tuple[str, ...]]:
        """The finished, whole runs, and a sentence for each damaged one."""
        found, damaged = {}, []
        for key in keys:
            try:
                if run := self.finished(key):
                    found[key] = run
            except DamagedRunError as error:
                damaged.append(str(error))
        return found, tuple(damaged)

    def record(self, wanted: Experiment) -> None:
        """Note that an experiment was asked for, so that a report can name what is missing."""
        write_json(self.request_file(wanted), request(wanted))

    def request_file(self, wanted: Experiment) -> Path:
        """The file that notes that an experiment was asked for."""
        return self.root / "sweeps" / f"{wanted.name}--{wanted.scale}.json"

    def experiments(self) -> list[Experiment]:
        """The experiments that were asked for."""
        return [self.asked_for(path) for path in sorted((self.root / "sweeps").glob("*.json"))]

    def asked_for(self, path: Path) -> Experiment:
        """The experiment that a file asks for."""
        asked = self.values(path)
        options = Options(**{**asked["options"], "also": tuple(asked["options"]["also"])})
        return experiment(asked["name"], scale=asked["scale"], options=options)

    def speed_file(self, name: str, scale: str) -> Path:
        """The file of an experiment's timings."""
        return self.root / "speeds" / f"{name}--{scale}.json"

    def timings(self, name: str, scale: str) -> Timings:
        """An experiment's timings, without steps if there are none."""
        path = self.speed_file(name, scale)
        return Timings.parse(self.values(path)) if path.exists() else Timings()

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

    def set_aside(self, run: Run) -> None:
        """Move what a run left out of the way, so that it can be done again."""
        damaged = self.root / "damaged"
        with storing(damaged):
            damaged.mkdir(exist_ok=True)
            number = next(number for number in count(1) if not (damaged / f"{run.key}-{number}").exists())
            self.directory(run).path.rename(damaged / f"{run.key}-{number}")


def request(wanted: Experiment) -> dict[str, Any]:
    """The values that `asked_for` reads."""
    return {"name": wanted.name, "scale": wanted.scale, "options": asdict(wanted.options)}
