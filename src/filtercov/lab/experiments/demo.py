"""The demonstration: the paper's effect on a small network and the data that ships with the package."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import filtercov as fc
from filtercov.covariance.forms import Array
from filtercov.errors import RunError
from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.execute import Outcome, build_model, filters_of, load_data
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, RunSpec
from filtercov.lab.experiments.sweep import sweep
from filtercov.lab.training import FitResult, TrainConfig, read_metrics
from filtercov.lab.training.rundir import Record

MODEL = "convmixer_32_6_k15_p2"
IMAGES = 10_000
SCHEDULE = "cifar-p2"
TRAIN = TrainConfig(epochs=4, batch_size=64)


@dataclass(frozen=True)
class LayerFilters:
    """The filters of one depthwise layer before and after training: (channels, height, width) each."""

    name: str
    sigma: float  # what the closed form's schedule gives this layer
    before: Array
    after: Array


@dataclass(frozen=True)
class DemoRun:
    """One of the four runs, with what a page shows of it."""

    spec: RunSpec
    result: FitResult
    metrics: list[Record]
    layers: list[LayerFilters]

    @property
    def frozen(self) -> bool:
        """Whether the filters stayed as they were initialised."""
        return self.spec.freeze_filters

    @property
    def label(self) -> str:
        """What to call the run.

        >>> from filtercov.lab.experiments.demo import demo_specs
        >>> [DemoRun(spec, None, [], []).label for spec in demo_specs()][:2]
        ['uniform, frozen', 'closed-form, frozen']
        """
        return f"{self.spec.init}, {'frozen' if self.frozen else 'thawed'}"


def demo_specs(*, seed: int = 0) -> list[RunSpec]:
    """The four runs: uniform and closed form, frozen and thawed, alike in everything else."""
    return [
        RunSpec(
            model=MODEL,
            data="embedded",
            data_limit=IMAGES,
            init=init,
            schedule=SCHEDULE if init == "closed-form" else None,
            freeze_filters=frozen,
            augment="light",
            train=dataclasses.replace(TRAIN, seed=seed),
        )
        for frozen in (True, False)
        for init in ("uniform", "closed-form")
    ]


def run_demo(
    out: Path, *, specs: list[RunSpec] | None = None, workers: int | None = None, stream: IO[str] | None = None
) -> list[DemoRun]:
    """Train the four runs under `out`, each in a directory named by its key, and collect what they left.

    As many train at a time as there are processors: layers this small gain little from a second thread, and lose much
    to it where others use the machine. Runs that are finished are not trained again.
    """
    wanted = [Run(spec) for spec in specs or demo_specs()]
    runs = Runs(out / "runs")
    engine = Engine(workers=workers or min(len(wanted), os.cpu_count() or 1))
    outcomes = sweep(wanted, runs.root, engine=engine, stream=stream)
    return [_collected(run, runs, outcomes[run.key]) for run in wanted]


def _collected(run: Run, runs: Runs, outcome: Outcome) -> DemoRun:
    """Build the network as it was before the first step, and read what it became."""
    result, directory = runs.result(run), runs.directory(run)
    if result is None:
        raise RunError(f"the run {run} failed: {outcome.detail}")
    model = build_model(run.spec, load_data(run.spec))
    filters = filters_of(model, directory)
    layers = [
        LayerFilters(layer.name, fc.PRESETS[SCHEDULE](layer.depth), *filters[layer.name])
        for layer in fc.depthwise_layers(model)
    ]
    return DemoRun(run.spec, result, read_metrics(directory.metrics), layers)
