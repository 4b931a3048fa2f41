"""Watched runs for tests of what is shown of them: real files, whose filters go from noise to structure as told."""

import torch
from torch import nn

import filtercov as fc

SIZES = ((5, 5), (5, 5), (3, 5), (7,), (3, 3, 3))
KINDS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def network(sizes=SIZES, *, count=64):
    torch.manual_seed(0)
    return nn.Sequential(*(KINDS[len(size)](count, count, size, groups=count) for size in sizes))


def watched(path, shares=(0.0, 0.0, 0.5, 1.0), *, sizes=SIZES, layers=(1, 2, 3), count=64):
    """Write a run in which some layers take this share of the closed form's filters at each step, the others drift."""
    net, goal = network(sizes, count=count), network(sizes, count=count)
    start = [layer.weight.detach().clone() for layer in net]
    torch.manual_seed(1)
    noise = [torch.randn_like(weight) * weight.std() for weight in start]
    fc.init_(goal, lambda _: 0.4, seed=0, min_kernel_size=1)
    with fc.watch(net, path, every=10) as watch:
        for number, share in enumerate(shares[1:], start=1):
            with torch.no_grad():
                for index, layer in enumerate(net):
                    drifted = start[index] + noise[index] * number / len(shares)
                    grown = (1 - share) * start[index] + share * goal[index].weight
                    layer.weight.copy_(grown if index in layers else drifted)
            watch(10 * number)
    return path
