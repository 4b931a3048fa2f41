"""What can be looked at: a checkpoint, a statistics file, a run, or a model in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors
from torch import Tensor, nn

from filtercov.covariance.forms import Array
from filtercov.depthwise.model import depthwise_layers
from filtercov.depthwise.state_dict import read_depthwise_weights, read_named_weights
from filtercov.depthwise.weight import plain_values
from filtercov.errors import CovarianceError, ModelError, TargetError
from filtercov.statistics import FilterStatistics, LayerStatistics

Kind = Literal["checkpoint", "statistics file", "run", "model"]


@dataclass(frozen=True, eq=False)
class Target:
    """The filter statistics of something, and its filters (count, *kernel_size) by layer where it has them."""

    label: str
    kind: Kind
    statistics: FilterStatistics
    filters: Mapping[str, Array]
    notes: tuple[str, ...] = ()


def read_target(path: Path) -> Target:
    """Read a checkpoint (.safetensors, .pth), a file that `FilterStatistics.save` wrote, or the directory of a run."""
    if path.is_dir():
        return _read_run(path)
    if _is_statistics(path):
        statistics = FilterStatistics.load(path)
        return Target(path.name, "statistics file", statistics, {}, statistics.notes)
    weights = read_depthwise_weights(path)
    return _measured(path.name, "checkpoint", weights.tensors.items(), notes=weights.notes)


def model_target(model: nn.Module, label: str, *, example_input: Any = None, notes: tuple[str, ...] = ()) -> Target:
    """Look at a model in memory; `example_input` traces the order in which its layers run.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 7, groups=8))
    >>> model_target(net, "mine").filters["0"].shape
    (8, 7, 7)
    """
    layers = depthwise_layers(model, example_input)
    return _measured(label, "model", ((layer.name, layer.weight) for layer in layers), notes=notes)


def _read_run(path: Path) -> Target:
    checkpoint, statistics = path / "checkpoint.safetensors", path / "statistics.safetensors"
    notes = () if (path / "result.json").exists() else ("the run is not finished: this is its last checkpoint",)
    label = path.resolve().name
    loaded = FilterStatistics.load(statistics) if statistics.exists() else None
    if checkpoint.exists():
        if loaded:  # which knows the layers of the run's own model, and their order
            weights = read_named_weights(checkpoint, [layer.name for layer in loaded.layers])
        else:
            weights = read_depthwise_weights(checkpoint)
        return _measured(label, "run", weights.tensors.items(), notes=(*notes, *weights.notes))
    if loaded:
        return Target(label, "run", loaded, {}, (*notes, *loaded.notes))
    raise TargetError(
        f"{path}: needed the directory of a run, with checkpoint.safetensors or statistics.safetensors in it, found "
        "neither; name a file, a finished run or a model"
    )


def _is_statistics(path: Path) -> bool:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return "filtercov" in (file.metadata() or {})
    except Exception:  # not a file, or not safetensors: reading it as a checkpoint says what is wrong
        return False


def _measured(label: str, kind: Kind, weights: Iterable[tuple[str, Tensor]], *, notes: tuple[str, ...] = ()) -> Target:
    layers, filters = [], {}
    for name, weight in weights:
        try:
            layers.append(LayerStatistics.measure(name, weight))
        except (CovarianceError, ModelError) as error:
            raise TargetError(f"{label}: cannot be measured, {error}") from None
        filters[name] = plain_values(weight, name).flatten(0, 1).numpy()
    return Target(label, kind, FilterStatistics(tuple(layers), label), filters, notes)
