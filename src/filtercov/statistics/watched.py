"""Watched: what `filtercov.watch` saw of a run, moment by moment; it can be read while the run goes on."""

from __future__ import annotations

import bisect
import math
import operator
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from filtercov.covariance.forms import Array, check_pixels, kernel_shape
from filtercov.covariance.transfer import LayerStatistics
from filtercov.errors import CheckpointError, CovarianceError
from filtercov.files import LAYER, NAME, as_path
from filtercov.printable import shortened
from filtercov.statistics.filter_statistics import FilterStatistics, checked_layer
from filtercov.statistics.watched_file import ADVICE, Body, Numbers, followed, read


@dataclass(frozen=True)
class Drift:
    """How far a layer's filters W are from where they were, W₀, when watching began.

    `distance` is ‖W - W₀‖ over all weights of the layer, `relative` that over ‖W₀‖, and `cosine` the cosine between W
    and W₀; None where the filters are zero.
    """

    distance: float
    relative: float | None
    cosine: float | None


@dataclass(frozen=True, eq=False)
class _Layer:
    name: str
    kernel_size: tuple[int, ...]
    count: int

    @property
    def pixels(self) -> int:
        return math.prod(self.kernel_size)


@dataclass(frozen=True, eq=False, repr=False)
class Moment:
    """The filters of every depthwise layer after `step` steps; its numbers are computed when they are asked for."""

    step: int
    _path: Path
    _source: str
    _layers: tuple[_Layer, ...]
    _start: Mapping[str, Array]
    _body: Body

    def __repr__(self) -> str:
        return f"<Moment at step {self.step}>"

    @property
    def statistics(self) -> FilterStatistics:
        """Mean and covariance of every layer, in float32; σ, likeness and structure are in its `to_records()`."""
        return self._decoded[0]

    @property
    def filters(self) -> Mapping[str, Array]:
        """The filters (few, *kernel_size) of each layer that are followed: those at `Watched.followed`, in float32."""
        return self._decoded[1]

    @property
    def gradients(self) -> Mapping[str, LayerStatistics]:
        """Mean and covariance of the gradients of those layers that had one, if they were watched."""
        return self._decoded[2]

    @cached_property
    def drift(self) -> Mapping[str, Drift]:
        """How far the filters of each layer are from where they were when watching began."""
        try:
            return {layer.name: self._drift(layer, entry) for layer, entry in self._entries()}
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(self._path, error) from None

    def to_records(self) -> list[dict[str, Any]]:
        """Return the records of `statistics` with the step, the drift and the norm of the gradient."""
        records = []
        for record in self.statistics.to_records():
            drift, gradient = self.drift[record["name"]], self.gradients.get(record["name"])
            moved = {"distance": drift.distance, "relative_distance": drift.relative, "cosine_to_start": drift.cosine}
            norm = None if gradient is None else _norm(gradient)
            records.append({"step": self.step, **record, **moved, "gradient_norm": norm})
        return records

    def _entries(self) -> Iterator[tuple[_Layer, Mapping[str, Any]]]:
        return zip(self._layers, self._body.about["layers"], strict=True)

    @cached_property
    def _decoded(self) -> tuple[FilterStatistics, Mapping[str, Array], Mapping[str, LayerStatistics]]:
        numbers, layers, filters, gradients = Numbers(self._path, self._body.data), [], {}, {}
        try:
            for layer, entry in self._entries():
                layers.append(self._layer(layer, numbers, entry["exponent"], {"of_filters": entry["of_filters"]}))
                few = len(followed(layer.count))
                filters[layer.name] = numbers.filters(few, layer.kernel_size, entry["exponent"])
                if entry.get("gradient_exponent") is not None:
                    gradients[layer.name] = self._layer(layer, numbers, entry["gradient_exponent"], {})
        except CheckpointError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(self._path, error) from None
        numbers.end()
        return FilterStatistics(tuple(layers), f"{self._source} at step {self.step}"), filters, gradients

    def _layer(self, layer: _Layer, numbers: Numbers, exponent: object, more: Mapping[str, Any]) -> LayerStatistics:
        mean, covariance = numbers.moments(layer.pixels, _between(exponent, -1100, 1100))
        described = {"name": layer.name, "kernel_size": layer.kernel_size, "count": layer.count, **more}
        return checked_layer(self._path, described, mean, covariance)

    def _drift(self, layer: _Layer, entry: Mapping[str, Any]) -> Drift:
        distance = float(entry["distance"])
        size = math.sqrt(float((self._start[layer.name] ** 2).sum()))
        cosine = entry["cosine"]
        return Drift(distance, distance / size if size else None, None if cosine is None else float(cosine))


@dataclass(frozen=True, eq=False, repr=False)
class Watched:
    """The moments of a watched run, in order.

    `start` are the filters (count, *kernel_size) of each layer when watching began, after `began` steps; `source` names
    the model, and `notes` say what is odd about the file.

    >>> from tempfile import TemporaryDirectory
    >>> import filtercov, torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 7, groups=64))
    >>> with TemporaryDirectory() as folder:
    ...     with filtercov.watch(net, f"{folder}/filters.watched", every=2) as watch:
    ...         for _ in range(5):
    ...             _ = torch.nn.init.normal_(net[0].weight), watch()  # in place of a training step
    ...     watched = Watched.load(f"{folder}/filters.watched")
    >>> watched
    <Watched run of Sequential: 1 layer, 4 moments from step 0 to 5>
    >>> watched.steps, watched.at(3).step
    ((0, 2, 4, 5), 2)
    """

    moments: tuple[Moment, ...]
    start: Mapping[str, Array]
    began: int
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of moments."""
        return len(self.moments)

    def __iter__(self) -> Iterator[Moment]:
        """Iterate over the moments."""
        return iter(self.moments)

    def __getitem__(self, position: int) -> Moment:
        """Return the moment at a position; `at` finds one by its step."""
        return self.moments[position]

    def __repr__(self) -> str:
        layers = f"{len(self.start)} layer{'' if len(self.start) == 1 else 's'}"
        moments = f"{len(self)} moment{'' if len(self) == 1 else 's'}"
        span = f" from step {self.steps[0]} to {self.steps[-1]}" if self.moments else ""
        return f"<Watched run of {shortened(self.source)}: {layers}, {moments}{span}>"

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps of the moments."""
        return tuple(moment.step for moment in self.moments)

    @property
    def followed(self) -> Mapping[str, tuple[int, ...]]:
        """Which filters of each layer are kept at every moment, in `Moment.filters`."""
        return {name: tuple(followed(len(filters))) for name, filters in self.start.items()}

    def at(self, step: int) -> Moment:
        """Return the last moment at or before a step."""
        after = bisect.bisect_right(self.steps, step)
        if after == 0:
            raise KeyError(f"nothing was watched at or before step {step}; there are {self.steps[:8]}")
        return self.moments[after - 1]

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary of plain numbers for each layer at each moment, ready for pandas or polars."""
        return [record for moment in self.moments for record in moment.to_records()]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Watched:
        """Read what was watched so far; anything else, or anything changed since, is a `CheckpointError`.

        A last moment that is being written, or was when its writer was killed, is left out, with a note.
        """
        path = as_path(path, "load")
        (head, *bodies), torn = read(path)
        try:
            source, began = str(head.about["source"]), _between(head.about["began"], 0, 2**63)
            layers, start = _read_start(path, head)
            notes = [str(note) for note in head.about["notes"]]
            steps = [_between(body.about["step"], began, 2**63) for body in bodies]
        except CheckpointError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(path, error) from None
        if any(late <= early for early, late in pairwise(steps)):
            raise CheckpointError(f"{path}: needed moments of growing steps, it is damaged; {ADVICE}")
        if torn:
            notes.append(f"left out {torn} bytes at the end: a moment being written, or cut short when that was killed")
        moments = tuple(Moment(s, path, source, layers, start, body) for s, body in zip(steps, bodies, strict=True))
        return cls(moments, start, began, source, tuple(notes))


def _norm(layer: LayerStatistics) -> float:
    """Return the norm of all numbers that mean and covariance, with count - 1 in its denominator, are of."""
    spread, middle = float(layer.covariance.trace()), float(layer.mean @ layer.mean)
    return math.sqrt((layer.count - 1) * spread + layer.count * middle)


def _read_start(path: Path, head: Body) -> tuple[tuple[_Layer, ...], dict[str, Array]]:
    layers, start, numbers = [], {}, Numbers(path, head.data)
    for entry in head.about["layers"]:
        size = kernel_shape(tuple(entry["kernel_size"]))
        layer = _Layer(str(entry["name"]), size, _between(entry["count"], 1, LAYER))
        try:
            check_pixels(size)
        except CovarianceError as error:
            raise CheckpointError(f"{path}: {error}") from None
        if len(layer.name) > NAME or layer.name in start or entry["kept_in"] not in ("<f4", "<f8"):
            raise ValueError(f"needed layers of different, short names, in float32 or float64, got {entry}")
        start[layer.name] = numbers.take(layer.count * layer.pixels, entry["kept_in"]).reshape(layer.count, *size)
        layers.append(layer)
    numbers.end()
    if not layers:
        raise ValueError("needed at least one layer")
    return tuple(layers), start


def _between(value: object, least: int, most: int) -> int:
    number = operator.index(value)  # type: ignore[arg-type]
    if not least <= number <= most:
        raise ValueError(f"needed a whole number from {least} to {most}, got {number}")
    return number


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path}: a record of it cannot be read ({shortened(str(error), 160)}); {ADVICE}")
