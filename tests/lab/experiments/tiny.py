"""A table small enough to be run dozens of times: 9 runs of about a tenth of a second, two of which are references."""

import json
from typing import Any

from filtercov.lab.experiments.builder import Cell, Experiment
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, RunSpec
from filtercov.lab.experiments.timings import SpeedRecord, Timings
from filtercov.lab.training import Progress

MODEL, NARROW = "convmixer_4_2_k3_p14", "convmixer_2_2_k3_p14"


class CrashAt(Progress):
    """A progress that raises at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def update(self, snapshot) -> None:
        if snapshot.step == self.step:
            raise RuntimeError("crash")


def spec(*, model: str = MODEL, seed: int = 0, epochs: int = 3, lr: float = 0.01, **fields) -> RunSpec:
    train = {"epochs": epochs, "batch_size": 128, "seed": seed, "lr": lr}
    return RunSpec.recipe("cifar", model=model, data="embedded", data_limit=512, augment="light", train=train, **fields)


def reference(model: str = MODEL) -> Run:
    return Run(spec(model=model, seed=100))


def table() -> Experiment:
    """One row: uniform, two transfers, and the closed form on two seeds each where they are cheap."""
    same, narrow = reference(), reference(NARROW)

    def cell(column: str, *runs: Run) -> Cell:
        return Cell("k3", f"frozen/{column}", 20, runs)

    def frozen(seed: int, **fields) -> RunSpec:
        return spec(seed=seed, freeze_filters=True, **fields)

    cells = (
        cell("uniform", *(Run(frozen(seed)) for seed in (0, 1))),
        cell("covariance", *(Run(frozen(s, init=f"statistics-of:{same.key}"), same) for s in (0, 1))),
        cell("covariance-eighth", Run(frozen(0, init=f"kronecker-of:{narrow.key}"), narrow)),
        cell("filters", Run(frozen(0, init=f"filters-of:{same.key}"), same)),
        cell("closed-form", Run(frozen(0, init="closed-form", schedule="cifar-p2", min_kernel_size=2))),
    )
    return Experiment("tiny", "A tiny table", "that sweeps work", "tiny", "", cells, chart="bars")


def read_journal(runs: Runs) -> list[dict[str, Any]]:
    """Return the lines of a journal; there is none before the first run begins."""
    lines = runs.journal.read_text(encoding="utf-8").splitlines() if runs.journal.exists() else []
    return [json.loads(line) for line in lines]


def timings(experiment: Experiment, repeats: int = 1) -> Timings:
    """Timings of an experiment's networks that nobody took."""
    steps = [SpeedRecord(name, 3 + 6 * i, 0.2, 0.1, (50.0,) * repeats) for i, name in enumerate(experiment.speed)]
    return Timings("a machine", tuple(steps))
