"""Trials of a module, data or initialisation of one's own, for `compare`: trained here by `fit`, one after another.

Each is a run directory named by a hash of all that decides how it ends, as far as that can be known: the source of
functions, the settings, the content of data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from filtercov.covariance.forms import Array
from filtercov.errors import ConfigError, DataError
from filtercov.filters import freeze_, init_
from filtercov.lab.data import Augment, BatchLoader, Dataset, load
from filtercov.lab.data.loader import seeded_generator
from filtercov.lab.experiments.fingerprint import fingerprint
from filtercov.lab.experiments.initialisations import DEFAULT_SCHEDULE, InitContext, find
from filtercov.lab.experiments.runs import accuracies
from filtercov.lab.experiments.runspec import key_of
from filtercov.lab.models.lookup import find as find_model
from filtercov.lab.report.groups import FinishedRun
from filtercov.lab.training import (
    Batches,
    FitResult,
    RunDirectory,
    TrainConfig,
    fit,
    load_checkpoint,
    progress_on,
    read_metrics,
)
from filtercov.layers.find import depthwise_layers
from filtercov.nn import accelerate_
from filtercov.schedule import PRESETS

SAMPLED = 256  # items of a PyTorch dataset that its checksum reads
_FILTERS, _ORDER = 1, 2  # what a random stream is for


@dataclass(frozen=True)
class Column:
    """An initialisation, and whether its filters stay as they are."""

    init: Any
    frozen: bool

    @property
    def label(self) -> str:
        """The name of the column."""
        return f"{init_name(self.init)}, frozen" if self.frozen else init_name(self.init)


def init_name(init: Any) -> str:
    """The name of an initialisation: of a file its last part, of a function its own, of other sources their kind.

    >>> init_name("stats:there/trained.pth"), init_name(init_name)
    ('stats:trained.pth', 'init_name')
    """
    if isinstance(init, str):
        kind, colon, argument = init.partition(":")
        return f"{kind}{colon}{Path(argument).name}" if colon else kind
    return str(getattr(init, "__name__", type(init).__name__))


class OwnTrials:
    """Every column of a comparison that is not all names."""

    def __init__(
        self,
        model: str | Callable[[], nn.Module],
        data: Any,
        train: dict[str, Any],
        images: dict[str, Any],
        judged: str,
        root: Path,
        say: Callable[[str], None],
    ) -> None:
        self.model, self.train, self.judged, self.root, self.say = model, train, judged, root, say
        self.augment = images.pop("augment", "none")
        self.data = _read(data, judged, images)
        self.title = f"{model if isinstance(model, str) else init_name(model)} on {_name(self.data)}"

    def check(self, columns: Sequence[Column]) -> tuple[nn.Module, Batches]:
        """Build every column's model and run the first on a batch; return it, and the batches."""
        built = [self._build(column, 0) for column in columns]
        batches, _ = self._batches(TrainConfig.from_dict(self.train))
        if not len(batches):
            raise ConfigError("compare: the training images do not fill a batch; choose a smaller batch_size")
        images, classes = next(iter(batches.epoch(0)))
        try:
            with torch.no_grad():
                cross_entropy(built[0](images), classes)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason = str(error).partition("\n")[0]
            shape = tuple(images.shape[1:])
            raise ConfigError(
                f"compare: the model cannot learn these classes from images of {shape} ({reason})"
            ) from None
        return built[0], batches

    def done(self, columns: Sequence[Column], seeds: range) -> dict[Column, list[FinishedRun]]:
        """Train what is not trained yet, and read it all."""
        return {column: [self._trained(column, seed) for seed in seeds] for column in columns}

    def sources(self) -> tuple[()]:
        """No file that a page could name."""
        return ()

    def _trained(self, column: Column, seed: int) -> FinishedRun:
        config = TrainConfig.from_dict({**self.train, "seed": seed})
        model = self._build(column, seed)
        before = filters_of(model) if seed == 0 else {}
        accelerate_(model)
        identity = {
            "model": self.model if isinstance(self.model, str) else fingerprint(self.model),
            "data": _digest(self.data),
            "init": column.init if isinstance(column.init, str) else _what_it_does(column.init),
            "freeze_filters": column.frozen,
            "augment": self.augment,
            "evaluate": self.judged,
        }
        directory = RunDirectory(self.root / key_of({**identity, "train": config.to_dict()}))
        if directory.done:
            self.say(f"{column.label}, seed {seed}: finished before")
        progress = progress_on(label=f"{column.label}, seed {seed}")
        result = fit(model, *self._batches(config), config, directory.path, identity=identity, progress=progress)
        return read_trial(seed, directory, result, before)

    def _build(self, column: Column, seed: int) -> nn.Module:
        """The model of a column before its first step; all but the filters depends on the seed alone."""
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            if not isinstance(self.model, str):
                model = self.model()
            elif isinstance(self.data, Dataset):
                model = find_model(self.model, num_classes=self.data.num_classes, in_channels=self.data.in_channels)
            else:
                raise ConfigError("compare: a model by name needs data by name or a Dataset, which tells its classes")
        if not isinstance(model, nn.Module):
            raise ConfigError(f"compare: needed a function that returns a torch.nn.Module, got {type(model).__name__}")
        _initialise_(model, column.init, seeded_generator(seed, _FILTERS))
        return freeze_(model) if column.frozen else model

    def _batches(self, config: TrainConfig) -> tuple[Batches, Batches]:
        size, seed, data = config.batch_size, config.seed, self.data
        if not isinstance(data, Dataset):
            train, judge = data
            return replace(train, batch_size=size, seed=seed, shuffle=True), replace(judge, batch_size=size)
        judges = data.validation if self.judged == "validation" and data.validation is not None else data.test
        shared: dict[str, Any] = {"batch_size": size, "seed": seed, "mean": data.mean, "std": data.std}
        augment = Augment.preset(cast(Any, self.augment))
        train_batches = BatchLoader(data.train, augment=augment, shuffle=True, drop_last=True, **shared)
        return train_batches, BatchLoader(judges, **shared)


@dataclass(frozen=True, eq=False)
class TorchBatches:
    """Batches of a PyTorch dataset of (image, class), in an order that depends on seed and epoch alone."""

    data: Any
    batch_size: int = 1
    seed: int = 0
    shuffle: bool = False  # for training, which also leaves out a last, smaller batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.data), self.batch_size)
        return whole if self.shuffle else whole + bool(rest)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch from `start_batch` on."""
        order = torch.arange(len(self.data))
        if self.shuffle:
            order = torch.randperm(len(self.data), generator=seeded_generator(self.seed, _ORDER, epoch))
        for batch in range(start_batch, len(self)):
            chosen = order[batch * self.batch_size : (batch + 1) * self.batch_size].tolist()
            images, classes = zip(*(self.data[index] for index in chosen), strict=True)
            yield torch.stack([torch.as_tensor(image) for image in images]), torch.tensor([int(c) for c in classes])

    def digest(self) -> str:
        """A checksum of the length and of up to 256 items, evenly spaced."""
        found = hashlib.sha256(str(len(self.data)).encode())
        for index in range(0, len(self.data), max(1, len(self.data) // SAMPLED)):
            image, label = self.data[index]
            found.update(np.ascontiguousarray(torch.as_tensor(image).numpy()).tobytes() + str(int(label)).encode())
        return found.hexdigest()


Images = Dataset | tuple[TorchBatches, TorchBatches]


def _read(data: Any, judged: str, options: dict[str, Any]) -> Images:
    if isinstance(data, str):
        limit = options.pop("data_limit", None)
        return load(data, validation=judged == "validation", limit=limit, **options)
    if options:
        raise ConfigError(f"compare: {next(iter(options))} is for data by name, got {type(data).__name__}")
    if isinstance(data, Dataset):
        missing = judged == "validation" and data.validation is None
        return data.reduced(limit=None, hold_out_validation=True) if missing else data
    if isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "__getitem__") for part in data):
        if not all(len(part) for part in data):
            raise DataError("compare: needed images to train on and to judge by, got an empty dataset")
        return TorchBatches(data[0]), TorchBatches(data[1])
    kind = type(data).__name__
    raise DataError(f"compare: needed a name, a filtercov.lab.data.Dataset or two PyTorch datasets, got {kind}")


def _name(data: Images) -> str:
    return data.name if isinstance(data, Dataset) else f"{len(data[0].data):,} images"


def _digest(data: Images) -> str:
    return data.content_digest if isinstance(data, Dataset) else "+".join(part.digest() for part in data)


def _initialise_(model: nn.Module, init: Any, generator: torch.Generator) -> None:
    """Fill the filters: by name as `train --init` does, by a function, or by any source that `init_` takes."""
    if isinstance(init, str) and init not in PRESETS:
        entry = find(init)
        schedule = DEFAULT_SCHEDULE if entry.schedule == "required" else None
        entry(model, InitContext(generator=generator, argument=init.partition(":")[2], schedule=schedule))
    elif hasattr(init, "__code__"):  # a function, where schedules can be called too
        init(model, InitContext(generator=generator))
    else:
        init_(model, init, generator=generator)


def _what_it_does(init: Any) -> str:
    """A checksum of a function's source, or of the text of any other source."""
    return fingerprint(init) if hasattr(init, "__code__") else hashlib.sha256(repr(init).encode()).hexdigest()


def filters_of(model: nn.Module) -> dict[str, Array]:
    """The filters of each depthwise layer, (count, *kernel_size)."""
    return {layer.name: layer.weight.detach().double().cpu().numpy().copy()[:, 0] for layer in depthwise_layers(model)}


def read_trial(seed: int, directory: RunDirectory, result: FitResult, before: dict[str, Array]) -> FinishedRun:
    """What a comparison shows of a finished run; of filters before training, also those after it."""
    tensors = load_checkpoint(directory.checkpoint)[0] if before else {}
    filters = {name: (found, tensors[f"{name}.weight"].double().numpy()[:, 0]) for name, found in before.items()}
    return FinishedRun(seed, accuracies(read_metrics(directory.metrics)), result.seconds / result.steps, filters)
