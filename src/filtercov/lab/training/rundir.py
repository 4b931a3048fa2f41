"""A run is a directory: who may write to it, which configuration it belongs to, and whether it is finished.

config.json              what was asked for; decides whether a command continues this run
metrics.jsonl            one line per epoch and per logged step
state.safetensors        all that is needed to continue; there until the run is finished
checkpoint.safetensors   the weights of the last checkpoint, under the model's own names
ema.safetensors          their moving average, where one is kept
filters.watched/         what was seen of the depthwise filters while they were trained, where that was asked for
result.json              the final numbers; the run is done when this exists
lock                     held, with its owner's name, while someone trains here
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filtercov.errors import RunBusyError, RunDirectoryError, RunMismatchError, StorageError
from filtercov.files import Lock
from filtercov.lab.training.storage import remove_temporaries, storage_error, write_atomic

# What to do about a file of a run that was changed or lost: nothing makes it again but the whole training.
START_AGAIN = "restore it, or delete the run's directory to start again"


class RunDirectory:
    """The files of one run, locked against other trainers while entered."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.jsonl"
        self.state = self.path / "state.safetensors"
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.ema = self.path / "ema.safetensors"
        self.watched = self.path / "filters.watched"
        self.result = self.path / "result.json"
        self.tensorboard = self.path / "tensorboard"
        self._lock = Lock(self.path / "lock")

    @property
    def done(self) -> bool:
        """Whether the run is finished."""
        try:
            return self.result.exists()
        except OSError as error:
            raise StorageError(
                f"cannot look into {self.path}: {error.strerror}; make it readable or choose another run directory"
            ) from error

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            foreign = sorted(self._foreign_files())
            if foreign and not self.config.exists():  # looked for last: another process may just have begun a run here
                raise RunDirectoryError(
                    f"{self.path} is neither a run nor empty (it holds {foreign[0]}); choose a new or empty directory"
                )
            self._acquire()
            try:
                remove_temporaries(self.path)
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            raise storage_error(self.path, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def claim(self, config: Mapping[str, Any]) -> None:
        """Make the directory belong to `config`, or raise if it belongs to another."""
        if not self.config.exists():
            write_atomic(self.config, json.dumps(config, indent=2, allow_nan=False).encode() + b"\n")
        else:
            self.check(config)

    def check(self, config: Mapping[str, Any]) -> None:
        """Raise if the directory belongs to a configuration other than `config`."""
        there = read_json(self.config, advice=START_AGAIN)
        here = json.loads(json.dumps(config))  # tuples are lists once stored
        if there != here:
            raise RunMismatchError(
                f"{self.path} holds a run with another configuration ({'; '.join(differences(there, here))}); use "
                "another run directory, or delete that one to start again"
            )

    def _foreign_files(self) -> set[str]:
        mine = {self._lock.path.name}
        return {entry.name for entry in self.path.iterdir() if entry.name not in mine and entry.suffix != ".tmp"}

    def _acquire(self) -> None:
        if self._lock.acquire():
            return
        if self._lock.held_here():
            raise RunBusyError(f"this process is already training in {self.path}; choose another run directory")
        raise RunBusyError(
            f"another process is training in {self.path} ({self._lock.owner() or 'unknown'}); wait for it, stop it, or "
            "choose another run directory"
        )


def read_json(path: Path, *, advice: str = "restore it, or delete it to have it made again") -> dict[str, Any]:
    """Return the object a JSON file holds; `advice` is what to do where it holds none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"cannot read {path}: {error}; {advice}") from error
    if not isinstance(value, dict):
        raise RunDirectoryError(f"{path} does not hold a JSON object; {advice}")
    return value


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Say which values of two nested mappings differ, and how."""
    found = []
    for key in sorted({*there, *here}):
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} is {old!r} there and {new!r} here")
    return found
