"""Evidence: what finished runs show, without their weights, small enough for a repository.

runs/KEY.json            a run: its configuration, each epoch's numbers, its result; KEY is the configuration's hash
sweeps/NAME--SCALE.json  an experiment that was asked for, and with which options
speeds/NAME--SCALE.json  its timings, where it has any

Every file ends with the SHA-256 of what else it holds, so that none changes unnoticed. No directory is named in it:
data and files are called by their last name, and known by their checksums.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from filtercov.errors import DamagedRunError, FiltercovError, RunError
from filtercov.files import Source
from filtercov.lab.experiments.catalogue.build import Experiment, Options
from filtercov.lab.experiments.runs import Record, accuracies, check_numbers, source_of
from filtercov.lab.experiments.runspec import VERSION, Run, RunSpec, key_of
from filtercov.lab.experiments.sweep import asked_for
from filtercov.lab.experiments.timings import Timings
from filtercov.lab.training import FitResult
from filtercov.lab.training.config import FORMAT
from filtercov.lab.training.rundir import parse_result, read_json

SEAL = "sha256"
ADVICE = "take it back from version control, or keep that run again"


@dataclass(frozen=True)
class KeptRun:
    """A finished run as evidence holds it."""

    config: Mapping[str, Any]
    epochs: tuple[Record, ...]  # the numbers of each
    result: FitResult
    weights_checked: bool = True  # when it was kept; early runs, whose weights could not be read, have a note
    note: str = ""  # of who kept it

    @property
    def key(self) -> str:
        """The name of the run, of whichever version of configurations it is."""
        code = self.config["inputs"].get("code")
        described = {name: value for name, value in self.config.items() if name != "inputs"}
        return key_of(described | ({} if code is None else {"code": code}))

    @property
    def spec(self) -> RunSpec | None:
        """What was run, None of a run whose settings meant something else than they do today."""
        if (self.config["format"], self.config["version"]) != (FORMAT, VERSION):
            return None
        return RunSpec.from_dict({k: v for k, v in self.config.items() if k not in ("format", "version", "inputs")})

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; the first line of the epochs has the names of their numbers."""
        names = list(dict.fromkeys(name for epoch in self.epochs for name in epoch))
        rows = [names, *([epoch.get(name) for name in names] for epoch in self.epochs)]
        about = {"weights_checked": self.weights_checked} | ({"note": self.note} if self.note else {})
        return {"config": dict(self.config), "epochs": rows, "result": vars(self.result), **about}


class Evidence:
    """The evidence in a directory, read as the runs that it is of would be."""

    has_weights = False

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.sweeps = self.root / "sweeps"

    @staticmethod
    def is_at(root: Path) -> bool:
        """Whether a directory holds evidence, rather than runs with their weights."""
        return any((root / "runs").glob("*.json"))

    def file(self, key: str) -> Path:
        """Where a run is kept."""
        return self.root / "runs" / f"{key}.json"

    def read(self, key: str) -> KeptRun:
        """A run that is kept; raise `DamagedRunError` if it is not as it was when it was kept."""
        path = self.file(key)
        try:
            kept = parse_run(read_sealed(path), path)
            if kept.key != key:
                raise RunError(f"{path} holds the run {kept.key}; {ADVICE}")
        except FiltercovError as error:
            raise DamagedRunError(f"run {key} is damaged and will not be used: {error}") from error
        return kept

    @cached_property
    def found(self) -> tuple[tuple[KeptRun, ...], tuple[str, ...]]:
        """All runs that can be used, by key, and what is wrong with the others."""
        kept, damaged = [], []
        for path in sorted((self.root / "runs").glob("*.json")):
            try:
                kept.append(self.read(path.stem))
            except DamagedRunError as error:
                damaged.append(str(error))
        return tuple(kept), tuple(damaged)

    def experiments(self) -> list[tuple[Experiment, Options]]:
        """The experiments that were asked for, with their options."""
        return [asked_for(read_sealed(path), path) for path in sorted(self.sweeps.glob("*.json"))]

    def result(self, run: Run) -> FitResult | None:
        """A kept run's result, None if it is not kept."""
        return self.read(run.key).result if self.file(run.key).exists() else None

    def curve(self, run: Run) -> tuple[float, ...]:
        """The test accuracy of a run after each epoch."""
        return accuracies({"event": "epoch", **epoch} for epoch in self.read(run.key).epochs)

    def speed_file(self, name: str, scale: str) -> Path:
        """Where an experiment's timings are kept."""
        return self.root / "speeds" / f"{name}--{scale}.json"

    def timings(self, name: str, scale: str) -> Timings:
        """An experiment's timings, without steps if there are none."""
        path = self.speed_file(name, scale)
        return Timings.parse(read_sealed(path), path) if path.exists() else Timings()

    def source(self, finished: Iterable[Run], *, beside: Iterable[Path] = ()) -> Source:
        """Where kept runs lie, and one checksum of their files and those `beside` them."""
        files = [self.file(run.key) for run in finished]
        return source_of(self.root, len(files), [*files, *beside])

    @property
    def all_files(self) -> Source:
        """Where everything lies, and one checksum of it."""
        runs, beside = (sorted(self.root.glob(place)) for place in ("runs/*.json", "s*/*.json"))
        return source_of(self.root, len(runs), [*runs, *beside])


def seal(values: Mapping[str, Any]) -> bytes:
    """Values as a file with their checksum: an entry of a list a line, so that versions can be compared.

    >>> print(seal({"name": "net", "epochs": [["epoch"], [1]]}).decode(), end="")
    {
    "name": "net",
    "epochs": [
     ["epoch"],
     [1]
    ],
    "sha256": "f4a4d641ebacdba9032a3afab976cfe5c86cf8db531867289f72483a9bcb8dec"
    }
    """
    lines = [f"{json.dumps(name)}: {_laid_out(value)}" for name, value in {**values, SEAL: _checksum(values)}.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def read_sealed(path: Path) -> dict[str, Any]:
    """The values of a file, if it is what `seal` made."""
    values = read_json(path)
    if values.pop(SEAL, None) != _checksum(values):
        raise RunError(f"{path} does not match its checksum; {ADVICE}")
    return values


def parse_run(values: Mapping[str, Any], path: Path) -> KeptRun:
    """The run that the values of a file are, if its numbers agree with one another."""
    try:
        names, *rows = values["epochs"]
        epochs = tuple(dict(zip(names, row, strict=True)) for row in rows)
        config = values["config"]
        _ = config["format"], config["version"], config["inputs"]
        result = parse_result(values["result"], path)
        kept = KeptRun(config, epochs, result, bool(values["weights_checked"]), str(values.get("note", "")))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} does not hold a run ({error}); {ADVICE}") from error
    check_numbers(result, [{"event": "epoch", **epoch} for epoch in epochs], path)
    return kept


def _checksum(values: Mapping[str, Any]) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _laid_out(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f" {json.dumps(item, allow_nan=False)}" for item in value) + "\n]"
    return json.dumps(value, indent=1 if isinstance(value, Mapping) else None, allow_nan=False)
