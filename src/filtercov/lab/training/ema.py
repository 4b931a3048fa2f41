"""The exponential moving average of a model's weights.

Not `torch.optim.swa_utils.AveragedModel`: its first update replaces the average by the weights instead of moving it, so
that a run which continues would need its counter too. Without buffers it leaves BatchNorm's statistics as they began;
with them it averages counters of batches, rounding down, and turns masks of -inf into nan. Its weights are named
`module.…`; these have the model's own names, so that `ema.safetensors` loads like any checkpoint.
"""

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
        here, there = (module.state_dict(keep_vars=True) for module in (self.model, model))
        pairs = {id(average): (average, there[name]) for name, average in here.items()}  # tied weights once
        for average, current in pairs.values():
            if not average.is_floating_point():
                average.copy_(current)
            elif current.requires_grad:
                average.lerp_(current, 1.0 - self.decay)
            else:
                # Between infinities there is no average: masks of -inf stay what they are.
                moved = average.lerp(current, 1.0 - self.decay)
                average.copy_(torch.where(torch.isfinite(current - average), moved, current))
