"""A run is a directory; all its files but the checkpoints are written and read here.

config.json              what was asked for; decides whether a command continues this run
metrics.jsonl            one line per epoch and per logged step
state.safetensors        all that is needed to continue; there until the run is finished
checkpoint.safetensors   the weights of the last checkpoint, under the model's own names
ema.safetensors          their moving average, with `ema_decay`
filters.watched/         the depthwise filters over training, with `watch_interval`
result.json              the final numbers; the run is done when this exists
lock                     held, with its owner's name, while someone trains here
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from filtercov.errors import RunBusyError, RunError, StorageError
from filtercov.files import Lock, atomic_write

# What to do about a changed or lost file of a run that only the whole training could make again.
START_AGAIN = "restore it, or delete the run's directory to start again"
# What to do where a run cannot be written.
CONTINUE = (
    "make room or choose another run directory, then run the same command again to continue from the last checkpoint"
)

Record = dict[str, Any]  # a line of metrics.jsonl


class RunDirectory:
    """The files of one run, locked against other trainers while entered."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config, self.metrics = self.path / "config.json", self.path / "metrics.jsonl"
        self.state, self.ema = self.path / "state.safetensors", self.path / "ema.safetensors"
        self.checkpoint, self.result = self.path / "checkpoint.safetensors", self.path / "result.json"
        self.watched = self.path / "filters.watched"
        self._lock = Lock(self.path / "lock")

    @property
    def done(self) -> bool:
        """Whether the run is finished."""
        return os.path.exists(self.result)  # noqa: PTH110 - Path.exists raises for directories that cannot be read

    def __enter__(self) -> Self:
        with storing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            names = sorted(entry.name for entry in self.path.iterdir())
            foreign = [name for name in names if name != "lock" and not name.endswith(".tmp")]
            if foreign and not self.config.exists():  # in this order: another process may begin a run in between
                raise RunError(f"{self.path} is neither a run nor empty (it holds {foreign[0]}); choose an empty one")
            if not self._lock.acquire():
                busy = f"someone is already training in {self.path} ({self._lock.owner() or 'unknown'})"
                raise RunBusyError(f"{busy}; wait for them, stop them, or choose another run directory")
            for leftover in self.path.glob(".*.tmp"):  # unfinished files of writers that were killed
                leftover.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def append_metrics(self, record: Record) -> None:
        """Write one line of metrics, of finite numbers."""
        with storing(self.metrics), self.metrics.open("ab") as file:
            file.write(json.dumps(record, allow_nan=False).encode() + b"\n")

    def truncate_metrics(self, size: int) -> None:
        """Keep the first `size` bytes, as many as there were at the last checkpoint: later steps will be repeated."""
        with storing(self.metrics), self.metrics.open("ab") as file:
            file.truncate(size)

    def read_result(self) -> "FitResult":
        """The result of the run, which is finished."""
        return parse_result(read_json(self.result, advice=START_AGAIN), self.result)

    def check(self, config: Mapping[str, Any]) -> None:
        """Raise unless the directory belongs to `config`."""
        there = read_json(self.config, advice=START_AGAIN)
        here = json.loads(json.dumps(config))  # tuples are lists once stored
        if there != here:
            raise RunError(
                f"{self.path} holds a run with another configuration ({'; '.join(differences(there, here))}); use "
                "another run directory, or delete that one to start again"
            )


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """A phrase for each value in which two nested mappings differ.

    >>> differences({"a": {"b": 1}}, {"a": {"b": 2}})
    ['a.b is 1 there and 2 here']
    """
    found = []
    for key in sorted({*there, *here}):
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} is {old!r} there and {new!r} here")
    return found


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """The final numbers of a run; accuracies are in percent, a test loss that is not finite is None."""

    epochs: int
    steps: int
    train_loss: float
    train_accuracy: float
    test_loss: float | None
    test_accuracy: float
    ema_test_accuracy: float | None = None
    seconds: float
    weights_sha256: str  # of checkpoint.safetensors, equal for equal weights
    extra: Mapping[str, Any] = field(default_factory=dict)  # added by the caller of `fit`


def read_result(run_dir: Path | str) -> FitResult | None:
    """The result of a finished run, None for an unfinished one."""
    run = RunDirectory(run_dir)
    return run.read_result() if run.done else None


def parse_result(values: Mapping[str, Any], path: Path) -> FitResult:
    """The result with these values, which were read from `path`."""
    try:
        return FitResult(**values)
    except TypeError as error:  # fields are missing or unknown
        raise RunError(f"{path} does not hold a result ({error}); {START_AGAIN}") from error


def read_metrics(path: Path) -> list[Record]:
    """The records of a metrics file, without a last line that was cut short."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def read_json(path: Path, *, advice: str = "restore it, or delete it to have it made again") -> dict[str, Any]:
    """The object in a JSON file; the error for a file without one ends in `advice`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}; {advice}") from error
    if not isinstance(value, dict):
        raise RunError(f"{path} does not hold a JSON object; {advice}")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object to a JSON file, whole or not at all."""
    write_atomic(path, json.dumps(value, indent=2, allow_nan=False).encode() + b"\n")


def write_atomic(path: Path, data: bytes, *, advice: str = CONTINUE) -> None:
    """Give a file these contents, or leave it as it was; its directory is made if there is none."""
    with storing(path, advice=advice):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)


@contextmanager
def storing(path: Path, *, advice: str = CONTINUE) -> Iterator[None]:
    """Turn an `OSError` of writing to `path` into a `StorageError`."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error, advice) from error


def storage_error(path: Path, error: OSError, advice: str = CONTINUE) -> StorageError:
    """The error for a file that could not be written: which, why, and what to do about it."""
    return StorageError(f"cannot write {path}: {error.strerror or error}; {advice}")
