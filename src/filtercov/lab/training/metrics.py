"""A run's measurements: one JSON object per line, and TensorBoard where asked."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from filtercov.errors import ConfigError
from filtercov.lab.training.storage import storage_error

Record = dict[str, Any]


class _Scalars(Protocol):
    def add_scalar(self, tag: str, value: float, step: int) -> None: ...
    def close(self) -> None: ...


class MetricsLog:
    """Appends records to `path`, whole lines or nothing, starting after its first `size` bytes.

    `size` is what the last checkpoint had seen: lines written after it belong to steps that will be done again.
    """

    def __init__(self, path: Path, *, size: int = 0, tensorboard: Path | None = None, step: int = 0) -> None:
        self.path = path
        try:
            # O_BINARY is Windows', which would otherwise turn every \n into two bytes.
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            self.size = min(size, os.fstat(self._file).st_size)
            os.ftruncate(self._file, self.size)
        except OSError as error:
            raise storage_error(path, error) from error
        self._board = _open_tensorboard(tensorboard, step) if tensorboard else None

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record, which has a "step"; its numbers are finite or None."""
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        try:
            written = os.lseek(self._file, self.size, os.SEEK_SET) - self.size
            while written < len(line):  # a disk that fills up takes part of a line before it says so
                written += os.write(self._file, line[written:])
        except OSError as error:
            os.ftruncate(self._file, self.size)
            raise storage_error(self.path, error) from error
        self.size += len(line)
        if self._board:
            for key, value in record.items():
                if isinstance(value, float):
                    self._board.add_scalar(key, value, record["step"])

    def sync(self) -> None:
        """Flush to the disk, so that a checkpoint written next never refers to lines that were lost."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
        if self._board:
            self._board.close()


def read_metrics(path: Path) -> list[Record]:
    """Return the records of a metrics file; a last line that a crash cut short is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def finite_or_none(value: float) -> float | None:
    """Return the number, or None if JSON cannot hold it."""
    return value if math.isfinite(value) else None


def _open_tensorboard(directory: Path, step: int) -> _Scalars:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "TensorBoard is not installed; pip install tensorboard, or leave --tensorboard out"
        ) from error
    writer: _Scalars = SummaryWriter(log_dir=str(directory), purge_step=step + 1)
    return writer
