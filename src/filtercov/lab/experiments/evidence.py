"""Evidence: what finished runs show, without their weights, small enough for a repository.

runs/KEY.json            a run: its configuration, each epoch's numbers, its result; KEY is the configuration's hash
sweeps/NAME--SCALE.json  an experiment that was asked for, and with which options
speeds/NAME--SCALE.json  its timings, where it has any

Every file ends with the SHA-256 of what else it holds, so that none changes unnoticed. No directory is named in it:
data and files are called by their last name, and known by their checksums. A run's name is the hash of its
configuration, and that names its data. So a run whose data is called by its last name has another name, and so has
every run that starts from it: `portable` gives each the name it has in the evidence.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from filtercov.errors import ConfigError, RunError
from filtercov.lab.experiments import catalogue
from filtercov.lab.experiments.catalogue import Experiment
from filtercov.lab.experiments.initialisations import find, reference_key, shown_init
from filtercov.lab.experiments.runs import KeptRun, Runs, request
from filtercov.lab.experiments.runspec import Run, checksum_of
from filtercov.lab.training.rundir import RunDirectory, differences, parse_result, read_json, write_atomic

SEAL = "sha256"
ADVICE = "take it back from version control, or keep that run again"


class Evidence(Runs):
    """The evidence in a directory, which reads like the runs that it was made from."""

    has_weights = False

    @staticmethod
    def is_at(root: Path) -> bool:
        """Whether a directory holds evidence, rather than runs with their weights."""
        return any((root / "runs").glob("*.json"))

    def values(self, path: Path) -> dict[str, Any]:
        """The values of a file, if it is what `seal` made."""
        values = read_json(path)
        if values.pop(SEAL, None) != checksum_of(values):
            raise RunError(f"{path} does not match its checksum; {ADVICE}")
        return values

    def file(self, key: str) -> Path:
        """Where a run is kept."""
        return self.root / "runs" / f"{key}.json"

    def load(self, key: str) -> KeptRun:
        """The run in a file."""
        values, path = self.values(self.file(key)), self.file(key)
        names, *rows = values["epochs"]
        epochs = tuple(dict(zip(names, row, strict=True)) for row in rows)
        return KeptRun(values["config"], epochs, parse_result(values["result"], path))

    @cached_property
    def found(self) -> tuple[tuple[KeptRun, ...], tuple[str, ...]]:
        """All runs that can be used, by key, and what is wrong with the others."""
        kept, damaged = self.usable(path.stem for path in sorted((self.root / "runs").glob("*.json")))
        return tuple(kept.values()), damaged


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
    lines = [f"{json.dumps(name)}: {_laid_out(value)}" for name, value in {**values, SEAL: checksum_of(values)}.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _laid_out(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        return "[\n" + ",\n".join(f" {json.dumps(item, allow_nan=False)}" for item in value) + "\n]"
    return json.dumps(value, indent=1 if isinstance(value, Mapping) else None, allow_nan=False)


# --- Keeping runs ---


class Kept(NamedTuple):
    """What `keep` did: the runs that are new, those there already, directories of unfinished runs."""

    new: list[str]
    there: list[str]
    unfinished: list[str]


def keep(directories: Sequence[Path | str], evidence: Path | str) -> Kept:
    """Put the finished runs of directories of runs into the evidence.

    What is there stays, but for timings of fewer repeats and requests for fewer runs. If anything is damaged, nothing
    is written.
    """
    found: dict[str, KeptRun] = {}
    files: dict[Path, bytes] = {}
    unfinished: list[str] = []
    there = Evidence(evidence)
    for root in map(Path, directories):
        runs = Runs(root)
        begun = [RunDirectory(path.parent) for path in sorted(root.glob("*/config.json"))]
        if not begun and not any(root.glob("speeds/*.json")):  # an experiment may have timings alone
            raise RunError(f"{root} has no runs; name a directory that has some")
        unfinished += [run.path.name for run in begun if not run.done]
        found |= _portable_runs(runs, [run.path.name for run in begun if run.done])
        for experiment in runs.experiments():
            files |= _request(experiment, there)
            asked = (experiment.name, experiment.scale)
            timings = runs.timings(*asked)
            if timings.repeats > there.timings(*asked).repeats:
                files[there.speed_file(*asked)] = seal(asdict(timings))
    known = [key for key in found if there.file(key).exists()]
    for key in known:
        if changed := differences(there.read(key).config["inputs"], found[key].config["inputs"]):
            raise RunError(f"run {key} is kept already and read something else ({'; '.join(changed)})")
    new = [key for key in found if key not in known]
    for path, content in (files | {there.file(key): seal(found[key].to_dict()) for key in new}).items():
        write_atomic(path, content)
    return Kept(new, known, unfinished)


def portable(run: Run) -> Run:
    """The run, and what it starts from, with this machine's directories removed.

    >>> from filtercov.lab.experiments.runspec import RunSpec
    >>> portable(Run(RunSpec(model="convmixer_8_2_k5_p2", data="folder:/data/images.zip"))).spec.data
    'folder:images.zip'
    """
    reference = portable(run.reference) if run.reference else None
    kind = run.spec.init.partition(":")[0]
    init = f"{kind}:{reference.key}" if reference else _portable_init(run.spec.init)
    return Run(replace(run.spec, data=_portable_data(run.spec.data), init=init), reference)


def _portable_data(name: str) -> str:
    kind, colon, place = name.partition(":")
    return f"{kind}:{Path(place).name}" if colon else name


def _portable_init(init: str) -> str:
    return shown_init(init) if find(init).argument == "FILE" else init


def _portable_runs(runs: Runs, keys: Iterable[str]) -> dict[str, KeptRun]:
    """Finished runs and what they start from, checked, by the names that they have in evidence."""
    kept: dict[str, KeptRun] = {}

    @cache
    def read(key: str) -> Run:
        found = runs.read(key)
        reference = reference_key(found.spec.init)
        run = Run(found.spec, read(reference) if reference else None)
        called = portable(run)
        kept[called.key] = replace(found, config={**found.config, "data": called.spec.data, "init": called.spec.init})
        return run

    for key in keys:
        read(key)
    return kept


def _request(experiment: Experiment, there: Evidence) -> dict[Path, bytes]:
    """The file of an experiment that was asked for, unless one that asks for as many runs is kept."""
    options = experiment.options
    chosen = replace(
        options,
        cifar=_portable_data(options.cifar),
        imagenet=options.imagenet and _portable_data(options.imagenet),
        also=tuple(map(_portable_init, options.also)),
    )
    wanted = catalogue.experiment(experiment.name, scale=experiment.scale, options=chosen)
    path = there.request_file(wanted)
    if path.exists():
        new, old = ({run.key for run in one.runs} for one in (wanted, there.asked_for(path)))
        if not (new <= old or old <= new):
            raise ConfigError(f"{path} is kept already with other options; keep these in evidence of their own")
        if new <= old:
            return {}
    return {path: seal(request(wanted))}
