"""`execute`: carry out one `RunSpec` in a directory, on this process's share of the machine.

`run_one`: the same as one run of a sweep. Claim it, check what is there, train, and say how it ended.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import nn

import filtercov as fc
from filtercov.covariance.forms import Array
from filtercov.errors import (
    CheckpointError,
    ConfigError,
    DamagedRunError,
    DataError,
    FiltercovError,
    RunBusyError,
    RunError,
    SourceError,
    StorageError,
    TrainingInterrupted,
)
from filtercov.lab import models
from filtercov.lab.data import Augment, BatchLoader, Dataset, load
from filtercov.lab.data.loader import seeded_generator
from filtercov.lab.experiments.initialisations import InitContext, find
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.runspec import VERSION, Run, RunSpec, read_inputs
from filtercov.lab.training import FitResult, Progress, RunDirectory, TrainConfig, current_world, fit, load_checkpoint
from filtercov.lab.training.rundir import differences, storage_error
from filtercov.layers.find import depthwise_layers
from filtercov.nn import accelerate_

_load = lru_cache(maxsize=4)(load)
forget_datasets = _load.cache_clear  # another sweep of this process may find other images under the same name
FILTERS = 1  # the purpose of a random stream, so that filters do not repeat the draws of other weights


def execute(
    spec: RunSpec,
    run_dir: Path | str,
    *,
    data: Dataset | None = None,
    init_root: Path | str = ".",
    device: torch.device | str = "cpu",
    on_init: Callable[[object], None] | None = None,
    **more: Any,
) -> FitResult:
    """Train what `spec` says in `run_dir`, continuing if it was begun; return the result.

    The statistics of the trained filters are written beside the checkpoint, for runs that start from them. `data` saves
    loading what the specification names; `init_root` is where relative file names in its `init` start. `on_init` gets
    what the initialisation returned, usually an `InitReport`. `more` are settings of `fit` that do not change the
    result.

    A file or run to start from that cannot be read is a `SourceError`; `RunError` and `CheckpointError` are of
    `run_dir` alone.
    """
    data = data or load_data(spec)
    try:
        model = build_model(spec, data, init_root=init_root, on_init=on_init)
        inputs = read_inputs(spec, data.content_digest, init_root=init_root)
    except (CheckpointError, RunError) as error:
        raise SourceError(str(error)) from error
    model.to(device)
    accelerate_(model)
    batches = build_batches(data, spec.train, spec.augment, spec.evaluate, device=device)
    # Besides the training settings config.json says which run it is, and what that read.
    settings = {name: value for name, value in spec.to_dict().items() if name != "train"}
    identity = {"version": VERSION, **settings, "inputs": inputs}

    def finish(model: nn.Module, path: Path) -> Mapping[str, Any]:
        file = path / "statistics.safetensors"
        try:
            fc.FilterStatistics.from_model(model).save(file)
        except CheckpointError as error:
            if isinstance(error.__context__, OSError):  # the disk is at fault, and not what the run has done
                raise storage_error(file, error.__context__) from error
            raise
        return {
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "threads": torch.get_num_threads(),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "evaluated_on": spec.evaluate,
        }

    return fit(model, *batches, spec.train, run_dir, identity=identity, on_finish=finish, **more)


def load_data(spec: RunSpec, *, reader: Callable[..., Dataset] = load, **where: Any) -> Dataset:
    """The dataset that a specification names, cut to its limit; `where` are `root`, `download` and `workers`."""
    validation = spec.evaluate == "validation"
    return reader(spec.data, image_size=spec.image_size, limit=spec.data_limit, validation=validation, **where)


def build_model(
    spec: RunSpec,
    data: Dataset,
    *,
    init_root: Path | str = ".",
    on_init: Callable[[object], None] | None = None,
) -> nn.Module:
    """The network of a specification before the first step; all but the filters depends on the seed alone."""
    with torch.random.fork_rng([]):
        torch.manual_seed(spec.train.seed)
        model = models.create(
            spec.model, num_classes=data.num_classes, in_channels=data.in_channels, drop_path_rate=spec.drop_path
        )
    _check_takes(model, spec.model, data)
    context = InitContext(
        generator=seeded_generator(spec.train.seed, FILTERS),
        argument=spec.init.partition(":")[2],
        schedule=spec.schedule,
        negative=spec.negative,
        root=Path(init_root),
        min_kernel_size=spec.min_kernel_size,
    )
    report = find(spec.init)(model, context)
    if on_init is not None:
        on_init(report)
    return fc.freeze_(model) if spec.freeze_filters else model


def _check_takes(model: nn.Module, name: str, data: Dataset) -> None:
    """Refuse images that a network cannot take, of which only the network itself knows."""
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, data.in_channels, data.image_size, data.image_size))
    except (RuntimeError, ValueError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"{name} cannot take images of {data.image_size} pixels, as {data.name} has ({reason}); choose larger "
            "images, of a folder with --img-size, or a smaller patch size"
        ) from None
    model.train()


def build_batches(
    data: Dataset, train: TrainConfig, augment: str, evaluate: str = "test", *, device: torch.device | str = "cpu"
) -> tuple[BatchLoader, BatchLoader]:
    """The batches to train on and those to judge by, this process's part of each."""
    judges, world = data.validation if evaluate == "validation" else data.test, current_world()
    if judges is None:
        raise ConfigError(f"{data.name} was loaded without validation images; load it with validation=True")
    batches = partial(BatchLoader, batch_size=train.batch_size, seed=train.seed, mean=data.mean, std=data.std)
    share: dict[str, Any] = {"rank": world.rank, "world_size": world.size, "device": device}
    augmentation = Augment.preset(cast(Any, augment))
    return batches(data.train, augment=augmentation, shuffle=True, drop_last=True, **share), batches(judges, **share)


def filters_of(model: nn.Module, run: RunDirectory) -> dict[str, tuple[Array, Array]]:
    """The filters of each depthwise layer before a run, in `model`, and after it, (count, *kernel_size) each."""
    trained, _ = load_checkpoint(run.checkpoint)
    pairs = {layer.name: (layer.weight.detach(), trained[f"{layer.name}.weight"]) for layer in depthwise_layers(model)}
    return {name: (old.double().numpy()[:, 0], new.double().numpy()[:, 0]) for name, (old, new) in pairs.items()}


# --- One run of a sweep ---


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: done now or before, failed for good, or busy in other hands."""

    key: str
    status: Literal["done", "failed", "busy"]
    detail: str = ""


@dataclass(frozen=True)
class Machine:
    """This machine's images and device, which do not change the result of a run."""

    data_root: Path | None = None
    download: bool = False
    device: str = "cpu"


def run_one(
    run: Run,
    runs: Runs,
    *,
    machine: Machine | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Do a run unless it is done or in other hands.

    One that is damaged, cannot be continued, or read something that has changed since, is set aside and done again, as
    the outcome says. Errors of the run make it failed; a full disk and a request to stop concern the whole sweep and
    are raised.
    """
    machine, said = machine or Machine(), ""
    with runs.claim(run) as mine:
        if not mine:
            return Outcome(run.key, "busy")
        while True:
            try:
                if not _finished(run, runs, machine):
                    execute(
                        run.spec,
                        runs.directory(run).path,
                        data=dataset_of(run.spec, machine),
                        device=machine.device,
                        init_root=runs.root,
                        progress=progress,
                    )
                return Outcome(run.key, "done", said)
            except (StorageError, TrainingInterrupted):
                raise
            except RunBusyError:
                return Outcome(run.key, "busy")
            except (RunError, CheckpointError) as error:  # of its own directory: an earlier attempt left it like that
                if said:
                    return Outcome(run.key, "failed", str(error))
                said = f"{error}; the run was set aside and done again"
                runs.set_aside(run)
            except (FiltercovError, RuntimeError, ValueError, MemoryError) as error:
                return Outcome(run.key, "failed", f"{type(error).__name__}: {error}")


def _finished(run: Run, runs: Runs, machine: Machine) -> bool:
    """Whether a run is finished; raise `DamagedRunError` if it would read something else today.

    Inputs that are gone do not count.
    """
    found = runs.finished(run.key)
    if not found:
        return False
    content, inputs = None, {}
    with suppress(DataError):
        content = dataset_of(run.spec, machine).content_digest
    with suppress(FiltercovError):  # the run it starts from may be damaged: whoever needs that one will say so
        inputs = read_inputs(run.spec, content, init_root=runs.root)
    then = {name: found.config["inputs"].get(name) for name in inputs}
    if changed := differences(then, inputs):
        raise DamagedRunError(f"run {run.key} will not be used, what it read has changed since: {'; '.join(changed)}")
    return True


def check_images(wanted: Iterable[Run], runs: Runs, machine: Machine) -> None:
    """Raise `DataError`, before anything is trained, for data that runs still need and that cannot be had."""
    unfinished = (run.spec for run in wanted if not runs.directory(run).done)
    for spec in {spec.data: spec for spec in unfinished}.values():
        dataset_of(spec, machine)


def dataset_of(spec: RunSpec, machine: Machine) -> Dataset:
    """The dataset of a specification, loaded once for all runs of a sweep that use it."""
    return load_data(spec, root=machine.data_root, download=machine.download, reader=_load)
