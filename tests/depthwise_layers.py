"""Depthwise layers to try things on, and whether they changed."""

import torch
from torch import nn


def depthwise(channels=8, kernel_size=7, kind=nn.Conv2d, multiplier=1, **kwargs):
    return kind(channels, channels * multiplier, kernel_size, groups=channels, **kwargs)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def weights(net):
    return [p.detach().clone() for p in net.parameters()]


def same(before, net):
    return all(torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))
