"""`keep`: put what finished runs show into a directory of evidence, without names of directories.

A run's name is the hash of its configuration, and that names its data. So a run whose data is called by its last name
has another name, and so has every run that starts from it: `portable` gives each the name it has in the evidence.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filtercov.errors import ConfigError, DamagedRunError, FiltercovError, RunError
from filtercov.lab.experiments.catalogue import Experiment, Options
from filtercov.lab.experiments.evidence import Evidence, KeptRun, read_sealed, seal
from filtercov.lab.experiments.initialisations import find, reference_key
from filtercov.lab.experiments.runs import Runs, check_numbers, check_weights, read_identity
from filtercov.lab.experiments.runspec import Run, changes
from filtercov.lab.experiments.sweep import asked_for, recorded
from filtercov.lab.training import read_metrics, read_result
from filtercov.lab.training.rundir import RunDirectory, read_json, storing, write_atomic
from filtercov.statistics.shipped import REFERENCES

_KEY = re.compile(r"[0-9a-f]{16}")  # the name of a run in a directory of runs; alone it may have any


@dataclass(frozen=True)
class Kept:
    """What `keep` did: the runs that are new, there already, there with other numbers, unfinished; timings."""

    new: tuple[str, ...]
    there: tuple[str, ...]
    differing: tuple[str, ...]  # sentences
    unfinished: tuple[str, ...]  # names of directories, left out
    timed: tuple[str, ...]  # experiments whose timings are new
    size: int  # bytes of all evidence


def keep(directories: Sequence[Path | str], evidence: Path | str, *, note: str = "") -> Kept:
    """Put runs into the evidence: of a run's directory that run, of a directory of runs all that are finished.

    Runs that others start from come along. What is there stays, but for timings of fewer repeats. A `note` is kept with
    each run. If anything is damaged, or is no run, nothing is written.
    """
    found: dict[str, KeptRun] = {}
    files: dict[Path, bytes] = {}
    timings: dict[Path, bytes] = {}
    unfinished: list[str] = []
    there = Evidence(evidence)
    for directory in map(Path, directories):
        alone = (directory / "config.json").exists()
        for path in [directory] if alone else _runs_of(directory):
            if RunDirectory(path).done:
                found |= _chain(path, note)
            elif alone:
                raise RunError(f"{path} is not finished; finish that run, or leave it out")
            else:
                unfinished.append(path.name)
        if not alone:
            for experiment, options in recorded(Runs(directory)):
                files |= _request(experiment, options, there)
                timings |= _timings(experiment, Runs(directory), there)
    new = [key for key in found if not there.file(key).exists()]
    known = [key for key in found if key not in new]
    differing = [sentence for key in known if (sentence := _difference(there.read(key), found[key]))]
    for path, content in (files | timings | {there.file(key): seal(found[key].to_dict()) for key in new}).items():
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    timed = tuple(path.stem.partition("--")[0] for path in timings)
    size = sum(path.stat().st_size for path in there.root.rglob("*.json"))
    return Kept(tuple(new), tuple(known), tuple(differing), tuple(unfinished), timed, size)


def portable(run: Run) -> Run:
    """The run, and what it starts from, with this machine's directories removed.

    >>> from filtercov.lab.experiments.runspec import RunSpec
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
    """An initialisation with the file it names, if any, called by its last name; what ships has but one."""
    kind, _, argument = init.partition(":")
    names_file = find(init).argument == "FILE" and argument not in REFERENCES
    return f"{kind}:{Path(argument).name}" if names_file else init


def _runs_of(directory: Path) -> list[Path]:
    runs = sorted(path.parent for path in directory.glob("*/config.json"))
    if not runs and not any(directory.glob("speeds/*.json")):  # an experiment may have timings alone
        raise RunError(f"{directory} is neither a run nor a directory of runs; name one of either")
    return runs


def _chain(path: Path, note: str) -> dict[str, KeptRun]:
    """A finished run and all that it starts from, checked, by the names they have in evidence."""
    run: Run | None = _read(path)
    kept: dict[str, KeptRun] = {}
    while run is not None:
        called = portable(run)
        kept[called.key] = _checked(RunDirectory(path), called, note)
        run = run.reference
        path = path.parent / run.key if run else path
    return kept


def _read(path: Path) -> Run:
    """The run in a directory and, beside it, the one that it starts from."""
    with _damage_named(path):
        spec, _ = read_identity(RunDirectory(path))
        if _KEY.fullmatch(path.name) and path.name != spec.key:
            raise RunError("its config.json is another run's")
        key = reference_key(spec.init)
        return Run(spec, _read(path.parent / key) if key else None)


def _checked(directory: RunDirectory, called: Run, note: str) -> KeptRun:
    with _damage_named(directory.path):
        result = read_result(directory.path)
        if result is None:
            raise RunError("it is not finished")
        metrics = read_metrics(directory.metrics)
        check_numbers(result, metrics, directory.result)
        check_weights(directory, result)
        config = read_json(directory.config) | {"data": called.spec.data, "init": called.spec.init}
        epochs = tuple(record for record in metrics if record.pop("event", None) == "epoch")
        kept = KeptRun(config, epochs, result, note=note)
        if kept.key != called.key:
            raise RunError("its config.json has more in it than its settings")
        return kept


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except DamagedRunError:
        raise
    except (FiltercovError, ValueError) as error:  # ValueError: metrics that are not JSON
        raise DamagedRunError(f"{path} is damaged or no run of filtercov train's, and is not kept: {error}") from error


def _difference(old: KeptRun, new: KeptRun) -> str:
    """Say that a run ended differently from the one that is kept; refuse one that read something else."""
    if changed := changes(old.config["inputs"], new.config["inputs"]):
        raise RunError(f"run {old.key} is kept already and read something else ({'; '.join(changed)})")
    if old.result.weights_sha256 == new.result.weights_sha256:
        return ""
    accuracies = f"{old.result.test_accuracy:.2f} % there, {new.result.test_accuracy:.2f} % here"
    return f"run {old.key} is kept already, ended differently ({accuracies}), and stays as it is"


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
        kept = read_sealed(path)
        new, old = ({run.key for run in asked_for(values, path)[0].runs} for values in (asked, kept))
        if not (new <= old or old <= new):
            raise ConfigError(
                f"{path.name} is kept already with other options ({kept['options']} there, {asked['options']} here); "
                "keep these in evidence of their own"
            )
        if new <= old:
            return {}
    return {path: seal(asked)}


def _timings(experiment: Experiment, runs: Runs, there: Evidence) -> dict[Path, bytes]:
    """The file of an experiment's timings, if they were repeated more often than those that are kept."""
    asked = (experiment.name, experiment.scale)
    timings = runs.timings(*asked)
    better = timings.repeats > there.timings(*asked).repeats
    return {there.speed_file(*asked): seal(timings.as_dict())} if better else {}
