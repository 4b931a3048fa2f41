"""What can be looked at: a checkpoint, a statistics file, a run, watched or not, a model in memory or by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from filtercov.covariance.forms import Array
from filtercov.errors import CovarianceError, ModelError, SourceError
from filtercov.files import Source, file_sha256
from filtercov.lab.models.lookup import find, import_timm
from filtercov.layers.checkpoint import read_depthwise_weights, read_named_weights
from filtercov.layers.find import depthwise_layers, plain_values
from filtercov.layers.state_dict import checkpoint_files
from filtercov.statistics.filter_statistics import FilterStatistics, is_statistics, measure_layers
from filtercov.statistics.receptive_field import ReceptiveField, receptive_field
from filtercov.statistics.watched import Watched, is_watched_run

UNTRAINED = "not trained: these are the filters the network starts with"
RUN_FILES = ("checkpoint.safetensors", "statistics.safetensors")
WATCHED = "filters.watched"
EXAMPLES = 4  # random inputs for the effective receptive field
Kind = Literal["checkpoint", "statistics file", "run", "watched run", "model"]


@dataclass(frozen=True, eq=False)
class Target:
    """Filter statistics, and where there are any the filters (count, *kernel_size) by layer.

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


def find_target(target: str, *, untrained: bool = False, example: tuple[int, ...] = ()) -> Target:
    """Return the target of a path or a name; a path that exists goes first."""
    path = Path(target)
    if path.exists():
        return read_target(path)
    if (path.suffix or len(path.parts) > 1) and not target.startswith("timm:"):
        raise SourceError(f"{target}: needed a checkpoint, a statistics file or the directory of a run, found nothing")
    return named_target(target, untrained=untrained, example=example)


def read_target(path: Path) -> Target:
    """Read a checkpoint, a statistics file, or the directory of a run or of a watched run (its last moment)."""
    of_run = [file for name in RUN_FILES if (file := path / name).exists()]
    if of_run:
        return _from_files(_read_run(path), of_run)
    if (watched := watched_path(path)) is not None:
        return _last_moment(watched)
    if is_statistics(path):
        statistics = FilterStatistics.load(path)
        return _from_files(Target(path.name, "statistics file", statistics, {}, statistics.notes), [path])
    weights = read_depthwise_weights(path)
    found = _measured(path.name, "checkpoint", weights.tensors.items(), notes=weights.notes)
    return _from_files(found, checkpoint_files(path))


def watched_path(path: Path) -> Path | None:
    """Return the watched run that a path is, or that lies in it; None if there is none."""
    if is_watched_run(path) or (path.suffix == ".watched" and path.exists()):
        return path
    return path / WATCHED if (path / WATCHED).exists() else None


def run_label(path: Path) -> str:
    """Return the name of a watched run: that of its run's directory, where it lies in one."""
    return (path.resolve().parent.name if path.name == WATCHED else path.name) or str(path)


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
    inputs = torch.randn(EXAMPLES, *example, generator=torch.Generator().manual_seed(0)) if example else None
    if name.startswith("timm:") and not untrained:
        return model_target(_pretrained(name), name, example_input=inputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model_target(find(name), name, example_input=inputs, notes=(UNTRAINED,))


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


def _read_run(path: Path) -> Target:
    checkpoint, statistics = (path / name for name in RUN_FILES)
    unfinished = not (path / "result.json").exists()
    notes: tuple[str, ...] = ("the run is not finished: this is its last checkpoint",) if unfinished else ()
    if (path / WATCHED).exists():
        notes += (f"it was watched while it trained: filtercov inspect {path / WATCHED} shows how its filters grew",)
    label = path.resolve().name
    loaded = FilterStatistics.load(statistics) if statistics.exists() else None
    if loaded and not checkpoint.exists():
        return Target(label, "run", loaded, {}, (*notes, *loaded.notes))
    if loaded:  # which knows the layers of the run's own model, and their order
        weights = read_named_weights(checkpoint, [layer.name for layer in loaded.layers])
    else:
        weights = read_depthwise_weights(checkpoint)
    return _measured(label, "run", weights.tensors.items(), notes=(*notes, *weights.notes))


def _last_moment(path: Path) -> Target:
    watched = Watched.load(path)
    if not len(watched):
        raise SourceError(f"{path}: needed a watched run with a moment in it, it has just begun; look again later")
    moment = watched[len(watched) - 1]
    notes = (*watched.notes, f"this is the last moment that was watched, step {moment.step}")
    target = Target(run_label(path), "watched run", moment.statistics, moment.filters, notes)
    return _from_files(target, [moment.path])


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
        raise SourceError(f"{label}: cannot be measured, {error}") from None
    filters = {name: plain_values(weight, name).flatten(0, 1).numpy() for name, weight in named}
    return Target(label, kind, FilterStatistics(layers, label), filters, notes)


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
