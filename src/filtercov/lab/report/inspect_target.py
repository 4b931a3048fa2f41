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
from filtercov.depthwise.safetensors_file import check_header
from filtercov.depthwise.state_dict import read_depthwise_weights, read_named_weights
from filtercov.depthwise.weight import plain_values
from filtercov.errors import CovarianceError, ModelError, TargetError
from filtercov.statistics.filter_statistics import FilterStatistics, measure_layers

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
    """Read a checkpoint, a file that `FilterStatistics.save` wrote, or the directory of either or of a run."""
    if (path / "checkpoint.safetensors").exists() or (path / "statistics.safetensors").exists():
        return _read_run(path)
    if is_statistics(path):
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
    if loaded and not checkpoint.exists():
        return Target(label, "run", loaded, {}, (*notes, *loaded.notes))
    if loaded:  # which knows the layers of the run's own model, and their order
        weights = read_named_weights(checkpoint, [layer.name for layer in loaded.layers])
    else:
        weights = read_depthwise_weights(checkpoint)
    return _measured(label, "run", weights.tensors.items(), notes=(*notes, *weights.notes))


def is_statistics(path: Path) -> bool:
    """Tell whether a file is one that `FilterStatistics.save` wrote."""
    if not path.is_file():  # opening a pipe would wait for ever
        return False
    try:
        check_header(path)
        with safetensors.safe_open(path, framework="numpy") as file:
            return "filtercov" in (file.metadata() or {})
    except Exception:  # not a file, or not safetensors: reading it as a checkpoint says what is wrong
        return False


def _measured(label: str, kind: Kind, weights: Iterable[tuple[str, Tensor]], *, notes: tuple[str, ...] = ()) -> Target:
    named = list(weights)
    try:
        layers = measure_layers(named)
    except (CovarianceError, ModelError) as error:
        raise TargetError(f"{label}: cannot be measured, {error}") from None
    filters = {name: plain_values(weight, name).flatten(0, 1).numpy() for name, weight in named}
    return Target(label, kind, FilterStatistics(layers, label), filters, notes)
