"""The exceptions filtercov raises for input it cannot use.

Every one says what was needed, what came and what to do, and derives from `FiltercovError`, so that callers (and the
command line) can tell a user's mistake from a defect. Those about a bad value are also `ValueError`s.
"""

from __future__ import annotations

import collections.abc
from contextlib import contextmanager

from filtercov.printable import printable


class FiltercovError(Exception):
    """Base of every error filtercov raises on purpose; it says so in one line that is safe to print."""

    def __str__(self) -> str:
        return printable(super().__str__())  # messages repeat names from files, and files may be hostile


@contextmanager
def naming(what: object) -> collections.abc.Iterator[None]:
    """Let errors begin with the name of the layer, file or function that they are about."""
    try:
        yield
    except FiltercovError as error:
        raise type(error)(f"{what}: {error}") from None


class FiltercovWarning(UserWarning):
    """Something that was done as asked, and is probably not what was wanted."""


class CovarianceError(FiltercovError, ValueError):
    """A covariance, kernel size or σ that cannot be used."""


class ModelError(FiltercovError, ValueError):
    """A model whose depthwise layers cannot be found, matched or changed."""


class SourceError(FiltercovError, ValueError):
    """A source of filters, or something to inspect, that is unknown or does not fit."""


class CheckpointError(FiltercovError, ValueError):
    """A file of weights or statistics that is missing, damaged, foreign or unsafe to read."""


class ConfigError(FiltercovError, ValueError):
    """A request that cannot be carried out: a configuration, an experiment, an option."""


class RunError(FiltercovError):
    """A run, or a sweep of runs, that cannot be done or read."""


class RunBusyError(RunError):
    """Another process is training in the run directory."""


class StorageError(FiltercovError):
    """A file or directory that cannot be written: disk full, read-only, no permission, already there."""


class DivergedError(FiltercovError):
    """Training produced a loss or a weight that is not finite."""


class TrainingInterrupted(FiltercovError):  # noqa: N818 - it reports a request that was honoured, not a failure
    """Training stopped on request, after a checkpoint was written."""


class DataError(FiltercovError, ValueError):
    """A dataset, data file or augmentation that cannot be used."""


class KernelError(FiltercovError, RuntimeError):
    """A call of the fast layers that cannot be computed; a RuntimeError, as PyTorch's own are."""


class DamagedRunError(RunError):
    """A run says it is finished, but what it holds is incomplete, changed or another run's."""
