"""`watch`: measure a model's depthwise filters while it trains, and keep what was seen in one file.

Watching reads weights and writes a file: it draws no random number, keeps no graph, changes no mode, thread or
gradient. A run that is watched ends in the same bits as one that is not.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Collection, Iterable
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import nn

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
from filtercov.statistics import records
from filtercov.statistics.filter_statistics import measure_layer
from filtercov.statistics.watched import Watched
from filtercov.statistics.watched_file import FORMAT, exponent_of, followed, pack, packed_filters, packed_moments


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
    closed, which leaving its `with` block does if nothing was raised. Each moment is appended to `path` and can be read
    at any time with `filtercov.Watched.load(path)`. `gradients` measures the weights' gradients as well: call it after
    `backward` and before they are set to zero. Weights that are computed from others have none, of which a warning is
    given.

    A file that is there is refused with `CheckpointError`, unless a run continues, which says how many steps it has
    done: `step` keeps the moments up to there and has those after it measured again. Where processes train together the
    first one writes.

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
        self._model = model
        self._warned: set[str] = set()
        layers = depthwise_layers(model)
        self._known = _described(layers)
        self._writes = _first_process()
        self._gathers = any(is_sharded(layer.weight) for layer in layers)
        self._seen = -1  # the step of the last moment in the file
        self._looked = -1  # the last step that was due and measured, in every process alike
        self._size = 0  # of the file
        self._start: dict[str, Array] = {}
        computed = [layer.name for layer in layers if _trains_computed(layer)] if gradients and self._writes else []
        if computed:
            self._warn(
                "computed",
                f"{', '.join(computed[:3])}{'…' if computed[3:] else ''} will have no gradients, their weights are "
                "computed from other parameters",
                stacklevel=4,
            )
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
        """Begin a file, or continue the one that is there, and measure this step if it should be in it."""
        now = {layer.name: _filters(layer) for layer in layers}
        self._start = {name: filters.copy() for name, filters in now.items()}  # which may be the weights themselves
        if self._writes and not os.path.exists(self.path):  # noqa: PTH110  # Path.exists raises for impossible names
            self._begin(now)
        elif self._writes and new:
            last = max(Watched.load(self.path).steps, default=0)
            raise CheckpointError(
                f"{self.path}: needed a new file, got one with moments up to step {last}; continue it with "
                "watch(…, step=N), N the steps that are done, or choose another name"
            )
        elif self._writes:
            self._continue(now)
        due = self._due(self.step - 1, self.step)
        if self._seen < 0 or due:
            self._append([] if self._gathers else layers, now)
        self._looked = self.step if due else -1  # which the file must not decide: only one process reads it

    def _begin(self, now: dict[str, Array]) -> None:
        kept = {name: "<f4" if _fits_float32(filters) else "<f8" for name, filters in now.items()}
        for name, filters in now.items():
            measure_layer(name, torch.from_numpy(filters[:, None]))  # or say what is wrong with it
        about = {
            "source": type(unwrap(self._model)).__name__,
            "notes": list(notes_on_lookalikes(self._model)),
            "began": self.step,
            "layers": [
                {"name": name, "kernel_size": filters.shape[1:], "count": len(filters), "kept_in": kept[name]}
                for name, filters in now.items()
            ],
        }
        body = pack(about, [filters.astype(kept[name]) for name, filters in now.items()])
        self._size = records.create(self.path, FORMAT, [body])

    def _continue(self, now: dict[str, Array]) -> None:
        """Keep the moments up to this step, if they are of the same run as far as can be told."""
        watched = Watched.load(self.path)
        if {name: filters.shape for name, filters in watched.start.items()} != {
            name: filters.shape for name, filters in now.items()
        }:
            raise CheckpointError(
                f"{self.path}: needed the moments of a model with the same depthwise layers, got those of another, "
                f"{watched.source}; choose another name"
            )
        if self.step < watched.began or (
            self.step == watched.began
            and not all(np.array_equal(filters, now[name]) for name, filters in watched.start.items())
        ):
            raise CheckpointError(
                f"{self.path}: needed the moments of this run, got those of one that began at step {watched.began} "
                "with other filters; choose another name, or remove it"
            )
        kept = [moment for moment in watched if moment.step <= self.step]
        self._start = dict(watched.start)
        self._seen = kept[-1].step if kept else -1
        self._size = records.shorten(self.path, FORMAT, 1 + len(kept))

    def _record(self) -> bool:
        """Measure every layer and append what was found; return whether that was done."""
        if not (self._writes or self._gathers):
            return False
        layers = self._layers()
        return self._append(layers, {layer.name: _filters(layer) for layer in layers})

    def _append(self, layers: list[DepthwiseLayer], filters: dict[str, Array]) -> bool:
        """Append what is found of these filters, and of the gradients of these layers where that was asked for."""
        self._looked = self.step
        gradients = {layer.name: self._gradient(layer) for layer in layers} if self._gradients else {}
        if not self._writes or self._seen >= self.step:
            return False
        try:
            found = [self._measure(name, filters[name], gradients.get(name)) for name in filters]
        except CovarianceError as error:
            self._warn("bad", f"left out step {self.step}: {error}; later steps like this are left out in silence")
            return False
        about = {"step": self.step, "layers": [entry for entry, _ in found]}
        self._size = records.append(self.path, pack(about, [a for _, arrays in found for a in arrays]), self._size)
        self._seen = self.step
        return True

    def _layers(self) -> list[DepthwiseLayer]:
        """Return the layers as they are now: others may have swapped modules since the last moment."""
        layers = depthwise_layers(self._model)
        if _described(layers) != self._known:
            raise ModelError(
                f"{self.path}: needed the {len(self._known)} depthwise layers that watching began with, got others, "
                f"{len(layers)} in all; watch the new model in a file of its own"
            )
        return layers

    def _measure(self, name: str, filters: Array, gradient: Array | None) -> tuple[dict[str, Any], list[Array]]:
        """Return how a layer is described, and the numbers to keep."""
        measured = measure_layer(name, torch.from_numpy(filters[:, None]))
        assert measured.of_filters is not None  # the filters were there
        exponent = exponent_of(filters)
        distance, cosine = _compared(filters, self._start[name])
        entry: dict[str, Any] = {
            "exponent": exponent,
            "distance": distance,
            "cosine": cosine,
            "of_filters": asdict(measured.of_filters),
        }
        arrays = packed_moments(measured.mean, measured.covariance, exponent)
        arrays.append(packed_filters(filters[followed(len(filters))], exponent))
        if gradient is not None and np.isfinite(gradient).all():
            entry["gradient_exponent"] = exponent_of(gradient)
            arrays += packed_moments(*empirical_covariance(gradient), exponent_of(gradient))
        return entry, arrays

    def _gradient(self, layer: DepthwiseLayer) -> Array | None:
        """Return the gradient (count, *kernel_size) of a layer's weight, if it has one."""
        weight = layer.module._parameters.get("weight")
        if weight is None or weight.grad is None:
            if weight is not None and weight.requires_grad and self.step > 0:
                self._warn(
                    "gradient",
                    f"{layer.name} has no gradient at step {self.step}; call the watch after backward and before "
                    "gradients are set to zero",
                )
            return None
        return _plain(weight.grad, layer.name)

    def _warn(self, what: str, text: str, stacklevel: int = 5) -> None:
        if what not in self._warned:
            warnings.warn(f"watch: {text}", FiltercovWarning, stacklevel=stacklevel)
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


def _filters(layer: DepthwiseLayer) -> Array:
    """Return the filters (count, *kernel_size) of a layer, in float64."""
    with torch.no_grad():
        return _plain(layer.weight, layer.name)


def _plain(weight: torch.Tensor, name: str) -> Array:
    values: Array = plain_values(weight, name).numpy()
    return values.reshape(-1, *values.shape[2:])


def _fits_float32(filters: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool((filters.astype(np.float32) == filters).all())


def _compared(filters: Array, start: Array) -> tuple[float, float | None]:
    """Return the distance and the cosine between all weights of a layer, now and at the start."""
    distance = float(np.linalg.norm((filters - start).ravel()))
    lengths = [float(np.linalg.norm(each.ravel())) for each in (filters, start)]
    if not all(lengths):
        return distance, None
    return distance, float((filters.ravel() / lengths[0]) @ (start.ravel() / lengths[1]))


def _whole(name: str, value: object, least: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ConfigError(f"watch: needed {name} to be a whole number of at least {least}, got {value!r}")
    return number
