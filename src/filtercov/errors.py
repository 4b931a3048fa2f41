"""The exceptions filtercov raises for input it cannot use.

Every one says what was needed, what came and what to do, and derives from `FiltercovError`, so that callers (and the
command line) can tell a user's mistake from a defect. Those about a bad value are also `ValueError`s.
"""


class FiltercovError(Exception):
    """Base of every error filtercov raises on purpose."""


class CovarianceError(FiltercovError, ValueError):
    """A covariance, kernel size or σ that cannot be used."""


class ModelError(FiltercovError, ValueError):
    """A model whose depthwise layers cannot be found, matched or changed."""


class SourceError(FiltercovError, ValueError):
    """An initialisation source that is unknown or does not fit the model."""


class CheckpointError(FiltercovError, ValueError):
    """A file of weights or statistics that is missing, damaged, foreign or unsafe to read."""
