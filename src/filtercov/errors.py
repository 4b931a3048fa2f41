"""The exceptions filtercov raises for input it cannot use.

Every one says what was needed, what came and what to do, and derives from `FiltercovError`, so that callers (and the
command line) can tell a user's mistake from a defect. Those about a bad value are also `ValueError`s.
"""

from __future__ import annotations

import contextlib
from difflib import get_close_matches
from importlib import import_module

from filtercov.printable import printable


class FiltercovError(Exception):
    """Base of every error filtercov raises on purpose; it says so in one line that is safe to print."""

    def __str__(self) -> str:
        return printable(super().__str__())  # messages repeat names from files, and files may be hostile


class FiltercovWarning(UserWarning):
    """Something that was done as asked, and is probably not what was wanted."""


class CovarianceError(FiltercovError, ValueError):
    """A covariance, kernel size or σ that cannot be used."""


class ModelError(FiltercovError, ValueError):
    """A model whose depthwise layers cannot be found, matched or changed."""


class NothingChosenError(ModelError):
    """A call that would change no layer at all, though it was made to change some.

    `finding` says what was found, `advice` what to do about it.
    """

    def __init__(self, finding: str, advice: str) -> None:
        super().__init__(finding, advice)
        self.finding, self.advice = finding, advice

    def __str__(self) -> str:
        return f"{self.finding}; {self.advice}"


class SourceError(FiltercovError, ValueError):
    """An initialisation source that is unknown or does not fit the model."""


class CheckpointError(FiltercovError, ValueError):
    """A file of weights or statistics that is missing, damaged, foreign or unsafe to read."""


class ConfigError(FiltercovError, ValueError):
    """A training configuration or run specification that cannot be carried out."""


class RunDirectoryError(FiltercovError):
    """A run directory that cannot be used as it is."""


class RunBusyError(RunDirectoryError):
    """Another process is training in the run directory."""


class RunMismatchError(RunDirectoryError):
    """The run directory belongs to a run with another configuration."""


class StorageError(RunDirectoryError):
    """The run directory cannot be written: disk full, read-only, no permission."""


class DivergedError(FiltercovError):
    """Training produced a loss or a weight that is not finite."""


class TrainingInterrupted(FiltercovError):  # noqa: N818 - it reports a request that was honoured, not a failure
    """Training stopped on request, after a checkpoint was written."""


class DataError(FiltercovError, ValueError):
    """A dataset, data file or augmentation that cannot be used."""


class BadImagesError(DataError):
    """More images of a folder are damaged than may be skipped."""


class ConvolutionError(FiltercovError, RuntimeError):
    """Tensors that do not make a depthwise convolution; a RuntimeError, as PyTorch's own convolution raises."""


class NormalisationError(FiltercovError, RuntimeError):
    """Tensors or settings that do not make a normalisation with what is fused with it."""


class NativeError(FiltercovError, RuntimeError):
    """The native kernels refused a call or ran out of memory."""


class ExperimentError(FiltercovError, ValueError):
    """An experiment, scale or option that the catalogue does not know."""


class SweepError(FiltercovError):
    """A sweep of runs that cannot be shared, or that ended with runs failed."""


class TargetError(FiltercovError, ValueError):
    """Something to look at that cannot be found, recognised or compared."""


class OutputError(FiltercovError):
    """A page or figure that cannot be written where it was asked for."""


class DamagedRunError(RunDirectoryError):
    """A run says it is finished, but what it holds is incomplete, changed or another run's."""


class MissingPartError(FiltercovError, ImportError):
    """A part of filtercov that needs a package which is not installed."""


def no_such_name(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module does not have, with the public one that was probably meant.

    >>> no_such_name("filtercov", "freeze")
    AttributeError("filtercov has no 'freeze'; did you mean filtercov.freeze_?")
    """
    known: dict[str, str] = {}
    if not name.startswith("_"):
        for home in ("filtercov.nn", "filtercov.covariance", "filtercov"):
            with contextlib.suppress(ImportError):  # the mathematics can be had without torch
                known |= dict.fromkeys(import_module(home).__all__, home)
    near = [n for n in (name, f"{name}_") if n in known] or get_close_matches(name, known, n=1)
    hint = f"; did you mean {known[near[0]]}.{near[0]}?" if near else ""
    return AttributeError(f"{module} has no {name!r}{hint}")
