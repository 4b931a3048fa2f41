"""`keep`: put what finished runs show into a directory of evidence, all of it or nothing, and without names of places.

A run's name is the hash of its configuration, and that names its data. So a run whose data is called by its last name
has another name, and so has every run that starts from it: `portable` gives each the name it has in the evidence.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filtercov.errors import CheckpointError, ConfigError, DamagedRunError, FiltercovError, RunError
from filtercov.files import read_description
from filtercov.lab.experiments.catalogue import Experiment, Options
from filtercov.lab.experiments.evidence import Evidence, KeptRun, read_sealed, seal
from filtercov.lab.experiments.initialisations import find, reference_key
from filtercov.lab.experiments.runs import Runs, check_numbers, check_weights, read_identity
from filtercov.lab.experiments.runspec import Run, changes
from filtercov.lab.experiments.sweep import asked_for, recorded
from filtercov.lab.training import FitResult, read_metrics, read_result
from filtercov.lab.training.rundir import RunDirectory, read_json, storage_error, write_atomic
from filtercov.statistics.shipped import REFERENCES

LARGEST = 5_000_000  # bytes of all evidence together
_KEY = re.compile(r"[0-9a-f]{16}")  # the name of a run in a directory of runs; alone it may have any
# A rooted path after the beginning of a text or a separator: of this system, of a home, of Windows.
_PLACE = re.compile(r"(?:^|[\s:=,;'\"(\[])(?:/[^\s/]|~[/\\]|[A-Za-z]:[\\/]|\\\\)")


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
    each run; one whose weights can no longer be read, because another version wrote them, needs a note that says so.
    What is damaged, or is no run, is refused, and then nothing is written.
    """
    found: dict[str, KeptRun] = {}
    files: dict[Path, bytes] = {}
    timings: dict[Path, bytes] = {}
    unfinished: list[str] = []
    there = Evidence(evidence)
    for directory in map(Path, directories):
        alone = (directory / "config.json").exists()
        runs = [directory] if alone else _runs_of(directory)
        for path in runs:
            if RunDirectory(path).done:
                found |= _chain(path, note)
            elif alone:
                raise RunError(f"{path} is not finished; finish that run, or leave it out")
            else:
                unfinished.append(path.name)
        if not alone:
            asked = recorded(Runs(directory))
            files |= _experiments(asked, there)
            timings |= _timings([experiment for experiment, _ in asked], Runs(directory), there)
    new, known, differing = _compare(found, there)
    files |= timings | {there.file(key): seal(found[key].to_dict()) for key in new}
    for path, content in files.items():
        if place := _PLACE.search(content.decode()):
            shown = content.decode()[place.start() :].partition("\n")[0][:60]
            raise RunError(f"{path.name} would name a place of this machine ({shown.strip()}); it is not kept")
    size = _size(there.root, files)
    if size > LARGEST:
        raise ConfigError(f"evidence may take {LARGEST:,} bytes in all, this would make it {size:,}; keep less")
    _write(files)
    timed = tuple(path.stem.partition("--")[0] for path in timings)
    return Kept(tuple(new), tuple(known), tuple(differing), tuple(unfinished), timed, size)


def portable(run: Run) -> Run:
    """Return the run, and what it starts from, with this machine's directories removed.

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
    """Return an initialisation with the file it names, if any, called by its last name; what ships has but one."""
    kind, _, argument = init.partition(":")
    names_file = find(init).argument == "FILE" and argument not in REFERENCES
    return f"{kind}:{Path(argument).name}" if names_file else init


def _runs_of(directory: Path) -> list[Path]:
    runs = sorted(path.parent for path in directory.glob("*/config.json"))
    if not runs and not any(directory.glob("speeds/*.json")):  # an experiment may have timings alone
        raise RunError(f"{directory} is neither a run nor a directory of runs; name one of either")
    return runs


def _chain(path: Path, note: str) -> dict[str, KeptRun]:
    """Return a finished run and all that it starts from, checked, by the names they have in evidence."""
    run = _read(path)
    kept: dict[str, KeptRun] = {}
    place = path
    at: Run | None = run
    while at is not None:
        called = portable(at)
        kept[called.key] = _checked(RunDirectory(place), called, note)
        at = at.reference
        place = path.parent / at.key if at else place
    return kept


def _read(path: Path) -> Run:
    """Return the run in a directory and, beside it, the one that it starts from."""
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
        weights_checked = _weights_checked(directory, result, note)
        config = read_json(directory.config) | {"data": called.spec.data, "init": called.spec.init}
        epochs = tuple(
            {name: value for name, value in record.items() if name != "event"}
            for record in metrics
            if record.get("event") == "epoch"
        )
        kept = KeptRun(config, epochs, result, weights_checked, note)
        if kept.key != called.key:
            raise RunError("its config.json has more in it than its settings")
        return kept


def _weights_checked(directory: RunDirectory, result: FitResult, note: str) -> bool:
    """Tell whether a run's weights were checked; raise if they are damaged, or unreadable and no note says why."""
    try:
        check_weights(directory, result)
    except CheckpointError as error:
        if read_description(directory.checkpoint) or not directory.checkpoint.exists():
            raise
        if not note:
            raise CheckpointError(
                f"{error}; if an earlier version wrote it, keep it with a note that says so"
            ) from None
        return False
    return True


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except DamagedRunError:
        raise
    except (FiltercovError, ValueError) as error:  # ValueError: metrics that are not JSON
        raise DamagedRunError(f"{path} is damaged or no run of filtercov train's, and is not kept: {error}") from error


def _compare(found: Mapping[str, KeptRun], there: Evidence) -> tuple[list[str], list[str], list[str]]:
    """Return the keys that are new and those that are known, and what differs in the latter."""
    new, known, differing = [], [], []
    for key, kept in found.items():
        if not there.file(key).exists():
            new.append(key)
            continue
        old = there.read(key)
        if changed := changes(old.config["inputs"], kept.config["inputs"]):
            raise RunError(f"run {key} is kept already and read something else ({'; '.join(changed)})")
        if old.result.weights_sha256 != kept.result.weights_sha256:
            accuracies = f"{old.result.test_accuracy:.2f} % there, {kept.result.test_accuracy:.2f} % here"
            differing.append(f"run {key} is kept already, ended differently ({accuracies}), and stays as it is")
        known.append(key)
    return new, known, differing


def _experiments(asked: Sequence[tuple[Experiment, Options]], there: Evidence) -> dict[Path, bytes]:
    """Return the files of the experiments that were asked for under runs."""
    files: dict[Path, bytes] = {}
    for experiment, options in asked:
        called = {"name": experiment.name, "scale": experiment.scale, "options": asdict(_portable_options(options))}
        target = there.sweeps / f"{experiment.name}--{experiment.scale}.json"
        if not target.exists() or _wider(called, read_sealed(target), target):
            files[target] = seal(json.loads(json.dumps(called)))
    return files


def _timings(asked: Sequence[Experiment], runs: Runs, there: Evidence) -> dict[Path, bytes]:
    """Return the files of timings under runs that were repeated more often than those that are there, if any are."""
    return {
        there.speed_file(one.name, one.scale): seal(timings.as_dict())
        for one in asked
        if (timings := runs.timings(one.name, one.scale)).repeats > there.timings(one.name, one.scale).repeats
    }


def _portable_options(options: Options) -> Options:
    return replace(
        options,
        cifar=_data(options.cifar),
        imagenet=options.imagenet and _data(options.imagenet),
        also=tuple(map(_last_name, options.also)),
    )


def _wider(here: Mapping[str, Any], there: Mapping[str, Any], path: Path) -> bool:
    """Tell whether an experiment asks for more runs than the one that is kept; raise if neither has all the other's."""
    new, old = ({run.key for run in asked_for(asked, path)[0].runs} for asked in (here, there))
    if not (new <= old or old <= new):
        raise ConfigError(
            f"{path.name} is kept already with other options ({there['options']} there, {here['options']} here); keep "
            "these in evidence of their own"
        )
    return new > old


def _size(root: Path, files: Mapping[Path, bytes]) -> int:
    there = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and path not in files)
    return there + sum(map(len, files.values()))


def _write(files: Mapping[Path, bytes]) -> None:
    """Write all files, or take back those that are new."""
    new = [path for path in files if not path.exists()]
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
    except BaseException as error:
        for written in new:
            with suppress(OSError):
                written.unlink()
        if isinstance(error, OSError):
            raise storage_error(path, error) from error
        raise
