"""The final numbers of a run, as `result.json` holds them."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filtercov.errors import RunDirectoryError
from filtercov.lab.training.rundir import START_AGAIN, RunDirectory, read_json
from filtercov.lab.training.storage import write_atomic


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """What training ended with; accuracies are in percent, a test loss that is not finite is None."""

    epochs: int
    steps: int
    train_loss: float
    train_accuracy: float
    test_loss: float | None
    test_accuracy: float
    ema_test_accuracy: float | None
    seconds: float
    weights_sha256: str  # of checkpoint.safetensors, equal for equal weights
    extra: Mapping[str, Any] = field(default_factory=dict)  # what the caller of `fit` added

    def write(self, path: Path) -> None:
        """Write `result.json`, which makes the run a finished one."""
        write_atomic(path, json.dumps(dataclasses.asdict(self), indent=2, allow_nan=False).encode() + b"\n")


def read_result(run_dir: Path | str) -> FitResult | None:
    """Return the result of a finished run, None for an unfinished one."""
    run = RunDirectory(run_dir)
    if not run.done:
        return None
    return parse_result(read_json(run.result, advice=START_AGAIN), run.result)


def parse_result(values: Mapping[str, Any], path: Path) -> FitResult:
    """Return the result that the values of a file are."""
    known = {field.name for field in dataclasses.fields(FitResult)}
    if set(values) != known:
        raise RunDirectoryError(
            f"{path} does not hold a result (fields {', '.join(sorted(set(values) ^ known))} are missing or "
            f"unknown); {START_AGAIN}"
        )
    return FitResult(**values)
