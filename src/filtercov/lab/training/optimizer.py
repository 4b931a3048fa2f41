"""The optimiser of a configuration, and which parameters it decays."""

from collections.abc import Collection
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor, nn

from filtercov.lab.training.config import TrainConfig


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return the optimiser of the parameters that train."""
    groups = parameter_groups(model, config)
    if config.opt == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=False)
    return torch.optim.AdamW(groups, lr=config.lr, eps=config.opt_eps)


def parameter_groups(model: nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """Return the parameters that train, with the decay of each group.

    Without `decay_norms` the rule is timm's default: what has at most one dimension (norms, biases, layer scales), is
    called a bias, or is named by the model's own `no_weight_decay()` is left alone.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    >>> groups = parameter_groups(model, TrainConfig(weight_decay=0.1, decay_norms=False))
    >>> [(group["weight_decay"], len(group["params"])) for group in groups]
    [(0.1, 1), (0.0, 3)]
    """
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    spared = set() if config.decay_norms else _spared(model)
    groups = [
        {"params": [parameter for name, parameter in named if name not in spared], "weight_decay": config.weight_decay},
        {"params": [parameter for name, parameter in named if name in spared], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def trained(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters of an optimiser, in the order in which it numbers them."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _spared(model: nn.Module) -> set[str]:
    listed: Collection[str] = getattr(model, "no_weight_decay", tuple)()
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim <= 1 or name.endswith(".bias") or any(fnmatch(name, pattern) for pattern in listed)
    }
