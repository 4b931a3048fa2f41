"""How the weights move: the optimiser's parameter groups, the learning rate over time, and EMA weights."""

import copy
import math
from collections.abc import Collection
from fnmatch import fnmatch
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from filtercov import depthwise_layers
from filtercov.lab.training.config import TrainConfig

# (share of training, share of the highest learning rate): the triangle of the ConvMixer authors' CIFAR-10 recipe.
_TRIANGLE = ((0.0, 0.0), (0.4, 1.0), (0.8, 0.05), (1.0, 0.0))


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The configured optimiser of the model's trainable parameters."""
    groups = parameter_groups(model, config)
    if config.opt == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=False)
    return torch.optim.AdamW(groups, lr=config.lr, eps=config.opt_eps)


def parameter_groups(model: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """The trainable parameters, grouped by weight decay and by `lr_scale`, a factor of the learning rate.

    Without `decay_norms` the rule is timm's: parameters of at most one dimension (norms, biases, layer scales), those
    called bias and those in the model's own `no_weight_decay()` do not decay.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    >>> groups = parameter_groups(model, TrainConfig(weight_decay=0.1, decay_norms=False))
    >>> [(group["weight_decay"], len(group["params"])) for group in groups]
    [(0.1, 1), (0.0, 3)]
    """
    spared = set() if config.decay_norms else _without_decay(model)
    filters = set() if config.filter_lr == 1.0 else {id(layer.weight) for layer in depthwise_layers(model)}
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = 0.0 if name in spared else config.weight_decay
            scale = config.filter_lr if id(parameter) in filters else 1.0
            groups.setdefault((decay, scale), []).append(parameter)
    # The order is part of the checkpoint's format, which numbers parameters as the optimiser does.
    ordered = sorted(groups.items(), key=lambda group: (-group[0][0], -group[0][1]))
    return [{"params": params, "weight_decay": decay, "lr_scale": scale} for (decay, scale), params in ordered]


def _without_decay(model: nn.Module) -> set[str]:
    listed: Collection[str] = getattr(model, "no_weight_decay", tuple)()
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim <= 1 or name.endswith(".bias") or any(fnmatch(name, pattern) for pattern in listed)
    }


def learning_rate(config: TrainConfig, done: float) -> float:
    """The learning rate when the fraction `done` in [0, 1] of all steps is complete.

    >>> config = TrainConfig(lr=0.01)
    >>> [round(learning_rate(config, done), 6) for done in (0.0, 0.2, 0.4, 0.8, 1.0)]
    [0.0, 0.005, 0.01, 0.0005, 0.0]
    """
    if config.sched == "triangular":
        (x0, y0), (x1, y1) = next((low, high) for low, high in pairwise(_TRIANGLE) if done <= high[0])
        return config.lr * (y0 + (y1 - y0) * (done - x0) / (x1 - x0))
    warmup = config.warmup_epochs / config.epochs
    if done < warmup:
        return config.lr * done / warmup
    if config.sched == "constant":
        return config.lr
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * (done - warmup) / (1.0 - warmup)))


class Ema:
    """A copy of a model whose weights and buffers are the exponential moving average of the model's.

    Not `torch.optim.swa_utils.AveragedModel`, which copies at its first update, so that resuming needs its counter, and
    rounds integer buffers or leaves out BatchNorm's statistics.

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
        """Move the average towards the model's weights; integer buffers (counters) are copied."""
        here, there = (module.state_dict(keep_vars=True) for module in (self.model, model))
        pairs = {id(average): (average, there[name]) for name, average in here.items()}  # tied weights once
        for average, current in pairs.values():
            if average.is_floating_point():
                average.lerp_(current, 1.0 - self.decay)
            else:
                average.copy_(current)
