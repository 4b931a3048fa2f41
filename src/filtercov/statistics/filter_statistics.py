"""FilterStatistics: the mean and covariance of every depthwise layer of a trained model, ready to initialise another.

Statistics do not depend on how many filters a layer had, so between widths there is nothing to do. Between depths they
are interpolated linearly over relative depth, between kernel sizes they are resized as the paper does.
"""

from __future__ import annotations

import difflib
import math
import operator
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, overload

import numpy as np
from torch import Tensor, nn

from filtercov.covariance.forms import Array, KernelSize, as_covariance, check_pixels, kernel_shape, kron, show_size
from filtercov.covariance.transfer import (
    LayerStatistics,
    OfFilters,
    Resizing,
    empirical_covariance,
    mix_resizings,
    nearest_kronecker,
)
from filtercov.errors import CheckpointError, CovarianceError, FiltercovWarning, ModelError, SourceError
from filtercov.files import LAYER, MEASURED, NAME, as_path
from filtercov.layers.checkpoint import read_depthwise_weights
from filtercov.layers.find import depthwise_layers, notes_on_lookalikes, plain_values
from filtercov.plan import resizing_notes
from filtercov.printable import cut, shortened, show_bytes
from filtercov.schedule import check_depth, fit_layer, relative_depth
from filtercov.statistics import references, statistics_file
from filtercov.structure import measure_filters, structure_of_layer


def measure_layer(name: str, weight: Tensor) -> LayerStatistics:
    """Return the statistics of a weight (filters, 1, *kernel_size), or say which one cannot be measured and why."""
    _check_size(name, weight)
    values = plain_values(weight, name).numpy()
    filters = values.reshape(-1, *values.shape[2:])
    try:
        mean, covariance = empirical_covariance(filters)
    except CovarianceError as error:
        raise CovarianceError(f"{name}: {error}") from None
    of_filters = measure_filters(filters.astype(np.float64, copy=False))
    return LayerStatistics(name, filters.shape[1:], len(values), mean, covariance, of_filters=of_filters)


def measure_layers(weights: Iterable[tuple[str, Tensor]]) -> tuple[LayerStatistics, ...]:
    """Return the statistics of named weights, if all together they are no more than `limits.MEASURED`."""
    named = list(weights)
    for name, weight in named:
        _check_size(name, weight)
    taken = {name: 8 * (weight.numel() + math.prod(weight.shape[2:]) ** 2) for name, weight in named}
    total = sum(taken.values())
    if len(named) > 1 and total > MEASURED:
        raise CovarianceError(
            f"{max(taken, key=lambda name: taken[name])} and others: needed layers whose filters and covariances take "
            f"at most {show_bytes(MEASURED)} together, got {show_bytes(total)}; measure fewer at a time"
        )
    return tuple(measure_layer(name, weight) for name, weight in named)


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
        if not layers:
            raise SourceError("FilterStatistics: needed the statistics of at least one layer, got none")
        for layer in layers:
            if not isinstance(layer, LayerStatistics):
                raise SourceError(
                    f"FilterStatistics: needed a LayerStatistics for each layer, got {shortened(repr(layer))}"
                )
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "source", str(self.source))
        object.__setattr__(self, "notes", tuple(self.notes))

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self.layers)

    def __iter__(self) -> Iterator[LayerStatistics]:
        """Iterate over the layers in forward order."""
        return iter(self.layers)

    def __contains__(self, key: object) -> bool:
        """Return whether a layer, or one of a name, is among these."""
        return any(layer.name == key if isinstance(key, str) else layer is key for layer in self.layers)

    @overload
    def __getitem__(self, key: int | str) -> LayerStatistics: ...
    @overload
    def __getitem__(self, key: slice) -> FilterStatistics: ...
    def __getitem__(self, key: int | str | slice) -> LayerStatistics | FilterStatistics:
        """Return the layer at a position, or of a name; a slice returns the statistics of some of the layers."""
        if isinstance(key, slice):
            return replace(self, layers=self.layers[key])
        if not isinstance(key, str):
            return self.layers[operator.index(key)]
        for layer in self.layers:
            if layer.name == key:
                return layer
        near = difflib.get_close_matches(key, [layer.name for layer in self.layers], n=1)
        raise KeyError(f"no layer is called {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))

    def __repr__(self) -> str:
        sizes = " and ".join(dict.fromkeys(show_size(layer.kernel_size) for layer in self.layers))
        origin = f" of {shortened(self.source)}" if self.source else ""
        notes = f", with {_counted(len(self.notes), 'note')}" if self.notes else ""
        return f"<FilterStatistics{origin}: {_counted(len(self), 'layer')} of {sizes} filters{notes}>"

    @classmethod
    def from_model(cls, model: nn.Module, example_input: Any = None, *, source: str | None = None) -> FilterStatistics:
        """Measure every depthwise layer of a model; `example_input` traces the execution order."""
        found = depthwise_layers(model, example_input)
        measured = cls._measure(
            ((layer.name, layer.weight) for layer in found), source=source or type(model).__name__, error=ModelError
        )
        return replace(measured, notes=notes_on_lookalikes(model))

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], *, like: nn.Module | None = None) -> FilterStatistics:
        """Measure every depthwise weight in a .safetensors or .pth file, without needing the model's code.

        The index of a model in several files, or the directory that holds them, will do too.

        Which weights are depthwise is then told from names and shapes, and where a file does not keep the order of its
        layers that is guessed from their names; `notes` says so. A model given as `like` decides both: any of the
        architecture that was saved, on the meta device too, for its own weights are not looked at.
        """
        file = as_path(path, "from_checkpoint")
        weights = read_depthwise_weights(file, like=like)
        measured = cls._measure(weights.tensors.items(), source=file.name, error=CheckpointError)
        return replace(measured, notes=weights.notes)

    @classmethod
    def _measure(
        cls, weights: Iterable[tuple[str, Tensor]], *, source: str, error: type[ModelError] | type[CheckpointError]
    ) -> FilterStatistics:
        try:
            return cls(measure_layers(weights), source)
        except (CovarianceError, ModelError) as bad:
            raise error(str(bad)) from None

    def at(self, depth: float, kernel_size: KernelSize | None = None) -> LayerStatistics:
        """Return the statistics at a relative depth in [0, 1], interpolated between the layers on either side.

        `kernel_size` asks for filters of that size; by default they have the size of the nearer layer's.
        """
        position = check_depth(depth) * (len(self.layers) - 1)
        nearest = self.layers[round(position)]
        size = nearest.kernel_size if kernel_size is None else kernel_shape(kernel_size)
        if abs(position - round(position)) < 1e-9:
            return nearest.resize(size)
        weight = position - int(position)
        below, above = (self.layers[int(position) + step].resize(size) for step in (0, 1))
        return LayerStatistics(
            name=cut(f"{1 - weight:.3g} {below.name} + {weight:.3g} {above.name}", NAME),
            kernel_size=size,
            count=min((layer.count for layer in (below, above) if layer.count > 1), default=1),  # one has no spread
            mean=(1 - weight) * below.mean + weight * above.mean,
            covariance=(1 - weight) * below.covariance + weight * above.covariance,
            resized=mix_resizings((below, above), (1 - weight, weight)),
        )

    def resize(self, *, depth: int | None = None, kernel_size: KernelSize | None = None) -> FilterStatistics:
        """Return these statistics for a model with `depth` depthwise layers, of `kernel_size`, or both.

        `resized` of each layer says what is left of it at the new kernel size; where that is little, a note is added
        and a `FiltercovWarning` given.
        """
        if depth is None:
            layers = tuple(layer if kernel_size is None else layer.resize(kernel_size) for layer in self.layers)
        else:
            count = _check_count(depth)
            layers = tuple(self.at(relative_depth(i, count), kernel_size=kernel_size) for i in range(count))
        notes = resizing_notes([(layer.kernel_size, layer.resized) for layer in layers])
        doubts = [note for note, doubtful in notes if doubtful]
        for doubt in doubts:
            warnings.warn(f"FilterStatistics.resize: {doubt}", FiltercovWarning, stacklevel=2)
        return replace(self, layers=layers, notes=tuple(dict.fromkeys((*self.notes, *doubts))))

    def centred(self) -> FilterStatistics:
        """Return these statistics with every mean taken as zero."""
        return replace(
            self, layers=tuple(replace(layer, mean=np.zeros_like(layer.mean), of_filters=None) for layer in self.layers)
        )

    def kronecker(self) -> FilterStatistics:
        """Return these statistics with every covariance replaced by its nearest Kronecker square A⊗A.

        Filters must be square and 2-D; others raise `CovarianceError`.
        """

        def squared(layer: LayerStatistics) -> LayerStatistics:
            A = nearest_kronecker(layer.covariance, layer.kernel_size)
            return replace(layer, covariance=kron([A, A]), of_filters=None)

        return replace(self, layers=tuple(squared(layer) for layer in self.layers))

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary of plain numbers for each layer, all with the same keys, ready for pandas or polars.

        The nearest σ and its likeness, and every number of `filtercov.structure.Structure`, each beside what chance
        gives. Where there is no number it is None, and `absent` says why: statistics that were resized, interpolated,
        centred, made Kronecker squares or saved by an earlier version know nothing of single filters.

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
        target, described = as_path(path, "save"), self.description()
        for layer, entry in zip(self.layers, described["layers"], strict=True):
            checked_layer(target, entry, layer.mean, layer.covariance)  # as `load` will
        statistics_file.write(target, [(layer.mean, layer.covariance) for layer in self.layers], described)

    def description(self) -> dict[str, Any]:
        """Return what a file says of the statistics besides means and covariances, ready for JSON."""
        described = [
            {
                "name": layer.name,
                "kernel_size": list(layer.kernel_size),
                "count": layer.count,
                **({} if layer.resized is None else {"resized": asdict(layer.resized)}),
                **({} if layer.of_filters is None else {"of_filters": asdict(layer.of_filters)}),
            }
            for layer in self.layers
        ]
        return {"source": self.source, "notes": list(self.notes), "layers": described}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FilterStatistics:
        """Read statistics that `save` wrote; anything else, or anything changed since, is a `CheckpointError`."""
        arrays, described = statistics_file.read(as_path(path, "load"))
        layers = tuple(
            checked_layer(path, entry, mean, covariance)
            for entry, (mean, covariance) in zip(described["layers"], arrays, strict=True)
        )
        return cls(layers, described["source"], tuple(described["notes"]))

    @classmethod
    def shipped(cls, name: str) -> FilterStatistics:
        """Return statistics that ship with filtercov; `REFERENCES` has their names, and what they are of.

        >>> FilterStatistics.shipped("efficientnet-lite0")
        <FilterStatistics of efficientnet-lite0: 16 layers of 3x3 and 5x5 filters>
        """
        return cls.load(references.shipped_file(name))


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


def _check_count(depth: object) -> int:
    try:
        count = operator.index(depth)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        raise SourceError(f"resize: needed a whole number as depth of at least one layer, got {depth!r}")
    return count


def _check_size(name: str, weight: Tensor) -> None:
    """Refuse a weight that could not be measured within the limits on memory."""
    size = tuple(weight.shape[2:])
    try:
        check_pixels(size)
    except CovarianceError as error:
        raise CovarianceError(f"{name}: {error}") from None
    if weight.numel() * 8 > LAYER:
        raise CovarianceError(
            f"{name}: needed a layer whose filters take at most {show_bytes(LAYER)} in float64, got {len(weight)} of "
            f"{show_size(size)}, {show_bytes(8 * weight.numel())}"
        )


def checked_layer(
    path: str | os.PathLike[str], entry: Mapping[str, Any], mean: Array, covariance: Array
) -> LayerStatistics:
    """Return the statistics of a layer as a file describes it, if they can be what was measured of filters."""
    try:
        name, count = str(entry["name"]), operator.index(entry["count"])
        kernel_size = kernel_shape(tuple(entry["kernel_size"]))
        check_pixels(kernel_size)
        resized = _read_resizing(entry["resized"]) if "resized" in entry else None
        of_filters = _read_of_filters(entry["of_filters"], count) if "of_filters" in entry else None
    except (KeyError, TypeError, ValueError) as error:
        reason = shortened(str(error), 160)
        raise CheckpointError(f"{path}: the description of a layer cannot be read ({reason})") from None
    if count < 1 or len(name) > NAME:
        raise CheckpointError(
            f"{path}: needed layers of at least one filter and with names of at most {NAME} characters, "
            f"{shortened(name)} has {count} filters and a name of {len(name)}"
        )
    n = math.prod(kernel_size)
    if mean.shape != (n,) or covariance.shape != (n, n):
        raise CheckpointError(
            f"{path}: {name} should hold a ({n},) mean and an ({n}, {n}) covariance, has {mean.shape} and "
            f"{covariance.shape}"
        )
    if not np.isfinite(mean).all():
        raise CheckpointError(f"{path}: {name} holds means that are not finite")
    try:
        as_covariance(covariance)
    except CovarianceError as error:
        raise CheckpointError(f"{path}: {name}: {error}") from None
    return LayerStatistics(name, kernel_size, count, mean, covariance, resized, of_filters)


def _read_resizing(entry: Mapping[str, Any]) -> Resizing:
    shares = float(entry["survives"]), float(entry["padding"])
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"needed shares from 0 to 1 of what a resizing left, got {shares}")
    return Resizing(kernel_shape(tuple(entry["from_size"])), *shares)


def _read_of_filters(entry: Mapping[str, Any], count: int) -> OfFilters:
    near_zero, cosine, types = operator.index(entry["near_zero"]), entry["mean_squared_cosine"], entry["types"]
    shares = None if types is None else {str(kind): float(share) for kind, share in dict(types).items()}
    measured = OfFilters(near_zero, None if cosine is None else float(cosine), shares)
    each = [measured.mean_squared_cosine or 0.0, *(shares or {}).values(), sum((shares or {}).values())]
    if not 0 <= near_zero <= count or not all(0 <= share <= 1 + 1e-9 for share in each):
        raise ValueError(f"needed counts and shares of what was measured of {count} filters, got {measured}")
    return measured


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
