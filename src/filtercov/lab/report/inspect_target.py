"""What can be looked at: a checkpoint, a statistics file, a run, a model in memory, or one by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from filtercov.covariance.forms import Array
from filtercov.errors import CovarianceError, ModelError, TargetError
from filtercov.files import Source, file_sha256, read_description
from filtercov.lab.models.lookup import find, import_timm
from filtercov.layers.checkpoint import read_depthwise_weights, read_named_weights
from filtercov.layers.find import depthwise_layers, plain_values
from filtercov.layers.state_dict import checkpoint_files
from filtercov.statistics.filter_statistics import KIND, FilterStatistics, measure_layers
from filtercov.statistics.receptive_field import ReceptiveField, receptive_field

UNTRAINED = "not trained: these are the filters the network starts with"
RUN_FILES = ("checkpoint.safetensors", "statistics.safetensors")
WATCHED = "filters.watched"
EXAMPLES = 4  # random inputs for the effective receptive field
Kind = Literal["checkpoint", "statistics file", "run", "model"]


@dataclass(frozen=True, eq=False)
class Target:
    """The filter statistics of something, and where it has them its filters (count, *kernel_size) by layer.

    `sources` are the files it was read from, or its name where it was built; `field` is the effective receptive field
    of a model that an example was given for.
    """

    label: str
    kind: Kind
    statistics: FilterStatistics
    filters: Mapping[str, Array]
    notes: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    field: ReceptiveField | None = None


def read_target(path: Path) -> Target:
    """Read a checkpoint, a file that `FilterStatistics.save` wrote, or the directory of either or of a run."""
    of_run = [file for name in RUN_FILES if (file := path / name).exists()]
    if of_run:
        return _from_files(_read_run(path), of_run)
    if is_statistics(path):
        statistics = FilterStatistics.load(path)
        return _from_files(Target(path.name, "statistics file", statistics, {}, statistics.notes), [path])
    weights = read_depthwise_weights(path)
    found = _measured(path.name, "checkpoint", weights.tensors.items(), notes=weights.notes)
    return _from_files(found, checkpoint_files(path))


def ends_apart(path: Path, other: Path) -> tuple[str, str]:
    """Return the shortest ends of two paths that differ; those to the same place, and names of models, stay whole.

    >>> ends_apart(Path("/runs/x/model.pth"), Path("/runs/y/model.pth"))
    ('x/model.pth', 'y/model.pth')
    """
    mine, theirs = (_from_root(each).parts for each in (path, other))
    for length in range(1, max(len(mine), len(theirs)) + 1):
        end, another = (Path(*parts[-length:]).as_posix() for parts in (mine, theirs))
        if end != another:
            return end, another
    return str(path), str(other)


def model_target(model: nn.Module, label: str, *, example_input: Any = None, notes: tuple[str, ...] = ()) -> Target:
    """Look at a model in memory; `example_input` traces the order in which its layers run.

    If it is a tensor of images, (count, channels, *size), it also shows the effective receptive field.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 7, groups=8))
    >>> model_target(net, "mine").filters["0"].shape
    (8, 7, 7)
    """
    layers = depthwise_layers(model, example_input)
    found = _measured(label, "model", ((layer.name, layer.weight) for layer in layers), notes=notes)
    target = replace(found, sources=(Source(label),))
    if not isinstance(example_input, Tensor) or example_input.ndim < 3:
        return target
    try:
        return replace(target, field=receptive_field(model, example_input))
    except ModelError as error:
        return replace(target, notes=(*notes, f"no effective receptive field: {error}"))


def named_target(name: str, *, untrained: bool = False, example: tuple[int, ...] = ()) -> Target:
    """Build one of our models, or `timm:NAME` with its pretrained weights unless `untrained`.

    `example` is the size (channels, *size) of random inputs that show its effective receptive field.

    >>> len(named_target("convmixer_16_3_k5_p2").statistics.layers)
    3
    """
    if name.startswith("timm:") and not untrained:
        return model_target(_pretrained(name), name, example_input=_examples(example))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model_target(find(name), name, example_input=_examples(example), notes=(UNTRAINED,))


def _read_run(path: Path) -> Target:
    checkpoint, statistics = (path / name for name in RUN_FILES)
    notes: tuple[str, ...] = (
        () if (path / "result.json").exists() else ("the run is not finished: this is its last checkpoint",)
    )
    if (path / WATCHED).exists():
        notes += (
            f"it was watched while it trained: filtercov inspect {path / WATCHED} shows how its filters came about",
        )
    label = path.resolve().name
    loaded = FilterStatistics.load(statistics) if statistics.exists() else None
    if loaded and not checkpoint.exists():
        return Target(label, "run", loaded, {}, (*notes, *loaded.notes))
    if loaded:  # which knows the layers of the run's own model, and their order
        weights = read_named_weights(checkpoint, [layer.name for layer in loaded.layers])
    else:
        weights = read_depthwise_weights(checkpoint)
    return _measured(label, "run", weights.tensors.items(), notes=(*notes, *weights.notes))


def is_statistics(path: Path) -> bool:
    """Tell whether a file is one that `FilterStatistics.save` wrote."""
    # Opening a pipe would wait for ever.
    return path.is_file() and read_description(path).get("format") == KIND.format


def _from_root(path: Path) -> Path:
    """Return the whole path of what is there; a link to a file keeps its name."""
    if not path.exists():
        return path
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


def _from_files(target: Target, files: Iterable[Path]) -> Target:
    return replace(target, sources=tuple(Source(str(file), file_sha256(file)) for file in files))


def _measured(label: str, kind: Kind, weights: Iterable[tuple[str, Tensor]], *, notes: tuple[str, ...] = ()) -> Target:
    named = list(weights)
    try:
        layers = measure_layers(named)
    except (CovarianceError, ModelError) as error:
        raise TargetError(f"{label}: cannot be measured, {error}") from None
    filters = {name: plain_values(weight, name).flatten(0, 1).numpy() for name, weight in named}
    return Target(label, kind, FilterStatistics(layers, label), filters, notes)


def _examples(size: tuple[int, ...]) -> Tensor | None:
    return torch.randn(EXAMPLES, *size, generator=torch.Generator().manual_seed(0)) if size else None


def _pretrained(name: str) -> nn.Module:
    timm = import_timm()
    try:
        model: nn.Module = timm.create_model(name.removeprefix("timm:"), pretrained=True)
    except Exception as error:  # timm, its hub and the network raise many kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{name}: cannot be had with pretrained weights ({reason}); name a checkpoint file, or add --untrained to "
            "look at the network as it starts"
        ) from None
    return model
