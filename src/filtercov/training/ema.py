"""The exponential moving average of a model's weights."""

import copy

import torch
from torch import nn


class Ema:
    """A copy of a model whose floating-point weights and buffers follow the model's slowly.

    >>> model = nn.Linear(1, 1)
    >>> ema = Ema(model, decay=0.75)
    >>> with torch.no_grad():
    ...     before = model.weight.clone(); _ = model.weight.add_(1.0)
    >>> ema.update_(model)
    >>> bool(torch.allclose(ema.model.weight, before + 0.25))
    True
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update_(self, model: nn.Module) -> None:
        """Move the average towards the model's present weights; integer buffers (counters) are copied."""
        for average, current in zip(self.model.state_dict().values(), model.state_dict().values(), strict=True):
            if average.is_floating_point():
                average.lerp_(current, 1.0 - self.decay)
            else:
                average.copy_(current)
