"""Which dictionary of a checkpoint holds the weights: trainers put it under any key, beside averages and optimisers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from filtercov.depthwise.averages import names_average
from filtercov.depthwise.definition import Shaped, has_depthwise_shape
from filtercov.files.limits import NESTING
from filtercov.printable import shortened

OPTIMISER = re.compile(r"optim|momentum|exp_avg|grad", re.IGNORECASE)


T = TypeVar("T", bound=Shaped)


@dataclass(frozen=True)
class Found(Generic[T]):
    """A dictionary of tensors, and the keys it lies under."""

    keys: tuple[str, ...]
    tensors: dict[str, T]

    @property
    def depthwise(self) -> int:
        """How many depthwise weights it has."""
        return sum(has_depthwise_shape(name, tensor) for name, tensor in self.tensors.items())

    @property
    def averaged(self) -> bool:
        """Whether it holds the average of a network's weights over training."""
        return "n_averaged" in self.tensors or any(names_average(key) for key in self.keys)

    @property
    def optimisers(self) -> bool:
        """Whether it belongs to an optimiser, which keeps tensors of the shapes of the weights."""
        return any(OPTIMISER.search(key) for key in self.keys)

    def __str__(self) -> str:
        return repr(shortened(".".join(self.keys))) if self.keys else "the top level"


def choose_weights(content: Any, kind: type[T]) -> tuple[Found[T], list[str]] | None:
    """Return the dictionary that holds a network's weights, with notes on which it is; None if there is none.

    Of those with depthwise weights, weights go before averages of them and these before an optimiser's; then the one
    with the most depthwise weights, and of equals the first. Where none has any, that with the most tensors.

    >>> import torch
    >>> ema, net = ({"conv.weight": torch.zeros(8, 1, 3, 3)} for _ in range(2))
    >>> found, notes = choose_weights({"ema": ema, "net": net, "best": torch.zeros(1)}, torch.Tensor)
    >>> found.keys, list(found.tensors), notes
    (('net',), ['conv.weight'], ["read 'net'; the file also holds 'ema' (an average)"])
    """
    held = [
        (keys, {name: one for name, one in items.items() if isinstance(one, kind)}) for keys, items in mappings(content)
    ]
    found = [Found(keys, tensors) for keys, tensors in held if tensors]
    if not found:
        return None
    holders = [one for one in found if one.depthwise]
    if not holders:
        return max(found, key=lambda one: len(one.tensors)), []
    chosen = min(holders, key=lambda one: (one.optimisers, one.averaged, -one.depthwise))
    others = [f"{one}{' (an average)' if one.averaged else ''}" for one in holders if one is not chosen]
    notes = []
    if chosen.keys or others:
        what = f"read {chosen}{', an average of weights' if chosen.averaged else ''}"
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        notes.append(f"{what}; the file also holds {', '.join(others[:3])}{more}" if others else what)
    return chosen, notes


def mappings(content: Any) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield every dictionary and the keys it lies under, outermost first, each once however often it is referred to."""
    level: list[tuple[tuple[str, ...], Any]] = [((), content)] if isinstance(content, Mapping | list | tuple) else []
    seen: set[int] = set()
    for _ in range(NESTING):
        inner: list[tuple[tuple[str, ...], Any]] = []
        for keys, value in level:
            if id(value) in seen:
                continue
            seen.add(id(value))
            items = list(value.items() if isinstance(value, Mapping) else enumerate(value))
            if isinstance(value, Mapping):
                yield keys, {name: one for name, one in items if isinstance(name, str)}
            inner += [((*keys, str(key)), one) for key, one in items if isinstance(one, Mapping | list | tuple)]
        level = inner
