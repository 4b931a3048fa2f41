"""One step of a model on an example, as a trainer takes it."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from filtercov.layers.running import call


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
        """Take the step, always with the same random numbers."""
        torch.default_generator.manual_seed(0)  # whose state `unchanged` restores
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
