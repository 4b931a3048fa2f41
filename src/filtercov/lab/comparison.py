"""Does an initialisation help this network on these images? `compare` answers in a sentence, a table and a page.

    result = compare("convnext_atto_p2", "folder:my-images", inits=["default", "closed-form"], seeds=3, epochs=10)
    print(result)
    result.write("compare.html")

A network by name on images by name is trained by ordinary runs, as `filtercov train` would. A module, data or function
of one's own is trained here by `fit`, in a directory named by a hash of all that decides how the run ends, as far as
that can be known: the source of functions, the settings, the content of data. Either way a run that was begun is
continued, and one that is done is not trained again.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from filtercov.errors import ConfigError, DataError, RunError
from filtercov.files import Source
from filtercov.filters import freeze_, init_
from filtercov.lab import models
from filtercov.lab.data import Dataset, load
from filtercov.lab.data.loader import TorchBatches, seeded_generator
from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.execute import FILTERS, Machine, build_batches, build_model, filters_of
from filtercov.lab.experiments.initialisations import InitContext, find, fingerprint, located, shown_init
from filtercov.lab.experiments.runs import Runs, accuracies
from filtercov.lab.experiments.runspec import AUGMENTED, Run, RunSpec, key_of
from filtercov.lab.experiments.sweep import refuse_failures, sweep
from filtercov.lab.report.groups import FinishedRun, Group, answer, group_table, groups_of, groups_page
from filtercov.lab.report.page import Origin, write_output
from filtercov.lab.training import Batches, RunDirectory, TrainConfig, fit, progress_on, read_metrics, read_result
from filtercov.lab.training.progress import duration
from filtercov.nn import accelerate_
from filtercov.printable import aligned, counted
from filtercov.schedule import PRESETS

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
        return "\n".join([self.answer, "", *aligned(self.table), self.note])

    _repr_html_ = page


@dataclass(frozen=True)
class Column:
    """An initialisation, and whether its filters stay as they are."""

    init: Any
    frozen: bool

    @property
    def label(self) -> str:
        """The name of the column."""
        return f"{_name(self.init)}, frozen" if self.frozen else _name(self.init)


def compare(
    model: str | Callable[[], nn.Module],
    data: Any,
    *,
    inits: Sequence[Any] = ("default", "closed-form"),
    seeds: int = 3,
    epochs: int = 10,
    freeze_filters: str = "no",
    run_dir: Path | str = "runs",
    batch_size: int | None = None,
    lr: float | None = None,
    augment: str | None = None,
    image_size: int | None = None,
    data_limit: int | None = None,
    engine: Engine | None = None,
    machine: Machine | None = None,
    command: str = "",
) -> Comparison:
    """Train `model` from each of `inits` with each seed, and compare how they end with the first of them.

    `model` is a name, or a function that builds the module. `data` is a name as of `filtercov train --data`, a
    `filtercov.lab.data.Dataset`, or two PyTorch datasets of (image, class): to train on, and to judge by. An
    initialisation is a name (`default` leaves the network as it is built), a preset, anything else that `init_` takes,
    or a function of the model and an `InitContext`. `freeze_filters` is `no`, `yes`, or `both`: each with
    its filters trained and frozen. Settings that are not given are those of the recipe `cifar`.

    Choosing among more than two is done on validation images. Everything is checked before the first step. Workers and
    Ray need model, data and initialisations by name.
    """
    columns, engine, machine = _columns(inits, freeze_filters), engine or Engine(), machine or Machine()
    if seeds < 1:
        raise ConfigError(f"compare: needed at least one seed, got {seeds}")
    train = _given(epochs=epochs, batch_size=batch_size, lr=lr)
    images = _given(image_size=image_size, data_limit=data_limit)
    judged = "validation" if len(inits) > 2 and not isinstance(data, tuple) else "test"
    by_name = isinstance(model, str) and isinstance(data, str) and all(isinstance(init, str) for init in inits)
    if not by_name and (engine.name != "local" or engine.workers > 1):
        raise ConfigError("compare: workers and Ray need model, data and initialisations by name, got an object")
    augment = augment or (AUGMENTED["cifar"] if by_name else "none")
    given = (model, _read(data, judged, images, machine), train, augment, judged, Runs(run_dir))
    trials = _NamedTrials(*given, {"data": data, **images}) if by_name else _Trials(*given)
    first, *_ = [trials.build(column, 0) for column in columns]  # which refuses what does not fit
    batches, _ = trials.batches(TrainConfig.from_dict(train))
    count = len(columns) * seeds
    _check_disk(Path(run_dir), first, count)
    seconds = _step_seconds(first, batches) * len(batches) * epochs * count / engine.workers
    steps = counted(epochs * len(batches), "step")
    print(f"{counted(count, 'run')} of {steps}, about {duration(seconds)} here", file=sys.stderr, flush=True)
    sources = trials.train_all([(column, seed) for column in columns for seed in range(seeds)], engine, machine)
    found = {column.label: [trials.finished(column, seed) for seed in range(seeds)] for column in columns}
    groups = groups_of(found, against={column.label: _baseline(column, columns) for column in columns})
    chosen = " Among more than two initialisations one chooses on these, and reports on test images." * (len(inits) > 2)
    note = f"Accuracies are of {judged} images.{chosen}"
    return Comparison(f"{_name(model)} on {_shown_data(data)}", groups, note, Origin(sources, command))


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _columns(inits: Sequence[Any], freeze_filters: str) -> list[Column]:
    names = [_name(init) for init in inits]
    if len(inits) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"compare: needed two or more different initialisations, got {', '.join(names) or 'none'}")
    states = {"no": (False,), "yes": (True,), "both": (False, True)}
    if freeze_filters not in states:
        raise ConfigError(f"compare: freeze_filters is no, yes or both, got {freeze_filters!r}")
    return [Column(init, frozen) for frozen in states[freeze_filters] for init in inits]


def _name(init: Any) -> str:
    """The name of an initialisation or model: of a function its own, of other sources their kind.

    >>> _name("stats:there/trained.pth"), _name(_name)
    ('stats:trained.pth', '_name')
    """
    return shown_init(init) if isinstance(init, str) else str(getattr(init, "__name__", type(init).__name__))


def _shown_data(data: Any) -> str:
    if isinstance(data, Dataset):
        return data.name
    return data if isinstance(data, str) else f"{len(data[0]):,} images"


def _baseline(column: Column, columns: Sequence[Column]) -> str:
    """The column to compare with: frozen filters with the same ones trained, others with the first initialisation."""
    trained = next((other for other in columns if other.init is column.init and not other.frozen), None)
    return trained.label if column.frozen and trained is not None else columns[0].label


@dataclass(frozen=True)
class _Trials:
    """The runs of a comparison, one for each column and seed, of a model, data or initialisations of one's own.

    They are trained here, in directories named by a hash of all that can be known of them.
    """

    model: str | Callable[[], nn.Module]
    data: Dataset | tuple[TorchBatches, TorchBatches]
    train: dict[str, Any]
    augment: str
    judged: str
    runs: Runs

    def build(self, column: Column, seed: int) -> nn.Module:
        """The model of a column before its first step; all but the filters depends on the seed alone."""
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            if not isinstance(self.model, str):
                model = self.model()
            elif isinstance(self.data, Dataset):
                model = models.create(self.model, num_classes=self.data.num_classes, in_channels=self.data.in_channels)
            else:
                raise ConfigError("compare: a model by name needs data by name or a Dataset, which tells its classes")
        _initialise_(model, column.init, seeded_generator(seed, FILTERS))
        return freeze_(model) if column.frozen else model

    def batches(self, config: TrainConfig) -> tuple[Batches, Batches]:
        """The batches to train on and those to judge by."""
        if isinstance(self.data, Dataset):
            return build_batches(self.data, config, self.augment, self.judged)
        train, judge = self.data
        size = config.batch_size
        return replace(train, batch_size=size, seed=config.seed, shuffle=True), replace(judge, batch_size=size)

    def directory(self, column: Column, seed: int) -> RunDirectory:
        """The directory of a run."""
        return RunDirectory(self.runs.root / key_of({**self._identity(column), "train": self._config(seed).to_dict()}))

    def train_all(self, wanted: Sequence[tuple[Column, int]], _engine: Engine, _machine: Machine) -> tuple[Source, ...]:
        """Do all runs that are not done yet; return where they can be read, of one's own objects nothing."""
        for column, seed in wanted:
            directory, label = self.directory(column, seed), f"{column.label}, seed {seed}"
            if directory.done:
                print(f"{label}: finished before", file=sys.stderr)
                continue
            model, config = self.build(column, seed), self._config(seed)
            accelerate_(model)
            progress = progress_on(label=label)
            batches = self.batches(config)
            fit(model, *batches, config, directory.path, identity=self._identity(column), progress=progress)
        return ()

    def finished(self, column: Column, seed: int) -> FinishedRun:
        """What a finished run shows."""
        directory = self.directory(column, seed)
        result = read_result(directory.path)
        if result is None:
            raise RunError(f"{directory.path} is being trained elsewhere; run the same command again when it is done")
        filters = filters_of(self.build(column, seed), directory) if seed == 0 else {}
        return FinishedRun(seed, accuracies(read_metrics(directory.metrics)), result.seconds / result.steps, filters)

    def _config(self, seed: int) -> TrainConfig:
        return TrainConfig.from_dict({**self.train, "seed": seed})

    def _identity(self, column: Column) -> dict[str, Any]:
        data, init = self.data, column.init
        return {
            "model": self.model if isinstance(self.model, str) else fingerprint(self.model),
            "data": data.content_digest if isinstance(data, Dataset) else "+".join(part.digest() for part in data),
            "init": init if isinstance(init, str) else _checksum(init),
            "freeze_filters": column.frozen,
            "augment": self.augment,
            "evaluate": self.judged,
        }


@dataclass(frozen=True)
class _NamedTrials(_Trials):
    """The same where model, data and initialisations are names: ordinary runs, as `filtercov train` does them."""

    images: dict[str, Any]  # the fields of a `RunSpec` that name them

    def run(self, column: Column, seed: int) -> Run:
        """The run of a column; a preset is the closed form with its schedule."""
        chosen = {"init": "closed-form", "schedule": column.init}
        if column.init not in PRESETS:
            chosen = {"init": located(column.init)}
        fields = {"augment": self.augment, "evaluate": self.judged, "freeze_filters": column.frozen, **chosen}
        train = {**self.train, "seed": seed}
        return Run(RunSpec.recipe("cifar", train=train, model=self.model, **fields, **self.images))

    def build(self, column: Column, seed: int) -> nn.Module:
        """The model of a column before its first step, as `execute` builds it."""
        assert isinstance(self.data, Dataset)
        return build_model(self.run(column, seed).spec, self.data, init_root=self.runs.root)

    def directory(self, column: Column, seed: int) -> RunDirectory:
        """The directory of a run, by its key."""
        return self.runs.directory(self.run(column, seed))

    def train_all(self, wanted: Sequence[tuple[Column, int]], engine: Engine, machine: Machine) -> tuple[Source, ...]:
        """Do all runs on an engine."""
        runs = [self.run(column, seed) for column, seed in wanted]
        refuse_failures(sweep(runs, self.runs.root, engine=engine, machine=machine))
        return (self.runs.source(runs),)


def _read(
    data: Any, judged: str, images: dict[str, Any], machine: Machine
) -> Dataset | tuple[TorchBatches, TorchBatches]:
    """The images to train on and to judge by."""
    if isinstance(data, str):
        return load(
            data,
            root=machine.data_root,
            download=machine.download,
            image_size=images.get("image_size"),
            limit=images.get("data_limit"),
            validation=judged == "validation",
        )
    if images:
        raise ConfigError(f"compare: {next(iter(images))} is for data by name, got {type(data).__name__}")
    if isinstance(data, Dataset):
        missing = judged == "validation" and data.validation is None
        return data.reduced(limit=None, hold_out_validation=True) if missing else data
    if isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "__getitem__") for part in data):
        return TorchBatches(data[0]), TorchBatches(data[1])
    raise DataError(f"compare: needed a name, a Dataset or two PyTorch datasets, got {type(data).__name__}")


def _initialise_(model: nn.Module, init: Any, generator: torch.Generator) -> None:
    """Fill the filters: by name as `train --init` does, by a function, or by any source that `init_` takes."""
    if isinstance(init, str) and init not in PRESETS:
        find(init)(model, InitContext(generator=generator, argument=init.partition(":")[2]))
    elif hasattr(init, "__code__"):  # a function; schedules can be called too
        init(model, InitContext(generator=generator))
    else:
        init_(model, init, generator=generator)


def _checksum(init: Any) -> str:
    return fingerprint(init) if hasattr(init, "__code__") else hashlib.sha256(repr(init).encode()).hexdigest()


def _check_disk(root: Path, model: nn.Module, runs: int) -> None:
    there = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    needed = runs * COPIES_KEPT * sum(parameter.nbytes for parameter in model.parameters())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise RunError(f"{root}: {counted(runs, 'run')} need {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")


def _step_seconds(model: nn.Module, batches: Batches) -> float:
    """Time a few steps of a model that is thrown away; one that cannot learn from these images is refused."""
    if not len(batches):
        raise ConfigError("compare: the training images do not fill a batch; choose a smaller batch_size")
    accelerate_(model)
    images, classes = next(iter(batches.epoch(0)))
    times = []
    for _ in range(TIMED_STEPS):
        began = time.perf_counter()
        try:
            cross_entropy(model.train()(images), classes).backward()  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason, shape = str(error).partition("\n")[0], tuple(images.shape[1:])
            raise ConfigError(
                f"compare: the model cannot learn these classes from images of {shape} ({reason})"
            ) from None
        times.append(time.perf_counter() - began)
    return min(times)
