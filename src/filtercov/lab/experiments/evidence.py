"""Evidence: what finished runs show, without their weights, small enough for a repository.

runs/KEY.json            a run: its configuration, each epoch's numbers, its result; KEY is the configuration's hash
sweeps/NAME--SCALE.json  an experiment that was asked for, and with which options
speeds/NAME--SCALE.json  its timings, where it has any

Every file ends with the SHA-256 of what else it holds, so that none changes unnoticed. No directory is named in it:
data and files are called by their last name, and known by their checksums. A run's name is the hash of its
configuration, and that names its data. So a run whose data is called by its last name has another name, and so has
every run that starts from it: `portable` gives each the name it has in the evidence.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from filtercov.errors import ConfigError, DamagedRunError, FiltercovError, RunError
from filtercov.files import Source
from filtercov.lab.experiments.catalogue import Experiment, Options
from filtercov.lab.experiments.initialisations import reference_key, with_file
from filtercov.lab.experiments.runs import Results, Runs, accuracies, asked_for, check_numbers, read_finished
from filtercov.lab.experiments.runspec import VERSION, Run, RunSpec, changes, key_of
from filtercov.lab.training import FitResult, read_metrics
from filtercov.lab.training.config import FORMAT
from filtercov.lab.training.rundir import Record, RunDirectory, parse_result, read_json, storing, write_atomic

SEAL = "sha256"
ADVICE = "take it back from version control, or keep that run again"


@dataclass(frozen=True)
class KeptRun:
    """A finished run as evidence holds it."""

    config: Mapping[str, Any]
    epochs: tuple[Record, ...]  # the numbers of each
    result: FitResult

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

    @property
    def metrics(self) -> list[Record]:
        """The lines of metrics.jsonl at the ends of epochs."""
        return [{"event": "epoch", **epoch} for epoch in self.epochs]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; the first line of the epochs has the names of their numbers."""
        names = list(dict.fromkeys(name for epoch in self.epochs for name in epoch))
        rows = [names, *([epoch.get(name) for name in names] for epoch in self.epochs)]
        return {"config": dict(self.config), "epochs": rows, "result": vars(self.result)}


class Evidence(Results):
    """The evidence in a directory, read as the runs that it is of would be."""

    has_weights = False

    @staticmethod
    def is_at(root: Path) -> bool:
        """Whether a directory holds evidence, rather than runs with their weights."""
        return any((root / "runs").glob("*.json"))

    def values(self, path: Path) -> dict[str, Any]:
        """The values of a file, if it is what `seal` made."""
        values = read_json(path)
        if values.pop(SEAL, None) != _checksum(values):
            raise RunError(f"{path} does not match its checksum; {ADVICE}")
        return values

    def file(self, key: str) -> Path:
        """Where a run is kept."""
        return self.root / "runs" / f"{key}.json"

    def read(self, key: str) -> KeptRun:
        """A run that is kept; raise `DamagedRunError` if it is not as it was when it was kept."""
        path = self.file(key)
        try:
            kept = parse_run(self.values(path), path)
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

    def result(self, run: Run) -> FitResult | None:
        """A kept run's result, None if it is not kept."""
        return self.read(run.key).result if self.file(run.key).exists() else None

    def curve(self, run: Run) -> tuple[float, ...]:
        """The test accuracy of a run after each epoch."""
        return accuracies(self.read(run.key).metrics)

    def files(self, run: Run) -> list[Path]:
        """The file where a run is kept."""
        return [self.file(run.key)]

    @property
    def all_files(self) -> Source:
        """Where everything lies, and one checksum of it."""
        runs, beside = (sorted(self.root.glob(place)) for place in ("runs/*.json", "s*/*.json"))
        return self._source(len(runs), [*runs, *beside])


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


def parse_run(values: Mapping[str, Any], path: Path) -> KeptRun:
    """The run that the values of a file are, if its numbers agree with one another."""
    try:
        names, *rows = values["epochs"]
        epochs = tuple(dict(zip(names, row, strict=True)) for row in rows)
        kept = KeptRun(values["config"], epochs, parse_result(values["result"], path))
        check_numbers(kept.result, kept.metrics, path)
        _ = kept.key, kept.config["format"], kept.config["version"]
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} does not hold a run ({error}); {ADVICE}") from error
    return kept


def _checksum(values: Mapping[str, Any]) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _laid_out(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f" {json.dumps(item, allow_nan=False)}" for item in value) + "\n]"
    return json.dumps(value, indent=1 if isinstance(value, Mapping) else None, allow_nan=False)


# --- Keeping runs ---


class Kept(NamedTuple):
    """What `keep` did: the runs that are new, those there already, directories of unfinished runs."""

    new: list[str]
    there: list[str]
    unfinished: list[str]


def keep(directories: Sequence[Path | str], evidence: Path | str) -> Kept:
    """Put runs into the evidence: of a run's directory that run, of a directory of runs all that are finished.

    Runs that others start from come along. What is there stays, but for timings of fewer repeats and requests for fewer
    runs. If anything is damaged, or is no run, nothing is written.
    """
    found: dict[str, KeptRun] = {}
    files: dict[Path, bytes] = {}
    unfinished: list[str] = []
    there = Evidence(evidence)
    for directory in map(Path, directories):
        alone = (directory / "config.json").exists()
        for path in [directory] if alone else _runs_of(directory):
            if RunDirectory(path).done:
                found |= _chain(path)[1]
            elif alone:
                raise RunError(f"{path} is not finished; finish that run, or leave it out")
            else:
                unfinished.append(path.name)
        for experiment, options in Runs(directory).experiments():
            files |= _request(experiment, options, there)
            files |= _timings(experiment, Runs(directory), there)
    known = [key for key in found if there.file(key).exists()]
    for key in known:
        if changed := changes(there.read(key).config["inputs"], found[key].config["inputs"]):
            raise RunError(f"run {key} is kept already and read something else ({'; '.join(changed)})")
    new = [key for key in found if key not in known]
    for path, content in (files | {there.file(key): seal(found[key].to_dict()) for key in new}).items():
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    return Kept(new, known, unfinished)


def portable(run: Run) -> Run:
    """The run, and what it starts from, with this machine's directories removed.

    >>> portable(Run(RunSpec(model="convmixer_8_2_k5_p2", data="folder:/data/images.zip"))).spec.data
    'folder:images.zip'
    """
    reference = portable(run.reference) if run.reference else None
    kind = run.spec.init.partition(":")[0]
    init = f"{kind}:{reference.key}" if reference else _last_name(run.spec.init)
    return Run(replace(run.spec, data=_data(run.spec.data), init=init), reference)


def _data(name: str) -> str:
    kind, colon, place = name.partition(":")
    return f"{kind}:{Path(place).name}" if colon else name


def _last_name(init: str) -> str:
    return with_file(init, lambda path: path.name)


def _runs_of(directory: Path) -> list[Path]:
    runs = sorted(path.parent for path in directory.glob("*/config.json"))
    if not runs and not any(directory.glob("speeds/*.json")):  # an experiment may have timings alone
        raise RunError(f"{directory} is neither a run nor a directory of runs; name one of either")
    return runs


def _chain(path: Path) -> tuple[Run, dict[str, KeptRun]]:
    """A finished run; and it with all that it starts from, beside it, checked, by the names they have in evidence."""
    directory = RunDirectory(path)
    spec, _, result = read_finished(directory)
    key = reference_key(spec.init)
    reference, kept = _chain(path.parent / key) if key else (None, {})
    run = Run(spec, reference)
    called = portable(run)
    config = read_json(directory.config) | {"data": called.spec.data, "init": called.spec.init}
    epochs = tuple(record for record in read_metrics(directory.metrics) if record.pop("event", None) == "epoch")
    return run, {**kept, called.key: KeptRun(config, epochs, result)}


def _request(experiment: Experiment, options: Options, there: Evidence) -> dict[Path, bytes]:
    """The file of an experiment that was asked for, unless one that asks for as many runs is kept."""
    chosen = replace(
        options,
        cifar=_data(options.cifar),
        imagenet=options.imagenet and _data(options.imagenet),
        also=tuple(map(_last_name, options.also)),
    )
    asked = json.loads(json.dumps({"name": experiment.name, "scale": experiment.scale, "options": asdict(chosen)}))
    path = there.sweeps / f"{experiment.name}--{experiment.scale}.json"
    if path.exists():
        new, old = ({run.key for run in asked_for(values, path)[0].runs} for values in (asked, there.values(path)))
        if not (new <= old or old <= new):
            raise ConfigError(f"{path} is kept already with other options; keep these in evidence of their own")
        if new <= old:
            return {}
    return {path: seal(asked)}


def _timings(experiment: Experiment, runs: Runs, there: Evidence) -> dict[Path, bytes]:
    """The file of an experiment's timings, if they were repeated more often than those that are kept."""
    asked = (experiment.name, experiment.scale)
    timings = runs.timings(*asked)
    better = timings.repeats > there.timings(*asked).repeats
    return {there.speed_file(*asked): seal(timings.as_dict())} if better else {}
