"""Does an initialisation help this network on these images? `compare` answers in a sentence, a table and a page.

    result = compare("convnext_atto_p2", "folder:my-images", inits=["default", "closed-form"], seeds=3, epochs=10)
    print(result)
    result.write("compare.html")

A network by name on images by name is trained by ordinary runs, as `filtercov train` would; a module, data or function
of one's own by `own_trials`. Either way a run that was begun is continued, and one that is done is not trained again.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import nn
from torch.nn.functional import cross_entropy

from filtercov.errors import ConfigError, RunError
from filtercov.files import Source
from filtercov.lab.comparison.own_trials import Column, OwnTrials, filters_of, init_name, read_trial
from filtercov.lab.experiments.execute import build_batches, build_model
from filtercov.lab.experiments.initialisations import located
from filtercov.lab.experiments.run_one import Machine, dataset_of
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import Run, RunSpec
from filtercov.lab.experiments.sweep import Engine, refuse_failures, sweep
from filtercov.lab.report.groups import FinishedRun, Group, answer, group_table, groups_page
from filtercov.lab.report.page import Origin, write_output
from filtercov.lab.training import Batches, World
from filtercov.lab.training.progress import duration
from filtercov.nn import accelerate_
from filtercov.printable import counted
from filtercov.schedule import PRESETS

Freeze = Literal["no", "yes", "both"]
Say = Callable[[str], None]

TIMED_STEPS = 3
COPIES_KEPT = 4  # of a model's weights in its run: the checkpoint and, while it trains, the state with two moments


@dataclass(frozen=True, eq=False)
class Comparison:
    """What came out: printed, the answer and a table; written, a page."""

    title: str
    groups: list[Group]
    note: str
    origin: Origin

    @property
    def answer(self) -> str:
        """What the runs show, in a sentence for each column but the first."""
        return answer(self.groups)

    @property
    def table(self) -> list[list[str]]:
        """Accuracy, paired difference with its interval and time a step of each column, heading first."""
        return group_table(self.groups)

    def page(self) -> str:
        """The page, as HTML."""
        return groups_page(self.title, self.groups, notes=[self.note], origin=self.origin)

    def write(self, out: Path | str) -> Path:
        """Write the page to a file."""
        return write_output(Path(out), self.page())

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        rows = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in self.table)
        return "\n".join([self.answer, "", *(row.rstrip() for row in rows), self.note])

    def _repr_html_(self) -> str:
        return self.page()


def compare(
    model: str | Callable[[], nn.Module],
    data: Any,
    *,
    inits: Sequence[Any] = ("default", "closed-form"),
    seeds: int = 3,
    epochs: int = 10,
    freeze_filters: Freeze = "no",
    run_dir: Path | str = "runs",
    batch_size: int | None = None,
    lr: float | None = None,
    augment: str | None = None,
    image_size: int | None = None,
    data_limit: int | None = None,
    engine: Engine | None = None,
    machine: Machine | None = None,
    say: Say | None = None,
    command: str = "",
) -> Comparison:
    """Train `model` from each of `inits` with each seed, and compare how they end with the first of them.

    `model` is a name, or a function that builds the module. `data` is a name as of `filtercov train --data`, a
    `filtercov.lab.data.Dataset`, or two PyTorch datasets of (image, class): to train on, and to judge by. An
    initialisation is a name (`default` leaves the network as it is built), a preset, anything else that `init_` takes,
    or a function of the model and an `InitContext`. With `freeze_filters="both"` each is also trained with its filters
    frozen. Settings that are not given are those of the recipe `cifar`.

    Choosing among more than two is done on validation images. Everything is checked before the first step. Workers and
    Ray need model, data and initialisations by name.
    """
    columns = _columns(inits, freeze_filters)
    if seeds < 1:
        raise ConfigError(f"compare: needed at least one seed, got {seeds}")
    train = {"epochs": epochs, "batch_size": batch_size, "lr": lr}
    train = {name: value for name, value in train.items() if value is not None}
    judged = "validation" if len(inits) > 2 and not isinstance(data, tuple) else "test"
    images = {"augment": augment, "image_size": image_size, "data_limit": data_limit}
    images = {name: value for name, value in images.items() if value is not None}
    tell = say or _to_stderr
    if isinstance(model, str) and isinstance(data, str) and all(isinstance(init, str) for init in inits):
        fields = {"model": model, "data": data, "evaluate": judged, **images}
        trials: Any = _NamedTrials(fields, train, Runs(run_dir), engine or Engine(), machine or Machine())
    elif engine is not None and (engine.name != "local" or engine.workers > 1):
        raise ConfigError("compare: workers and Ray need model, data and initialisations by name, got an object")
    else:
        trials = OwnTrials(model, data, train, images, judged, Path(run_dir), tell)
    built, batches = trials.check(columns)
    _check_disk(Path(run_dir), built, len(columns) * seeds)
    _say_time(built, batches, epochs, len(columns) * seeds, engine.workers if engine else 1, tell)
    found: dict[Column, list[FinishedRun]] = trials.done(columns, range(seeds))
    groups = [Group(column.label, found[column], against=_baseline(column, columns)) for column in columns]
    chosen = " Among more than two initialisations one chooses on these, and reports on test images." * (len(inits) > 2)
    note = f"Accuracies are of {judged} images.{chosen}"
    return Comparison(trials.title, groups, note, Origin(trials.sources(), command))


def _columns(inits: Sequence[Any], freeze_filters: str) -> list[Column]:
    names = [init_name(init) for init in inits]
    if len(inits) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"compare: needed two or more different initialisations, got {', '.join(names) or 'none'}")
    states = {"no": (False,), "yes": (True,), "both": (False, True)}
    if freeze_filters not in states:
        raise ConfigError(f"compare: freeze_filters is no, yes or both, got {freeze_filters!r}")
    return [Column(init, frozen) for frozen in states[freeze_filters] for init in inits]


def _baseline(column: Column, columns: Sequence[Column]) -> str:
    """The column to compare with: frozen filters with the same ones trained, others with the first initialisation."""
    trained = next((other for other in columns if other.init is column.init and not other.frozen), None)
    return trained.label if column.frozen and trained is not None else columns[0].label


@dataclass
class _NamedTrials:
    """Ordinary runs of a sweep, each a `RunSpec`."""

    fields: dict[str, Any]
    train: dict[str, Any]
    runs: Runs
    engine: Engine
    machine: Machine
    used: list[Run] = field(default_factory=list)

    @property
    def title(self) -> str:
        """What was trained."""
        return f"{self.fields['model']} on {self.fields['data']}"

    def check(self, columns: Sequence[Column]) -> tuple[nn.Module, Batches]:
        """Build every column's model, which refuses what does not fit; return the first, and its batches."""
        specs = [self._spec(column, 0) for column in columns]
        data = dataset_of(specs[0], self.machine)
        built = [build_model(spec, data, init_root=self.runs.root) for spec in specs]
        return built[0], build_batches(specs[0], data, world=World())[0]

    def done(self, columns: Sequence[Column], seeds: range) -> dict[Column, list[FinishedRun]]:
        """Do the runs that are not done, and read them all."""
        wanted = {column: [Run(self._spec(column, seed)) for seed in seeds] for column in columns}
        self.used = [run for runs in wanted.values() for run in runs]
        refuse_failures(sweep(self.used, self.runs.root, engine=self.engine, machine=self.machine))
        return {column: [self._read(run) for run in runs] for column, runs in wanted.items()}

    def sources(self) -> tuple[Source, ...]:
        """The runs that the page was made from."""
        return (self.runs.source(self.used),)

    def _spec(self, column: Column, seed: int) -> RunSpec:
        """The run of a column; a preset is the closed form with its schedule."""
        chosen = {"init": "closed-form", "schedule": column.init}
        if column.init not in PRESETS:
            chosen = {"init": located([column.init])[0]}
        train = {**self.train, "seed": seed}
        return RunSpec.recipe("cifar", train=train, freeze_filters=column.frozen, **chosen, **self.fields)

    def _read(self, run: Run) -> FinishedRun:
        result = self.runs.result(run)
        if result is None:
            raise RunError(f"run {run.key} is being trained elsewhere; run the same command again when it is done")
        seed = run.spec.train.seed
        before = {}
        if seed == 0:
            images = dataset_of(run.spec, self.machine)
            before = filters_of(build_model(run.spec, images, init_root=self.runs.root))
        return read_trial(seed, self.runs.directory(run), result, before)


def _check_disk(root: Path, model: nn.Module, runs: int) -> None:
    there = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    needed = runs * COPIES_KEPT * sum(parameter.nbytes for parameter in model.parameters())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise RunError(f"{root}: {counted(runs, 'run')} need {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")


def _say_time(model: nn.Module, batches: Batches, epochs: int, runs: int, workers: int, say: Say) -> None:
    """Time a few steps of a model that is thrown away, and say what all runs will take."""
    accelerate_(model)
    images, classes = next(iter(batches.epoch(0)))
    best = float("inf")
    for _ in range(TIMED_STEPS):
        began = time.perf_counter()
        cross_entropy(model.train()(images), classes).backward()  # type: ignore[no-untyped-call]
        best = min(best, time.perf_counter() - began)
    total = best * len(batches) * epochs * runs / workers
    say(f"{counted(runs, 'run')} of {counted(epochs * len(batches), 'step')}, about {duration(total)} here")


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
