"""One step of a model on an example, as a trainer takes it, and which of several ways to take it is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from filtercov.layers.running import call
from filtercov.nn.timing import clearly_faster


class Step:
    """Forward and backward of the mean square of all outputs; in evaluation mode, or without gradients, forward alone.

    Gradients are computed and dropped: parameters keep theirs, and hooks on their accumulation are not called.
    """

    def __init__(self, model: nn.Module, example: Any) -> None:
        self.model, self.example = model, example
        tensors = [*model.parameters(), *tensors_of(example)]
        self.inputs = [tensor for tensor in tensors if tensor.requires_grad]
        self.learns = model.training and torch.is_grad_enabled() and bool(self.inputs)

    def __call__(self) -> None:
        """Take the step, with the random numbers that every step has."""
        torch.default_generator.manual_seed(0)  # the one that `unchanged` brings back
        with torch.set_grad_enabled(self.learns):
            outputs = [t for t in tensors_of(call(self.model, self.example)) if t.requires_grad]
            if outputs:
                loss = torch.stack([tensor.float().square().mean() for tensor in outputs]).sum()
                torch.autograd.grad(loss, self.inputs, allow_unused=True)


def tensors_of(nested: Any) -> Iterator[Tensor]:
    """Yield the floating-point tensors in what a model takes or returns: tuples, lists, dicts and dataclasses.

    >>> [t.item() for t in tensors_of({"logits": torch.tensor(1.0), "all": [torch.tensor(2.0), None]})]
    [1.0, 2.0]
    """
    if isinstance(nested, Tensor):
        if nested.is_floating_point():
            yield nested
    elif isinstance(nested, Mapping):
        yield from tensors_of(list(nested.values()))
    elif isinstance(nested, list | tuple):
        for value in nested:
            yield from tensors_of(value)
    elif is_dataclass(nested) and not isinstance(nested, type):
        yield from tensors_of([getattr(nested, part.name) for part in fields(nested)])


def kept(times: Mapping[str, Sequence[float]], plain: Collection[str]) -> str:
    """Return which candidate to keep, given the seconds of their turns; those in `plain` are PyTorch's alone.

    The first is how the model was. Another plain one takes its place if it is clearly faster, and of all others that
    are clearly faster than what is then held, the one with the best turn does. Clearly faster includes a shorter best
    turn: what is kept never has a longer one than any of those it replaced.

    >>> times = {"as it was": [1.0] * 5, "moved": [0.99] * 5, "ours": [0.8] * 5, "more": [0.7] * 5}
    >>> kept(times, {"as it was", "moved"})
    'more'
    """
    holder, *others = times
    for name in others:
        if name in plain and clearly_faster(times[holder], times[name]):
            holder = name
    faster = [name for name in others if name not in plain and clearly_faster(times[holder], times[name])]
    return min(faster, key=lambda name: min(times[name])) if faster else holder
