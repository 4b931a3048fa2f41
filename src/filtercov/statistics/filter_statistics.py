"""FilterStatistics: the mean and covariance of every depthwise layer of a trained model, ready to initialise another.

Statistics do not depend on how many filters a layer had, so between widths there is nothing to do. Between depths they
are interpolated linearly over relative depth, between kernel sizes they are resized as the paper does.

Their file is a checksummed safetensors file with `layer.0.mean`, `layer.0.covariance` and so on, in float64 or, where
size matters more, float32; its description has everything else. `filtercov.watch` keeps more tensors in such files.
"""

from __future__ import annotations

import math
import operator
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import safetensors.numpy
from torch import Tensor, nn

from filtercov.covariance.forms import Array, KernelSize, check_pixels, kernel_shape, kron, show_size, whole_number
from filtercov.covariance.transfer import (
    LayerStatistics,
    Resizing,
    empirical_covariance,
    interpolate_layers,
    nearest_kronecker,
    resizing_doubts,
)
from filtercov.errors import CheckpointError, CovarianceError, FiltercovWarning, ModelError, SourceError, naming
from filtercov.files import MEASURED, NAME, Kind, open_checksummed, read_description, write_checksummed
from filtercov.layers.checkpoint import read_depthwise_weights
from filtercov.layers.find import depthwise_layers, plain_values
from filtercov.printable import counted, shortened, show_bytes
from filtercov.schedule import check_depth, fit_layer, relative_depth
from filtercov.statistics.shipped import locate, shipped_file, shipped_names
from filtercov.structure import count_near_zero, structure_of_layer

KIND = Kind(
    format="filtercov-statistics",
    schema=1,
    called="statistics file",
    advice="make one from a checkpoint with `filtercov stats CHECKPOINT --out FILE`",
    largest=MEASURED,
)


@dataclass(frozen=True, eq=False, repr=False)
class FilterStatistics:
    """The filter statistics of a model's depthwise layers, in forward order.

    `source` says where they came from, and `notes` what was ambiguous about it.

    >>> import torch
    >>> net = nn.Sequential(nn.Conv2d(64, 64, 7, groups=64), nn.Conv2d(64, 64, 7, groups=64))
    >>> statistics = FilterStatistics.from_model(net)
    >>> statistics
    <FilterStatistics of Sequential: 2 layers of 7x7 filters>
    >>> statistics[0], statistics["1"]
    (<LayerStatistics 0: 64 filters of 7x7>, <LayerStatistics 1: 64 filters of 7x7>)
    >>> len(statistics.resize(depth=6))
    6
    """

    layers: tuple[LayerStatistics, ...]
    source: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        layers = tuple(self.layers)
        if not layers or not all(isinstance(layer, LayerStatistics) for layer in layers):
            came = shortened(repr(self.layers))
            raise SourceError(f"FilterStatistics: needed the LayerStatistics of at least one layer, got {came}")
        object.__setattr__(self, "layers", layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[LayerStatistics]:
        return iter(self.layers)

    @overload
    def __getitem__(self, key: int | str) -> LayerStatistics: ...
    @overload
    def __getitem__(self, key: slice) -> FilterStatistics: ...
    def __getitem__(self, key: int | str | slice) -> LayerStatistics | FilterStatistics:
        if isinstance(key, slice):
            return replace(self, layers=self.layers[key])
        if not isinstance(key, str):
            return self.layers[operator.index(key)]
        for layer in self.layers:
            if layer.name == key:
                return layer
        raise KeyError(f"no layer is called {key!r}; there are {shortened(', '.join(layer.name for layer in self))}")

    def __repr__(self) -> str:
        sizes = " and ".join(dict.fromkeys(show_size(layer.kernel_size) for layer in self.layers))
        origin = f" of {shortened(self.source)}" if self.source else ""
        notes = f", with {counted(len(self.notes), 'note')}" if self.notes else ""
        return f"<FilterStatistics{origin}: {counted(len(self), 'layer')} of {sizes} filters{notes}>"

    @classmethod
    def from_model(cls, model: nn.Module, example_input: Any = None) -> FilterStatistics:
        """Measure every depthwise layer of a model; `example_input` traces the execution order."""
        found = depthwise_layers(model, example_input)
        return cls(measure_layers((layer.name, layer.weight) for layer in found), type(model).__name__)

    @classmethod
    def from_checkpoint(
        cls, path: str | os.PathLike[str] | Mapping[str, Tensor], *, like: nn.Module | None = None
    ) -> FilterStatistics:
        """Measure every depthwise weight in a .safetensors or .pth file, without needing the model's code.

        So is a state dict, the index of a model in several files, or the directory that holds them.

        Names and shapes say which weights are depthwise. Where a file does not keep the order of its layers, that is
        guessed from their names, and `notes` says so. A model given as `like` decides both; its own weights are not
        looked at, so it may be on the meta device.
        """
        file = path if isinstance(path, Mapping) else Path(path)
        weights = read_depthwise_weights(file, like=like)
        source = file.name if isinstance(file, Path) else "state dict"
        try:
            return cls(measure_layers(weights.tensors.items()), source, weights.notes)
        except (CovarianceError, ModelError) as error:
            raise CheckpointError(str(error)) from None

    def at(self, depth: float, kernel_size: KernelSize | None = None) -> LayerStatistics:
        """Statistics at a relative depth in [0, 1], interpolated between the layers on either side.

        `kernel_size` asks for filters of that size; by default they have the size of the nearer layer's.
        """
        position = check_depth(depth) * (len(self.layers) - 1)
        nearest = self.layers[round(position)]
        size = nearest.kernel_size if kernel_size is None else kernel_shape(kernel_size)
        if abs(position - round(position)) < 1e-9:
            return nearest.resize(size)
        weight = position - int(position)
        below, above = (self.layers[int(position) + step].resize(size) for step in (0, 1))
        return interpolate_layers(below, above, weight)

    def resize(self, *, depth: int | None = None, kernel_size: KernelSize | None = None) -> FilterStatistics:
        """These statistics for a model with `depth` depthwise layers, of `kernel_size`, or both.

        `resized` of each layer says what is left of it at the new kernel size; where that is little, a note is added
        and a `FiltercovWarning` given.
        """
        if depth is None:
            layers = tuple(layer if kernel_size is None else layer.resize(kernel_size) for layer in self.layers)
        else:
            count = whole_number(depth, "resize: depth", error=SourceError)
            layers = tuple(self.at(relative_depth(i, count), kernel_size=kernel_size) for i in range(count))
        doubts = resizing_doubts((layer.kernel_size, layer.resized) for layer in layers)
        for doubt in doubts:
            warnings.warn(f"FilterStatistics.resize: {doubt}", FiltercovWarning, stacklevel=2)
        return replace(self, layers=layers, notes=tuple(dict.fromkeys((*self.notes, *doubts))))

    def centred(self) -> FilterStatistics:
        """These statistics with every mean taken as zero."""
        return replace(
            self, layers=tuple(replace(layer, mean=np.zeros_like(layer.mean), near_zero=None) for layer in self.layers)
        )

    def kronecker(self) -> FilterStatistics:
        """These statistics with every covariance replaced by its nearest Kronecker square A⊗A.

        Filters must be square and 2-D; others raise `CovarianceError`.
        """

        def squared(layer: LayerStatistics) -> LayerStatistics:
            A = nearest_kronecker(layer.covariance, layer.kernel_size)
            return replace(layer, covariance=kron([A, A]), near_zero=None)

        return replace(self, layers=tuple(squared(layer) for layer in self.layers))

    def to_records(self) -> list[dict[str, Any]]:
        """A dictionary of plain numbers for each layer, all with the same keys, ready for pandas or polars.

        The nearest σ and its likeness, and every number of `filtercov.structure.Structure`, each beside what chance
        gives. Where there is no number it is None, and `absent` says why: statistics that were resized, interpolated,
        centred or made Kronecker squares know nothing of single filters.

        >>> net = nn.Sequential(*(nn.Conv2d(32, 32, 5, groups=32) for _ in range(2)))
        >>> first, second = FilterStatistics.from_model(net).to_records()
        >>> first["name"], first["kernel_size"], first["filters"], first["depth"], second["depth"]
        ('0', '5x5', 32, 0.0, 1.0)
        >>> first["sparsity"], first["sparsity_beyond_chance"]
        (0.0, False)
        """
        return [_record(layer, relative_depth(i, len(self))) for i, layer in enumerate(self.layers)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to a safetensors file with a checksum; an existing file is replaced whole or not."""
        write_statistics(Path(path), self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FilterStatistics:
        """Read statistics that `save` wrote; anything else, or anything changed since, is a `CheckpointError`."""
        with open_statistics(Path(path)) as (statistics, _, _):
            return statistics

    @classmethod
    def shipped(cls, name: str) -> FilterStatistics:
        """Statistics that ship with filtercov; `REFERENCES` has their names, and what they are of.

        >>> FilterStatistics.shipped("efficientnet-lite0")
        <FilterStatistics of efficientnet-lite0: 16 layers of 3x3 and 5x5 filters>
        """
        return cls.load(shipped_file(name))


def _record(layer: LayerStatistics, depth: float) -> dict[str, Any]:
    fit = fit_layer(layer)
    fitted = {"sigma": fit.sigma, "likeness": fit.likeness, "likeness_chance": fit.chance}
    return {
        "name": layer.name,
        "kernel_size": show_size(layer.kernel_size),
        "filters": layer.count,
        "depth": depth,
        **{key: None if math.isnan(value) else value for key, value in fitted.items()},
        "likeness_beyond_chance": None if math.isnan(fit.likeness) else fit.above_chance,
        **structure_of_layer(layer).as_record(),
    }


def find_statistics(text: str, root: Path | None = None) -> FilterStatistics:
    """Read the statistics that follow `stats:`, the name of shipped ones or a file: of statistics, or a checkpoint."""
    path = locate(text, root)
    if path is None:
        raise CheckpointError(
            f"{(root or Path()) / text}: cannot be read (no such file), nor do statistics of that name ship with "
            f"filtercov; those that do are {shipped_names()}"
        )
    return FilterStatistics.load(path) if is_statistics(path) else FilterStatistics.from_checkpoint(path)


def is_statistics(path: Path) -> bool:
    """True for a file that `FilterStatistics.save` wrote."""
    return path.is_file() and read_description(path).get("format") == KIND.format  # opening a pipe would wait for ever


def measure_layers(weights: Iterable[tuple[str, Tensor]]) -> tuple[LayerStatistics, ...]:
    """Measure named weights (filters, 1, *kernel_size); those too large for the limits on memory are refused."""
    named, total = list(weights), 0
    for name, weight in named:
        total += 8 * (weight.numel() + math.prod(weight.shape[2:]) ** 2)
        if total > MEASURED:
            raise CovarianceError(
                f"{name}: needed layers that take at most {show_bytes(MEASURED)} together with their covariances, got "
                f"{show_bytes(total)} up to this one; measure fewer at a time"
            )
    layers = []
    for name, weight in named:
        filters = plain_values(weight, name).flatten(0, 1).numpy()
        with naming(name):
            mean, covariance = empirical_covariance(filters)
        size, near_zero = filters.shape[1:], count_near_zero(filters)
        layers.append(LayerStatistics(name, size, len(filters), mean, covariance, near_zero=near_zero))
    return tuple(layers)


def write_statistics(
    path: Path,
    statistics: FilterStatistics,
    *,
    kind: Kind = KIND,
    compact: bool = False,
    tensors: Mapping[str, Array] | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write statistics to a file, with further tensors and entries of the description beside them.

    `compact` writes means and covariances in float32.
    """
    arrays = dict(tensors or {})
    for i, layer in enumerate(statistics):
        for name, values in (("mean", layer.mean), ("covariance", layer.covariance)):
            arrays[f"layer.{i}.{name}"] = np.ascontiguousarray(compacted(values) if compact else values)
    layers = [_describe_layer(layer) for layer in statistics]
    described = {"source": statistics.source, "notes": list(statistics.notes), "layers": layers, **(about or {})}
    try:
        write_checksummed(path, kind, partial(safetensors.numpy.save, arrays), described)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error.strerror}); nothing was changed, choose another place or make room"
        ) from None


@contextmanager
def open_statistics(
    path: Path, kind: Kind = KIND
) -> Iterator[tuple[FilterStatistics, dict[str, Array], dict[str, Any]]]:
    """Yield the statistics in a file, all its tensors in float64, and its description.

    Whatever is wrong with the file, also what the caller finds wrong with it inside, is a `CheckpointError`.
    """
    with open_checksummed(path, kind, "numpy") as (file, about):
        tensors = {name: file.get_tensor(name).astype(np.float64) for name in file.keys()}  # noqa: SIM118 - no mapping
        layers = tuple(
            _read_layer(entry, tensors[f"layer.{i}.mean"], tensors[f"layer.{i}.covariance"])
            for i, entry in enumerate(about["layers"])
        )
        notes = tuple(str(note) for note in about["notes"])
        yield FilterStatistics(layers, str(about["source"]), notes), tensors, about


def compacted(values: Array) -> Array:
    """Round to float32, unless the numbers are too large or too small for that, as where training diverges."""
    largest = float(np.abs(values).max(initial=0.0))
    return values.astype(np.float32) if largest == 0 or 1e-30 < largest < 1e38 else values


def _describe_layer(layer: LayerStatistics) -> dict[str, Any]:
    described = {"name": layer.name, "kernel_size": list(layer.kernel_size), "count": layer.count}
    resized = None if layer.resized is None else asdict(layer.resized)
    measured = {"resized": resized, "near_zero": layer.near_zero}
    return described | {key: value for key, value in measured.items() if value is not None}


def _read_layer(entry: Mapping[str, Any], mean: Array, covariance: Array) -> LayerStatistics:
    name, size = str(entry["name"]), kernel_shape(tuple(entry["kernel_size"]))
    check_pixels(size)
    if len(name) > NAME:
        raise ValueError(f"needed names of at most {NAME} characters, got {len(name)}")
    # Earlier versions kept the number among others, and the shipped references still have it there.
    near_zero = entry.get("near_zero", entry.get("of_filters", {}).get("near_zero"))
    resized = entry.get("resized")
    if resized is not None:
        resized = Resizing(kernel_shape(tuple(resized["from_size"])), float(resized["survives"]))
    near_zero = None if near_zero is None else int(near_zero)
    return LayerStatistics(name, size, entry["count"], mean, covariance, resized, near_zero)
