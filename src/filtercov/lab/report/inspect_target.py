"""Targets of `inspect`: a checkpoint, a statistics file, a run, watched or not, a model in memory or by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from filtercov.covariance.forms import Array
from filtercov.errors import ModelError, SourceError
from filtercov.lab.models.lookup import create, import_timm
from filtercov.layers.checkpoint import read_depthwise_weights, read_named_weights
from filtercov.layers.find import depthwise_layers, plain_values
from filtercov.statistics.filter_statistics import FilterStatistics, is_statistics, measure_layers
from filtercov.statistics.shipped import shipped_file, shipped_names
from filtercov.statistics.watched import Watched, is_watched_run

UNTRAINED = "not trained: these are the filters the network starts with"
RUN_FILES = ("checkpoint.safetensors", "statistics.safetensors")
WATCHED = "filters.watched"
Kind = Literal["checkpoint", "statistics file", "run", "watched run", "model"]


@dataclass(frozen=True, eq=False)
class Target:
    """Filter statistics, and where there are any the filters (count, *kernel_size) by layer."""

    label: str
    kind: Kind
    statistics: FilterStatistics
    filters: Mapping[str, Array]
    notes: tuple[str, ...] = ()


def find_target(target: str, *, untrained: bool = False) -> Target:
    """Read a path or shipped statistics, or build one of our models or `timm:NAME`, pretrained unless `untrained`."""
    path = Path(target)
    if path.exists():
        return read_target(path)
    if (shipped := target.removeprefix("stats:")) in shipped_names():
        return read_target(shipped_file(shipped))
    if (path.suffix or len(path.parts) > 1) and not target.startswith("timm:"):
        raise SourceError(f"{target}: needed a checkpoint, a statistics file or the directory of a run, found nothing")
    if target.startswith("timm:") and not untrained:
        return model_target(_pretrained(target), target)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return model_target(create(target), target, notes=(UNTRAINED,))


def read_target(path: Path) -> Target:
    """Read a checkpoint, a statistics file, or the directory of a run or of a watched run (its last moment)."""
    if run := read_watched(path):
        label, watched = run
        moment = watched[-1]
        notes = (*watched.notes, f"this is the last moment that was watched, step {moment.step}")
        return Target(label, "watched run", moment.statistics, moment.filters, notes)
    if files := _run_files(path):
        return _read_run(path, files)
    if is_statistics(path):
        statistics = FilterStatistics.load(path)
        return Target(path.name, "statistics file", statistics, {}, statistics.notes)
    weights = read_depthwise_weights(path)
    return _measured(path.name, "checkpoint", weights.tensors, weights.notes)


def read_watched(path: Path) -> tuple[str, Watched] | None:
    """The watched run that a path stands for, with its name; None where it stands for something else.

    It may be over or not, and inside the directory of a run without weights, whose name it then has.
    """
    folder = path if is_watched_run(path) else path / WATCHED
    if not folder.exists() or _run_files(path):
        return None
    watched = Watched.load(folder)
    if not len(watched):
        raise SourceError(f"{path}: needed a watched run with a moment in it, it has just begun; look again later")
    return (folder.resolve().parent.name if folder.name == WATCHED else folder.name) or str(folder), watched


def _run_files(path: Path) -> list[Path]:
    return [file for name in RUN_FILES if (file := path / name).exists()]


def model_target(model: nn.Module, label: str, *, example_input: Any = None, notes: tuple[str, ...] = ()) -> Target:
    """Look at a model in memory; `example_input` traces the order in which its layers run."""
    weights = {layer.name: layer.weight for layer in depthwise_layers(model, example_input)}
    return _measured(label, "model", weights, notes)


def _read_run(path: Path, files: Sequence[Path]) -> Target:
    """The weights of a run, whose statistics know the layers of its model and their order, or these statistics."""
    finished = (path / "result.json").exists()
    notes = () if finished else ("the run is not finished: this is its last checkpoint",)
    loaded = FilterStatistics.load(files[-1]) if files[-1].name == RUN_FILES[1] else None
    if loaded and len(files) == 1:
        return Target(path.resolve().name, "run", loaded, {}, (*notes, *loaded.notes))
    names = [layer.name for layer in loaded] if loaded else None
    weights = read_named_weights(files[0], names) if names else read_depthwise_weights(files[0])
    return _measured(path.resolve().name, "run", weights.tensors, (*notes, *weights.notes))


def _measured(label: str, kind: Kind, weights: Mapping[str, Tensor], notes: tuple[str, ...]) -> Target:
    filters = {name: plain_values(weight, name).flatten(0, 1).numpy() for name, weight in weights.items()}
    return Target(label, kind, FilterStatistics(measure_layers(weights.items()), label), filters, notes)


def _pretrained(name: str) -> nn.Module:
    timm = import_timm()
    try:
        model: nn.Module = timm.create_model(name.removeprefix("timm:"), pretrained=True)
    except Exception as error:  # timm, its hub and the network raise many kinds
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelError(
            f"{name}: cannot be had with pretrained weights ({reason}); name a checkpoint file, or add --untrained to "
            "look at the network as it starts"
        ) from None
    return model
