"""How a configuration moves the weights: its optimiser, which parameters that decays, and the learning rate by time."""

import math
from collections.abc import Collection
from fnmatch import fnmatch
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from filtercov import depthwise_layers
from filtercov.lab.training.config import TrainConfig

# The triangle of the ConvMixer authors' CIFAR-10 recipe, which the paper follows: up for two fifths of training, down
# to a twentieth by four fifths, and on to zero.
_TRIANGLE = ((0.0, 0.0), (0.4, 1.0), (0.8, 0.05), (1.0, 0.0))


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return the optimiser of the parameters that train."""
    groups = parameter_groups(model, config)
    if config.opt == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=False)
    return torch.optim.AdamW(groups, lr=config.lr, eps=config.opt_eps)


def parameter_groups(model: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """Return the parameters that train, with the decay of each group and `lr_scale`, its share of the learning rate.

    Without `decay_norms` the rule is timm's default: what has at most one dimension (norms, biases, layer scales), is
    called a bias, or is named by the model's own `no_weight_decay()` is left alone.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    >>> groups = parameter_groups(model, TrainConfig(weight_decay=0.1, decay_norms=False))
    >>> [(group["weight_decay"], len(group["params"])) for group in groups]
    [(0.1, 1), (0.0, 3)]
    """
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    spared = set() if config.decay_norms else _spared(model)
    filters = set() if config.filter_lr == 1.0 else {id(layer.weight) for layer in depthwise_layers(model)}
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in named:
        decay = 0.0 if name in spared else config.weight_decay
        groups.setdefault((decay, config.filter_lr if id(parameter) in filters else 1.0), []).append(parameter)
    decayed_first = sorted(groups.items(), key=lambda group: (-group[0][0], -group[0][1]))
    return [{"params": params, "weight_decay": decay, "lr_scale": lr} for (decay, lr), params in decayed_first]


def trained(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters of an optimiser, in the order in which it numbers them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def learning_rate(config: TrainConfig, done: float) -> float:
    """Return the learning rate when the fraction `done` in [0, 1] of all steps is complete.

    >>> config = TrainConfig(lr=0.01)
    >>> [round(learning_rate(config, done), 6) for done in (0.0, 0.2, 0.4, 0.8, 1.0)]
    [0.0, 0.005, 0.01, 0.0005, 0.0]
    """
    if config.sched == "triangular":
        return config.lr * _interpolate(done)
    warmup = config.warmup_epochs / config.epochs
    if done < warmup:
        return config.lr * done / warmup
    if config.sched == "constant":
        return config.lr
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * (done - warmup) / (1.0 - warmup)))


def _spared(model: nn.Module) -> set[str]:
    listed: Collection[str] = getattr(model, "no_weight_decay", tuple)()
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim <= 1 or name.endswith(".bias") or any(fnmatch(name, pattern) for pattern in listed)
    }


def _interpolate(done: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(_TRIANGLE):
        if done <= x1:
            return y0 + (y1 - y0) * (done - x0) / (x1 - x0)
    return _TRIANGLE[-1][1]
