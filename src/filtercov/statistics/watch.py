"""`watch`: measure a model's depthwise filters while it trains, and keep what was seen in a directory.

Watching reads weights and writes files: it draws no random number, keeps no graph, changes no mode, thread or
gradient. A run that is watched ends in the same bits as one that is not.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from filtercov.covariance.forms import Array, whole_number
from filtercov.errors import CheckpointError, ConfigError, CovarianceError, FiltercovWarning, ModelError
from filtercov.layers.find import depthwise_layers, plain_values, unwrap
from filtercov.statistics.filter_statistics import FilterStatistics, compacted, measure_layers, write_statistics
from filtercov.statistics.watched import KIND, START, Watched, followed, moment_file

LEFTOVERS = ".*.tmp"  # of a writer that was killed


class Watch:
    """Watch the depthwise filters of a model while it trains: call this once after each step.

    It measures the filters at once, then after `every` steps (None: none) and after those in `steps`, and when it is
    closed, which leaving its `with` block does if nothing was raised. Each moment is a file in the directory `path`,
    and `filtercov.Watched.load(path)` reads them at any time.

    A directory that is there is refused with `CheckpointError`, unless a run continues, which says how many steps it
    has done: `step` keeps the moments up to there and has those after it measured again. Where processes train together
    the first one writes.

    >>> from tempfile import TemporaryDirectory
    >>> net = nn.Sequential(nn.Conv2d(32, 32, 5, groups=32))
    >>> with TemporaryDirectory() as folder, watch(net, f"{folder}/filters.watched", every=2) as watching:
    ...     [watching() for step in range(4)]
    [False, True, False, True]
    """

    def __init__(
        self,
        model: nn.Module,
        path: str | os.PathLike[str],
        *,
        every: int | None = 100,
        steps: Collection[int] = (),
        step: int | None = None,
    ) -> None:
        self.path = Path(path)
        self.step = 0 if step is None else _steps("step", step)
        self._every = None if every is None else _steps("every", every, least=1)
        self._chosen = {_steps("steps", chosen) for chosen in steps}
        self._model, self._source = model, type(unwrap(model)).__name__
        self._warned = False
        self._written = -1  # the step of the last moment in the directory
        group = torch.distributed
        self._writes = not (group.is_available() and group.is_initialized()) or group.get_rank() == 0
        if self._writes:
            weights = _weights(model)
            # Copies, because the weights may be the model's own memory.
            self._start = {name: weight.numpy().copy() for name, weight in weights.items()}
            self._open(weights, new=step is None)

    def __call__(self, step: int | None = None) -> bool:
        """Say that one more step is done, or that `step` steps are; return whether this one was measured.

        A trainer that counts its steps may say the same number again, and may leave some out.
        """
        before = self.step
        after = before + 1 if step is None else _steps("step", step)
        if after < before:
            raise ConfigError(
                f"watch: needed steps that grow, got {after} after {before}; continue a run with watch(…, step={after})"
            )
        self.step = after
        return self._writes and self._due(before, after) and self._measure()

    def close(self) -> None:
        """Measure the last step, if that was not due anyway."""
        if self._writes and self._written < self.step:
            self._measure()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def _due(self, before: int, after: int) -> bool:
        regular = self._every is not None and after // self._every > before // self._every
        return regular or any(before < chosen <= after for chosen in self._chosen)

    # --- The directory ---

    def _open(self, weights: dict[str, Tensor], *, new: bool) -> None:
        """Begin a directory, or continue the one that is there, and measure this step if it should be in it."""
        try:
            if not os.path.exists(self.path / START):  # noqa: PTH110 - Path.exists raises for impossible names
                self._begin(weights)
            elif new:
                raise CheckpointError(
                    f"{self.path}: needed a new directory, got that of another run; continue it with watch(…, step=N), "
                    "N the steps that are done, or choose another name"
                )
            else:
                self._continue()
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: needed a directory that can be written to ({error.strerror or error}); choose another "
                "place, or make it writable"
            ) from None
        if self._written < 0 or (self._written < self.step and self._due(self.step - 1, self.step)):
            self._measure()

    def _begin(self, weights: dict[str, Tensor]) -> None:
        measured = FilterStatistics(measure_layers(weights.items()), self._source)
        self.path.mkdir(exist_ok=True)
        foreign = sorted(file.name for file in self.path.iterdir() if not file.match(LEFTOVERS))
        if foreign:
            raise CheckpointError(
                f"{self.path}: needed a new directory or a watched run, got one with {foreign[0]}; choose another name"
            )
        self._remove([])
        filters = {f"layer.{i}.filters": start for i, start in enumerate(self._start.values())}
        about = {"began": self.step}
        write_statistics(self.path / START, measured, kind=KIND, compact=True, tensors=filters, about=about)

    def _continue(self) -> None:
        """Keep the moments up to this step, if they are of the same run as far as can be told."""
        watched = Watched.load(self.path)
        kept = {name: filters[:, None] for name, filters in watched.start.items()}
        alike = _shapes(kept) == _shapes(self._start) and self.step >= watched.began
        if alike and self.step == watched.began:
            alike = all(np.array_equal(kept[name], self._start[name]) for name in kept)
        if not alike:
            raise CheckpointError(
                f"{self.path}: needed the moments of this run, got those of a {watched.source} that began at step "
                f"{watched.began} with other filters; choose another name, or remove it"
            )
        self._start = kept
        self._written = max((step for step in watched.steps if step <= self.step), default=-1)
        self._remove([moment.path for moment in watched if moment.step > self.step])

    def _remove(self, later: list[Path]) -> None:
        # The last first, so that whoever reads, or kills this, finds a beginning of the run.
        for file in [*reversed(later), *self.path.glob(LEFTOVERS)]:
            file.unlink(missing_ok=True)

    # --- Moments ---

    def _measure(self) -> bool:
        """Write the moment of this step; False where weights are not finite, with a warning the first time."""
        weights = _weights(self._model)  # others may have swapped modules since the last moment
        if _shapes(weights) != _shapes(self._start):
            raise ModelError(
                f"{self.path}: needed the {len(self._start)} depthwise layers that watching began with, got others, "
                f"{len(weights)} in all; watch the new model in a directory of its own"
            )
        try:
            measured = FilterStatistics(measure_layers(weights.items()), f"{self._source} at step {self.step}")
        except CovarianceError as error:
            if not self._warned:
                text = f"watch: left out step {self.step}: {error}; later steps like this are left out in silence"
                warnings.warn(text, FiltercovWarning, stacklevel=3)
                self._warned = True
            return False
        tensors, drift = {}, []
        for i, (name, weight) in enumerate(weights.items()):
            filters = weight.numpy()
            drift.append(_drift(filters, self._start[name]))
            tensors[f"layer.{i}.filters"] = compacted(filters[followed(len(filters)), 0])
        file = moment_file(self.path, self.step)
        write_statistics(file, measured, compact=True, tensors=tensors, about={"drift": drift})
        self._written = self.step
        return True


watch = Watch  # the public name, a verb like init_ and freeze_


def _steps(name: str, value: Any, *, least: int = 0) -> int:
    return whole_number(value, f"watch: {name}", least=least, error=ConfigError)


def _shapes(weights: Mapping[str, Tensor | Array]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Weights (filters, 1, *kernel_size) by the names of their layers, as float64 on the CPU."""
    with torch.no_grad():
        return {layer.name: plain_values(layer.weight, layer.name) for layer in depthwise_layers(model)}


def _drift(filters: Array, start: Array) -> tuple[float, float | None, float | None]:
    """Distance, relative distance and cosine between a layer's weights now and at the start; see `Drift`."""
    distance = float(np.linalg.norm((filters - start).ravel()))
    now, then = (float(np.linalg.norm(each.ravel())) for each in (filters, start))
    cosine = float((filters.ravel() / now) @ (start.ravel() / then)) if now and then else None
    return distance, distance / then if then else None, cosine
