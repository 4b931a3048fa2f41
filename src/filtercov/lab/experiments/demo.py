"""The demonstration: the paper's effect on a small network and the data that ships with the package."""

import dataclasses
import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from torch import nn

import filtercov as fc
from filtercov.covariance.forms import Array
from filtercov.errors import ExperimentError
from filtercov.lab.experiments.attempt import Outcome
from filtercov.lab.experiments.display import Display
from filtercov.lab.experiments.execute import build_model, load_data
from filtercov.lab.experiments.graph import Run
from filtercov.lab.experiments.local import run_here, run_in_processes
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.experiments.worker import Event, Note, Step
from filtercov.lab.training import FitResult, TrainConfig, load_checkpoint, read_metrics
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
        return label(self.spec)


def label(spec: RunSpec) -> str:
    """Return initialisation and state of the filters in two words."""
    return f"{spec.init}, {'frozen' if spec.freeze_filters else 'thawed'}"


def demo_specs(*, seed: int = 0) -> list[RunSpec]:
    """Return the four runs: uniform and closed form, frozen and thawed, alike in everything else."""
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
    runs, stream = Runs(out / "runs"), stream or sys.stderr
    display = Display(wanted, stream=stream) if stream.isatty() else _Lines(wanted, stream)
    workers = workers or min(len(wanted), os.cpu_count() or 1)
    with display.watching() if isinstance(display, Display) else nullcontext():
        if workers == 1:
            run_here(wanted, runs, emit=display)
        else:
            run_in_processes(wanted, runs, workers=workers, emit=display)
    return [_collected(run, runs, display.outcomes[run.key]) for run in wanted]


class _Lines:
    """Prints a line for each epoch of each run."""

    def __init__(self, wanted: list[Run], stream: IO[str]) -> None:
        self._labels = {run.key: label(run.spec) for run in wanted}
        self._stream = stream
        self.outcomes: dict[str, Outcome] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Outcome):
            self.outcomes[event.key] = event
        elif isinstance(event, Note):
            print(event.text, file=self._stream, flush=True)
        elif isinstance(event, Step) and event.snapshot.test_accuracy is not None:
            print(f"{self._labels[event.key]:<21}{event.snapshot}", file=self._stream, flush=True)


def _collected(run: Run, runs: Runs, outcome: Outcome) -> DemoRun:
    result, directory = runs.result(run), runs.directory(run)
    if result is None:
        raise ExperimentError(f"the run {label(run.spec)} failed: {outcome.detail}")
    return DemoRun(run.spec, result, read_metrics(directory.metrics), _layers(run.spec, directory.path))


def _layers(spec: RunSpec, run_dir: Path) -> list[LayerFilters]:
    """Build the network as it was before the first step, and read what it became."""
    model = build_model(spec, load_data(spec))
    names = [(layer.name, fc.PRESETS[SCHEDULE](layer.depth)) for layer in fc.depthwise_layers(model)]
    before = _filters(model)
    model.load_state_dict(load_checkpoint(run_dir / "checkpoint.safetensors")[0])
    after = _filters(model)
    return [LayerFilters(name, sigma, *pair) for (name, sigma), *pair in zip(names, before, after, strict=True)]


def _filters(model: nn.Module) -> list[Array]:
    weights = [layer.weight for layer in fc.depthwise_layers(model)]
    return [weight.detach().squeeze(1).numpy().astype(np.float64) for weight in weights]
