"""The demonstration: the paper's effect on a small network and the data that ships with the package."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

import filtercov as fc
from filtercov.covariance.forms import Array
from filtercov.experiments.execute import build_model, execute, load_data
from filtercov.experiments.runspec import RunSpec
from filtercov.training import FitResult, Progress, Silent, TrainConfig, load_checkpoint, read_metrics
from filtercov.training.metrics import Record

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

        >>> from filtercov.experiments.demo import demo_specs
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
    out: Path, *, specs: list[RunSpec] | None = None, progress: Callable[[str], Progress] | None = None
) -> list[DemoRun]:
    """Train the four runs under `out`, each in a directory named by its key, and collect what they left.

    `progress(label)` makes the display of each run. Runs that are finished are not trained again.
    """
    runs = []
    for spec in specs or demo_specs():
        display = progress(label(spec)) if progress else Silent()
        run_dir = out / "runs" / spec.key
        try:
            result = execute(spec, run_dir, progress=display, log_interval=1)
        finally:
            display.close()
        runs.append(DemoRun(spec, result, read_metrics(run_dir / "metrics.jsonl"), _layers(spec, run_dir)))
    return runs


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
