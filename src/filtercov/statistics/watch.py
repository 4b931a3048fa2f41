"""`watch`: measure a model's depthwise filters while it trains, and keep what was seen in a directory.

Watching reads weights and writes files: it draws no random number, keeps no graph, changes no mode, thread or
gradient. A run that is watched ends in the same bits as one that is not. Where weights are sharded every process takes
part in gathering them, at the same steps; the first one writes.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from filtercov.covariance.forms import Array
from filtercov.covariance.transfer import empirical_covariance
from filtercov.errors import CheckpointError, ConfigError, CovarianceError, FiltercovWarning, ModelError
from filtercov.files import as_path
from filtercov.layers.find import (
    DepthwiseLayer,
    depthwise_layers,
    is_sharded,
    notes_on_lookalikes,
    plain_values,
    unwrap,
)
from filtercov.statistics.filter_statistics import FilterStatistics, compacted, measure_layers, write_statistics
from filtercov.statistics.watched import KIND, START, Watched, followed, moment_file

LEFTOVERS = ".*.tmp"  # of a writer that was killed


def watch(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    every: int | None = 100,
    steps: Collection[int] = (),
    step: int | None = None,
    gradients: bool = False,
) -> Watch:
    """Watch the depthwise filters of a model while it trains: call what this returns once after each step.

    It measures the filters at once, then after `every` steps (None: none) and after those in `steps`, and when it is
    closed, which leaving its `with` block does if nothing was raised. Each moment is a file in the directory `path`,
    and `filtercov.Watched.load(path)` reads them at any time. `gradients` measures the weights' gradients as well: call
    it after `backward` and before they are set to zero. Weights that are computed from others have none, of which a
    warning is given.

    A directory that is there is refused with `CheckpointError`, unless a run continues, which says how many steps it
    has done: `step` keeps the moments up to there and has those after it measured again. Where processes train together
    the first one writes.

    >>> from tempfile import TemporaryDirectory
    >>> net = nn.Sequential(nn.Conv2d(32, 32, 5, groups=32))
    >>> with TemporaryDirectory() as folder, watch(net, f"{folder}/filters.watched", every=2) as watching:
    ...     [watching() for step in range(4)]
    [False, True, False, True]
    """
    return Watch(model, path, every=every, steps=steps, step=step, gradients=gradients)


class Watch:
    """What `watch` returns: call it after each step; `close` it, or leave its `with` block, after the last."""

    def __init__(
        self,
        model: nn.Module,
        path: str | os.PathLike[str],
        *,
        every: int | None,
        steps: Collection[int],
        step: int | None,
        gradients: bool,
    ) -> None:
        self.path = as_path(path, "watch")
        self.step = 0 if step is None else _whole("step", step, 0)
        self._every = None if every is None else _whole("every", every, 1)
        if not isinstance(steps, Iterable):
            raise ConfigError(
                f"watch: needed several steps, got steps={steps!r}; pass every={steps!r} or steps=({steps!r},)"
            )
        self._chosen = sorted({_whole("steps", chosen, 0) for chosen in steps})
        self._gradients = gradients
        self._model, self._source = model, type(unwrap(model)).__name__
        self._warned: set[str] = set()
        layers = depthwise_layers(model)
        self._known = _described(layers)
        self._writes = _first_process()
        self._gathers = any(is_sharded(layer.weight) for layer in layers)
        self._seen = -1  # the step of the last moment that was written
        self._looked = -1  # the last step that was due and measured, in every process alike
        self._start: dict[str, Array] = {}
        computed = [layer.name for layer in layers if _trains_computed(layer)] if gradients and self._writes else []
        if computed:
            few = f"{', '.join(computed[:3])}{'…' if computed[3:] else ''}"
            warning = f"watch: {few} will have no gradients, their weights are computed from other parameters"
            warnings.warn(warning, FiltercovWarning, stacklevel=3)
        if self._writes or self._gathers:
            self._open(layers, new=step is None)

    def __call__(self, step: int | None = None) -> bool:
        """Say that one more step is done, or that `step` steps are; return whether this one was measured.

        A trainer that counts its steps may say the same number again, and may leave some out.
        """
        before = self.step
        after = before + 1 if step is None else _whole("step", step, 0)
        if after < before:
            raise ConfigError(
                f"watch: needed steps that grow, got {after} after {before}; continue a run with watch(…, step={after})"
            )
        self.step = after
        return self._due(before, after) and self._record()

    def close(self) -> None:
        """Measure the last step, if that was not due anyway; its gradients only if they are still there."""
        if self.step > self._looked:
            self._warned.add("gradient")
            self._record()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def _due(self, before: int, after: int) -> bool:
        regular = self._every is not None and after // self._every > before // self._every
        return regular or any(before < chosen <= after for chosen in self._chosen)

    def _open(self, layers: list[DepthwiseLayer], *, new: bool) -> None:
        """Begin a directory, or continue the one that is there, and measure this step if it should be in it."""
        weights = _weights(layers)
        self._start = {name: weight.numpy().copy() for name, weight in weights.items()}  # it may be the model's memory
        if self._writes:
            if not os.path.exists(self.path / START):  # noqa: PTH110 - Path.exists raises for impossible names
                self._begin(weights)
            elif new:
                last = max(Watched.load(self.path).steps, default=0)
                raise CheckpointError(
                    f"{self.path}: needed a new directory, got one with moments up to step {last}; continue it with "
                    "watch(…, step=N), N the steps that are done, or choose another name"
                )
            else:
                self._continue()
        due = self._due(self.step - 1, self.step)
        if self._seen < 0 or due:
            # Only one process knows the directory, so no other would gather gradients with it.
            self._append([] if self._gathers else layers, weights)
        self._looked = self.step if due else -1

    def _begin(self, weights: dict[str, Tensor]) -> None:
        measured = FilterStatistics(measure_layers(weights.items()), self._source, notes_on_lookalikes(self._model))
        filters = {f"layer.{i}.filters": _exact(start) for i, start in enumerate(self._start.values())}
        try:
            self.path.mkdir(exist_ok=True)
            leftovers = set(self.path.glob(LEFTOVERS))
            foreign = sorted(set(self.path.iterdir()) - leftovers)
            if foreign:
                raise CheckpointError(
                    f"{self.path}: needed a new directory or a watched run, got one with {foreign[0].name}; choose "
                    "another name"
                )
            for leftover in leftovers:
                leftover.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: cannot be made a directory ({error.strerror or error}); choose another place"
            ) from None
        about = {"began": self.step}
        write_statistics(self.path / START, measured, kind=KIND, compact=True, tensors=filters, about=about)

    def _continue(self) -> None:
        """Keep the moments up to this step, if they are of the same run as far as can be told."""
        watched = Watched.load(self.path)
        kept = {name: filters[:, None] for name, filters in watched.start.items()}
        theirs, ours = ({name: each.shape for name, each in start.items()} for start in (kept, self._start))
        if theirs != ours:
            raise CheckpointError(
                f"{self.path}: needed the moments of a model with the same depthwise layers, got those of another, "
                f"{watched.source}; choose another name"
            )
        same = all(np.array_equal(filters, self._start[name]) for name, filters in kept.items())
        if self.step < watched.began or (self.step == watched.began and not same):
            raise CheckpointError(
                f"{self.path}: needed the moments of this run, got those of one that began at step {watched.began} "
                "with other filters; choose another name, or remove it"
            )
        self._start = kept
        self._seen = max((step for step in watched.steps if step <= self.step), default=-1)
        later = [moment.path for moment in watched if moment.step > self.step]
        try:
            # The last first, so that whoever reads, or kills this, finds a beginning of the run.
            for file in [*reversed(later), *self.path.glob(LEFTOVERS)]:
                file.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: moments after step {self.step} cannot be removed ({error.strerror}); make it writable"
            ) from None

    def _record(self) -> bool:
        """Measure every layer and write what was found; return whether that was done."""
        if not (self._writes or self._gathers):
            return False
        layers = depthwise_layers(self._model)  # others may have swapped modules since the last moment
        if _described(layers) != self._known:
            raise ModelError(
                f"{self.path}: needed the {len(self._known)} depthwise layers that watching began with, got others, "
                f"{len(layers)} in all; watch the new model in a directory of its own"
            )
        return self._append(layers, _weights(layers))

    def _append(self, layers: list[DepthwiseLayer], weights: dict[str, Tensor]) -> bool:
        """Write what is found of these weights, and of the gradients of these layers where that was asked for."""
        self._looked = self.step
        gradients = {layer.name: self._gradient(layer) for layer in layers} if self._gradients else {}
        if not self._writes or self._seen >= self.step:
            return False
        try:
            measured = FilterStatistics(measure_layers(weights.items()), f"{self._source} at step {self.step}")
        except CovarianceError as error:
            self._warn_once("bad", f"left out step {self.step}: {error}; later steps like this are left out in silence")
            return False
        tensors, drift = {}, []
        for i, (name, weight) in enumerate(weights.items()):
            filters, gradient = weight.numpy(), gradients.get(name)
            drift.append(_drift(filters, self._start[name]))
            tensors[f"layer.{i}.filters"] = compacted(filters[followed(len(filters)), 0])
            if gradient is not None and np.isfinite(gradient).all():
                mean, covariance = empirical_covariance(gradient)
                tensors[f"layer.{i}.gradient_mean"] = compacted(mean)
                tensors[f"layer.{i}.gradient_covariance"] = compacted(covariance)
        file = moment_file(self.path, self.step)
        if file.exists():
            raise CheckpointError(
                f"{file}: is there already, someone else writes; give each run a directory of its own"
            )
        write_statistics(file, measured, compact=True, tensors=tensors, about={"drift": drift})
        self._seen = self.step
        return True

    def _gradient(self, layer: DepthwiseLayer) -> Array | None:
        """Return the gradient (count, *kernel_size) of a layer's weight, if it has one."""
        weight = layer.module._parameters.get("weight")
        if weight is None or weight.grad is None:
            if weight is not None and weight.requires_grad and self.step > 0:
                self._warn_once(
                    "gradient",
                    f"{layer.name} has no gradient at step {self.step}; call the watch after backward and before "
                    "gradients are set to zero",
                )
            return None
        gradient: Array = plain_values(weight.grad, layer.name).flatten(0, 1).numpy()
        return gradient

    def _warn_once(self, what: str, text: str) -> None:
        if what not in self._warned:
            warnings.warn(f"watch: {text}", FiltercovWarning, stacklevel=5)
            self._warned.add(what)


def _first_process() -> bool:
    """Whether this process is alone, or the first of those that train together."""
    group = torch.distributed
    return not (group.is_available() and group.is_initialized()) or group.get_rank() == 0


def _described(layers: list[DepthwiseLayer]) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(layer.name, layer.channels, layer.kernel_size) for layer in layers]


def _trains_computed(layer: DepthwiseLayer) -> bool:
    """Whether a layer's weight is computed, and something that it is computed from trains."""
    parameters = layer.module.named_parameters()
    return "weight" not in layer.module._parameters and any(p.requires_grad for name, p in parameters if name != "bias")


def _weights(layers: list[DepthwiseLayer]) -> dict[str, Tensor]:
    """Return the weights (filters, 1, *kernel_size) of layers by their names, as float64 on the CPU."""
    with torch.no_grad():
        return {layer.name: plain_values(layer.weight, layer.name) for layer in layers}


def _exact(filters: Array) -> Array:
    """Return filters in float32, where that is exact."""
    with np.errstate(over="ignore"):
        return filters.astype(np.float32) if (filters.astype(np.float32) == filters).all() else filters


def _drift(filters: Array, start: Array) -> tuple[float, float | None, float | None]:
    """Return distance, relative distance and cosine between a layer's weights, now and at the start; see `Drift`."""
    distance = float(np.linalg.norm((filters - start).ravel()))
    now, then = (float(np.linalg.norm(each.ravel())) for each in (filters, start))
    cosine = float((filters.ravel() / now) @ (start.ravel() / then)) if now and then else None
    return distance, distance / then if then else None, cosine


def _whole(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ConfigError(f"watch: needed {name} to be a whole number of at least {least}, got {value!r}")
    return number
