"""Watched runs for tests of what is shown of them: real files, whose filters go from noise to structure as told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import filtercov as fc

SIZES: tuple[Any, ...] = ((5, 5), (5, 5), (3, 5), (7,), (3, 3, 3))
KINDS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def network(sizes: Sequence[Any] = SIZES, *, count: int = 64, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(*(KINDS[len(size)](count, count, size, groups=count) for size in sizes))


def watched(
    path: Path,
    shares: Sequence[float] = (0.0, 0.0, 0.5, 1.0),
    *,
    sizes: Sequence[Any] = SIZES,
    layers: Sequence[int] = (1, 2, 3),
    count: int = 64,
    seed: int = 0,
    sigma: float = 0.4,
) -> Path:
    """Write a run in which some layers take this share of the closed form's filters at each step, the others drift."""
    net = network(sizes, count=count, seed=seed)
    start = [layer.weight.detach().clone() for layer in net]
    torch.manual_seed(seed + 1)
    noise = [torch.randn_like(weight) * weight.std() for weight in start]
    goal = network(sizes, count=count, seed=seed)
    fc.init_(goal, lambda _: sigma, seed=seed, min_kernel_size=1)
    watch = fc.watch(net, path, every=10)
    for number, share in enumerate(shares[1:], start=1):
        with torch.no_grad():
            for index, layer in enumerate(net):
                end = goal[index].weight if index in layers else start[index] + noise[index] * number / len(shares)
                layer.weight.copy_((1 - share) * start[index] + share * end if index in layers else end)
        watch(10 * number)
    watch.close()
    return path
