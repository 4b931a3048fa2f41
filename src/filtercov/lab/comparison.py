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
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from filtercov.errors import ConfigError, DataError, RunError
from filtercov.filters import freeze_, init_
from filtercov.lab import models
from filtercov.lab.data import Dataset, load
from filtercov.lab.data.loader import TorchBatches, seeded_generator
from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.execute import FILTERS, Machine, build_batches, build_model, filters_of
from filtercov.lab.experiments.initialisations import InitContext, find, fingerprint, located, shown_init
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import AUGMENTED, Run, RunSpec, key_of
from filtercov.lab.experiments.sweep import refuse_failures, sweep
from filtercov.lab.report.groups import FinishedRun, Group, Table, answer, group_table, groups_page, with_baselines
from filtercov.lab.report.page import write_output
from filtercov.lab.training import Batches, RunDirectory, TrainConfig, fit, progress_on, read_metrics
from filtercov.lab.training.config import choice
from filtercov.lab.training.progress import duration
from filtercov.nn import accelerate_
from filtercov.nn.timing import race
from filtercov.printable import aligned, counted
from filtercov.schedule import PRESETS
from filtercov.statistics.filter_statistics import FilterStatistics

TIMED_STEPS = 3
COPIES_KEPT = 4  # of a model's weights in its run: the checkpoint and, while it trains, the state with two moments
FROZEN = ", frozen"  # ends the labels of columns whose filters stay as they are


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result: an answer and a table in print, a page in a file."""

    title: str
    groups: list[Group]
    note: str
    command: str = ""
    below: str = ""  # HTML at the end of the page

    @property
    def answer(self) -> str:
        """A sentence for each column but the first."""
        return answer(self.groups)

    @property
    def table(self) -> Table:
        """Accuracy, paired difference with its interval and time a step of each column, heading first."""
        return group_table(self.groups)

    def page(self) -> str:
        """The page, as HTML."""
        return groups_page(self.title, self.groups, notes=[self.note], below=self.below, command=self.command)

    def write(self, out: Path | str) -> Path:
        """Write the page to a file."""
        return write_output(Path(out), self.page())

    def __str__(self) -> str:
        return "\n".join([self.answer, "", *aligned(self.table), self.note])

    _repr_html_ = page


class Images(NamedTuple):
    """The images to train on and to judge by, given in any form."""

    name: str
    digest: Callable[[], str]  # of their content
    batches: Callable[[TrainConfig], tuple[Batches, Batches]]
    dataset: Dataset | None = None  # which tells its classes


@dataclass(frozen=True)
class Trial:
    """One run of a comparison: ordinary if model, data and initialisation are names, else custom, by `fit`."""

    directory: RunDirectory
    config: TrainConfig
    build: Callable[[], nn.Module]  # the model before its first step; all but the filters depends on the seed alone
    run: Run | None = None
    identity: dict[str, Any] = field(default_factory=dict)  # what decides a custom run

    def train(self, batches: tuple[Batches, Batches], label: str) -> None:
        """Train or continue a custom run, unless it is done."""
        if self.directory.done:
            print(f"{label}: finished before", file=sys.stderr)
            return
        model, progress = self.build(), progress_on(label=label)
        accelerate_(model)
        fit(model, *batches, self.config, self.directory.path, identity=self.identity, progress=progress)

    def finished(self, *, filters: bool) -> FinishedRun:
        """The finished run, with its filters or without."""
        result, metrics = self.directory.read_result(), read_metrics(self.directory.metrics)
        curve = tuple(record["test_accuracy"] for record in metrics if record["event"] == "epoch")
        found = filters_of(self.build(), self.directory) if filters else {}
        return FinishedRun(self.config.seed, curve, result.seconds / result.steps, found)


def compare(
    model: str | Callable[[], nn.Module],
    data: Any,
    *,
    inits: Sequence[Any] = ("default", "closed-form"),
    seeds: int | Sequence[int] = 3,
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
    or a function of the model and an `InitContext`. `seeds` says how many, from 0, or which. `freeze_filters` is `no`,
    `yes`, or `both`: each with its filters trained and frozen. Settings that are not given are those of the recipe
    `cifar`.

    Choosing among more than two is done on validation images. Everything is checked before the first step. Workers and
    Ray need model, data and initialisations by name.
    """
    columns, engine, machine = _columns(inits, freeze_filters), engine or Engine(), machine or Machine()
    which = range(seeds) if isinstance(seeds, int) else list(dict.fromkeys(seeds))
    if not which:
        raise ConfigError(f"compare: needed at least one seed, got {seeds}")
    limits = _given(image_size=image_size, limit=data_limit)
    judged = "validation" if len(inits) > 2 and not isinstance(data, tuple) else "test"
    by_name = isinstance(model, str) and isinstance(data, str) and all(isinstance(init, str) for init in inits)
    if not by_name and (engine.name != "local" or engine.workers > 1):
        raise ConfigError("compare: workers and Ray need model, data and initialisations by name, got an object")
    augment, runs = augment or (AUGMENTED["cifar"] if by_name else "none"), Runs(run_dir)
    images = _read(data, judged, augment, limits, machine)

    def trial(init: Any, frozen: bool, seed: int) -> Trial:
        train = _given(epochs=epochs, batch_size=batch_size, lr=lr, seed=seed)
        shared = {"augment": augment, "evaluate": judged, "freeze_filters": frozen}
        if by_name:
            assert images.dataset is not None
            preset = {"init": "closed-form", "schedule": init}
            drawn = preset if init in PRESETS else {"init": located(init)}
            size = {"image_size": image_size, "data_limit": data_limit}
            run = Run(RunSpec.recipe("cifar", train=train, model=model, data=data, **shared, **drawn, **size))
            build = partial(build_model, run.spec, images.dataset, init_root=runs.root)
            return Trial(runs.directory(run), run.spec.train, build, run)
        config = TrainConfig.from_dict(train)
        built_by = model if isinstance(model, str) else fingerprint(model)
        identity = {"model": built_by, "data": images.digest(), "init": _checksum(init), **shared}
        directory = RunDirectory(runs.root / key_of({**identity, "train": config.to_dict()}))
        return Trial(directory, config, partial(_build, model, images, init, frozen, seed), identity=identity)

    trials = {label: [trial(*column, seed) for seed in which] for label, column in columns.items()}
    every = [each for members in trials.values() for each in members]
    first, *_ = [members[0].build() for members in trials.values()]  # all are built: what does not fit is refused
    _check_disk(runs.root, first, len(every))
    _say_how_long(first, images.batches(every[0].config)[0], epochs=epochs, runs=len(every), workers=engine.workers)
    if ordinary := [each.run for each in every if each.run]:
        refuse_failures(sweep(ordinary, runs.root, engine=engine, machine=machine))
    else:
        for label, members in trials.items():
            for each in members:
                each.train(images.batches(each.config), f"{label}, seed {each.config.seed}")
    groups = {
        label: Group(label, [each.finished(filters=each is members[0]) for each in members])
        for label, members in trials.items()
    }

    def baseline(label: str) -> str:  # of frozen filters the same ones trained, of others the first initialisation
        trained = label.removesuffix(FROZEN)
        return trained if trained != label and trained in groups else next(iter(groups))

    chosen = " Among more than two initialisations one chooses on these, and reports on test images."
    note = f"Accuracies are of {judged} images.{chosen * (judged == 'validation')}"
    return Comparison(f"{_name(model)} on {images.name}", with_baselines(groups, baseline), note, command)


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _columns(inits: Sequence[Any], freeze_filters: str) -> dict[str, tuple[Any, bool]]:
    """Each initialisation, and whether its filters stay as they are, by label."""
    names = [_name(init) for init in inits]
    if len(inits) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"compare: needed two or more different initialisations, got {', '.join(names) or 'none'}")
    states = {"no": [False], "yes": [True], "both": [False, True]}
    choice("freeze_filters", freeze_filters, tuple(states))
    return {f"{_name(init)}{FROZEN * frozen}": (init, frozen) for frozen in states[freeze_filters] for init in inits}


def _name(init: Any) -> str:
    """The name of an initialisation or model: of a function its own, of other sources their kind.

    >>> _name("stats:there/trained.pth"), _name(_name)
    ('stats:trained.pth', '_name')
    """
    return shown_init(init) if isinstance(init, str) else str(getattr(init, "__name__", type(init).__name__))


def _read(data: Any, judged: str, augment: str, limits: dict[str, Any], machine: Machine) -> Images:
    """The images to train on and to judge by."""
    validation = judged == "validation"
    if isinstance(data, str):
        dataset = load(data, root=machine.data_root, download=machine.download, validation=validation, **limits)
    elif limits:
        raise ConfigError(f"compare: image_size and data_limit are for data by name, got {type(data).__name__}")
    elif isinstance(data, Dataset):
        missing = validation and data.validation is None
        dataset = data.reduced(limit=None, hold_out_validation=True) if missing else data
    elif isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "__getitem__") for part in data):
        return _of_torch(*map(TorchBatches, data))
    else:
        raise DataError(f"compare: needed a name, a Dataset or two PyTorch datasets, got {type(data).__name__}")
    name = data if isinstance(data, str) else dataset.name
    batches = partial(build_batches, dataset, augment=augment, evaluate=judged)
    return Images(name, lambda: dataset.content_digest, batches, dataset)


def _of_torch(train: TorchBatches, judge: TorchBatches) -> Images:
    def batches(config: TrainConfig) -> tuple[Batches, Batches]:
        shuffled = replace(train, batch_size=config.batch_size, seed=config.seed, shuffle=True)
        return shuffled, replace(judge, batch_size=config.batch_size)

    return Images(f"{len(train.data):,} images", lambda: f"{train.digest()}+{judge.digest()}", batches)


def _build(model: str | Callable[[], nn.Module], images: Images, init: Any, frozen: bool, seed: int) -> nn.Module:
    """The model before its first step, where not everything has a name."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        if not isinstance(model, str):
            built = model()
        elif data := images.dataset:
            built = models.create(model, num_classes=data.num_classes, in_channels=data.in_channels)
        else:
            raise ConfigError("compare: a model by name needs data by name or a Dataset, which tells its classes")
    generator = seeded_generator(seed, FILTERS)
    if isinstance(init, str) and init not in PRESETS:
        find(init)(built, InitContext(generator=generator, argument=init.partition(":")[2]))
    elif hasattr(init, "__code__"):  # a function; schedules can be called too
        init(built, InitContext(generator=generator))
    else:
        init_(built, init, generator=generator)
    return freeze_(built) if frozen else built


def _checksum(init: Any) -> str:
    """The identity of an initialisation: its name, or a checksum."""
    if isinstance(init, str):
        return init
    if hasattr(init, "__code__"):
        return fingerprint(init)
    if isinstance(init, FilterStatistics):  # whose text names its layers, not their numbers
        numbers = (array.tobytes() for layer in init.layers for array in (layer.mean, layer.covariance))
        return hashlib.sha256(b"".join(numbers)).hexdigest()
    return hashlib.sha256(repr(init).encode()).hexdigest()


def _check_disk(root: Path, model: nn.Module, runs: int) -> None:
    there = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    needed = runs * COPIES_KEPT * sum(parameter.nbytes for parameter in model.parameters())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise RunError(f"{root}: {counted(runs, 'run')} need {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")


def _say_how_long(model: nn.Module, batches: Batches, *, epochs: int, runs: int, workers: int) -> None:
    """Print how long all runs will take, from a few steps of a model that must be able to learn from these images."""
    if not len(batches):
        raise ConfigError("compare: the training images do not fill a batch; choose a smaller batch_size")
    accelerate_(model)
    images, classes = next(iter(batches.epoch(0)))

    def learn() -> None:
        cross_entropy(model.train()(images), classes).backward()  # type: ignore[no-untyped-call]

    try:
        times = race({"step": learn}, seconds=inf, turns=TIMED_STEPS, clock=time.perf_counter)["step"]
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason, shape = str(error).partition("\n")[0], tuple(images.shape[1:])
        raise ConfigError(f"compare: the model cannot learn these classes from images of {shape} ({reason})") from None
    steps = epochs * len(batches)
    length = f"about {duration(min(times) * steps * runs / workers)} here"
    print(f"{counted(runs, 'run')} of {counted(steps, 'step')}, {length}", file=sys.stderr, flush=True)
