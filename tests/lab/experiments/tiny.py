"""A table small enough to be run dozens of times, 9 runs of about a tenth of a second, and processes that sweep it."""

import io
import multiprocessing
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from filtercov.lab.experiments import execute
from filtercov.lab.experiments.catalogue import Cell, Experiment
from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.runspec import Run, RunSpec
from filtercov.lab.experiments.sweep import sweep
from filtercov.lab.experiments.timings import SpeedRecord, Timings
from filtercov.lab.training import Progress

CONTEXT = multiprocessing.get_context("forkserver")

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


def table() -> Experiment:
    """One row: uniform, two transfers, and the closed form on two seeds each where they are cheap."""
    same, narrow = (Run(spec(model=model, seed=100)) for model in (MODEL, NARROW))

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
    about = {"name": "tiny", "title": "A tiny table", "shows": "that sweeps work", "scale": "tiny", "reduced": ""}
    return Experiment(**about, cells=cells, chart="bars")


def timings(experiment: Experiment, repeats: int = 1) -> Timings:
    """Timings of an experiment's networks that nobody took."""
    steps = [SpeedRecord(name, 3 + 6 * i, 0.2, 0.1, (50.0,) * repeats) for i, name in enumerate(experiment.speed)]
    return Timings("a machine", tuple(steps))


def run_children(target: Callable[[Path], None], root: Path, *, count: int = 1) -> None:
    """Run so many processes of it at once; all must succeed."""
    children = [CONTEXT.Process(target=target, args=(root,)) for _ in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join(300)
        assert child.exitcode == 0


def sweep_tiny(root: Path) -> None:
    """In a process of its own: sweep the tiny table, and note every run that was trained."""
    train = execute.execute

    def noted(spec, run_dir, **more):
        result = train(spec, run_dir, **more)
        with (root / "trained").open("a") as file:
            file.write(f"{run_dir.name}\n")
        return result

    execute.execute = noted
    torch.set_num_threads(1)
    outcomes = sweep(table().runs, root, stream=io.StringIO())
    assert {outcome.status for outcome in outcomes.values()} == {"done"}


def sweep_tiny_with_workers(root: Path) -> None:
    sweep(table().runs, root, stream=io.StringIO(), engine=Engine(workers=2))


def trained(root: Path) -> Counter[str]:
    """How often each run was trained to its end by `sweep_tiny`."""
    return Counter((root / "trained").read_text().split())


def last_begun(root: Path) -> dict[str, tuple[int, int]]:
    """By run that was begun: the process that last began it, and when."""
    locks = [(path.parent.name, path) for path in root.glob("*/lock") if path.stat().st_size]
    return {name: (int(path.read_text().split()[1]), path.stat().st_mtime_ns) for name, path in locks}
