"""Watched: what `filtercov.watch` saw of a run, moment by moment; it can be read while the run goes on.

A watched run is a directory of statistics files, each written whole or not at all:

    filters.watched/
      start.safetensors      the filters that watching began with
      00000000.safetensors   a moment: the statistics after so many steps, a few filters of each layer, drift
      00000100.safetensors   `FilterStatistics.load` reads any of the moments

Beside the mean and covariance of layer i, a moment has `layer.i.filters`, the filters that are followed from moment to
moment, all in float32. The start has all filters as `layer.i.filters`, exactly.
"""

from __future__ import annotations

import bisect
import operator
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from filtercov.covariance.forms import Array
from filtercov.files import MEASURED, Kind, read_description
from filtercov.printable import counted, shortened
from filtercov.statistics.filter_statistics import FilterStatistics, open_statistics

FOLLOWED = 12  # filters of a layer
START = "start.safetensors"
KIND = Kind(
    format="filtercov-watched",
    schema=1,
    called="watched run",
    advice="make one with filtercov.watch(model, path), or `filtercov train --watch`",
    largest=MEASURED,
)


def is_watched_run(path: Path) -> bool:
    """Whether a path is a directory that `filtercov.watch` made."""
    return read_description(path / START).get("format") == KIND.format


def moment_file(folder: Path, step: int) -> Path:
    """The file of the moment after `step` steps."""
    return folder / f"{step:08}.safetensors"


def followed(count: int) -> list[int]:
    """Which of so many filters are followed: a few, evenly spaced, the same in every run.

    >>> followed(3), followed(64)
    ([0, 1, 2], [0, 6, 11, 17, 23, 29, 34, 40, 46, 52, 57, 63])
    """
    return [int(place) for place in np.linspace(0, count - 1, min(count, FOLLOWED)).round()]


@dataclass(frozen=True)
class Drift:
    """How far a layer's filters W are from where they were, W₀, when watching began.

    `distance` is ‖W - W₀‖ over all weights of the layer, `relative` that over ‖W₀‖, and `cosine` the cosine between W
    and W₀; None where the filters are zero.
    """

    distance: float
    relative: float | None
    cosine: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Moment:
    """The filters of every depthwise layer after `step` steps; its file is read when a number is asked for."""

    step: int
    path: Path

    def __repr__(self) -> str:
        return f"<Moment at step {self.step}>"

    @property
    def statistics(self) -> FilterStatistics:
        """Mean and covariance of every layer, in float32; σ, likeness and structure are in its `to_records()`."""
        return self._contents[0]

    @property
    def filters(self) -> Mapping[str, Array]:
        """The filters (few, *kernel_size) of each layer that are followed, in float32."""
        return self._contents[1]

    @property
    def drift(self) -> Mapping[str, Drift]:
        """How far the filters of each layer are from where they were when watching began."""
        return self._contents[2]

    def to_records(self) -> list[dict[str, Any]]:
        """The records of `statistics` with the step and the drift."""
        records = []
        for record in self.statistics.to_records():
            drift = self.drift[record["name"]]
            moved = {"distance": drift.distance, "relative_distance": drift.relative, "cosine_to_start": drift.cosine}
            records.append({"step": self.step, **record, **moved})
        return records

    @cached_property
    def _contents(self) -> tuple[FilterStatistics, dict[str, Array], dict[str, Drift]]:
        filters, moved = {}, {}
        with open_statistics(self.path) as (statistics, tensors, about):
            for i, (layer, drift) in enumerate(zip(statistics, about["drift"], strict=True)):
                filters[layer.name] = tensors[f"layer.{i}.filters"].reshape(-1, *layer.kernel_size)
                moved[layer.name] = Drift(*drift)
        return statistics, filters, moved


@dataclass(frozen=True, eq=False, repr=False)
class Watched:
    """The moments of a watched run, in order.

    `start` are the filters (count, *kernel_size) of each layer when watching began, after `began` steps; `source` names
    the model.

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
        return len(self.moments)

    def __iter__(self) -> Iterator[Moment]:
        return iter(self.moments)

    def __getitem__(self, position: int) -> Moment:
        return self.moments[position]

    def __repr__(self) -> str:
        layers, moments = counted(len(self.start), "layer"), counted(len(self), "moment")
        span = f" from step {self.steps[0]} to {self.steps[-1]}" if self.moments else ""
        return f"<Watched run of {shortened(self.source)}: {layers}, {moments}{span}>"

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps of the moments."""
        return tuple(moment.step for moment in self.moments)

    def at(self, step: int) -> Moment:
        """The last moment at or before a step."""
        after = bisect.bisect_right(self.steps, step)
        if after == 0:
            raise KeyError(f"nothing was watched at or before step {step}; there are {self.steps[:8]}")
        return self.moments[after - 1]

    def to_records(self) -> list[dict[str, Any]]:
        """A dictionary of plain numbers for each layer at each moment, ready for pandas or polars."""
        return [record for moment in self.moments for record in moment.to_records()]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Watched:
        """Read what was watched so far; anything else, or a file changed since, is a `CheckpointError`.

        The files of the moments are read, and checked, when their numbers are asked for.
        """
        folder = Path(path)
        with open_statistics(folder / START, KIND) as (statistics, tensors, about):
            began = operator.index(about["began"])
            start = {
                layer.name: tensors[f"layer.{i}.filters"].reshape(layer.count, *layer.kernel_size)
                for i, layer in enumerate(statistics)
            }
            steps = sorted(int(file.stem) for file in folder.glob("*.safetensors") if file.stem.isdecimal())
        moments = tuple(Moment(step, moment_file(folder, step)) for step in steps)
        return cls(moments, start, began, statistics.source, statistics.notes)
