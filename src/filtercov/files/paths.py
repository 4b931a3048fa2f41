"""What is given where the path of a file is needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from filtercov.errors import CheckpointError


def as_path(path: object, who: str) -> Path:
    """Return a path, or raise for what is given in its place: open files, state dicts, models.

    >>> as_path(b"net.pth", "load")
    Traceback (most recent call last):
    filtercov.errors.CheckpointError: load: needed the path of a file, got bytes; pass where the file is, as text
    """
    if isinstance(path, str | os.PathLike):
        name = os.fspath(path)
        if isinstance(name, str):
            return Path(name)
    came, advice = type(path).__name__, "pass where the file is, as text"
    if isinstance(path, Mapping):
        came, advice = "a state dict", "save it first with torch.save(state_dict, path), or measure its model"
    elif hasattr(path, "state_dict"):
        advice = "measure a model with FilterStatistics.from_model(model)"
    raise CheckpointError(f"{who}: needed the path of a file, got {came}; {advice}")
