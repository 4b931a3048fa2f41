"""Depthwise layers to try things on, whether they changed, and what statistics say of them."""

from contextlib import contextmanager

import torch
from torch import nn


def depthwise(channels=8, kernel_size=7, kind=nn.Conv2d, multiplier=1, **kwargs):
    return kind(channels, channels * multiplier, kernel_size, groups=channels, **kwargs)


def network(*sizes, width=8, seed=0):
    """A layer for each kernel size, the same weights for the same seed."""
    torch.manual_seed(seed)
    return nn.Sequential(*(depthwise(width, size) for size in sizes))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@contextmanager
def double_by_default():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def state(net):
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def unchanged(net, before):
    return all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def told(statistics):
    """All that statistics say of their layers, to the bit."""
    counts = [(layer.name, layer.kernel_size, layer.count, layer.resized, layer.near_zero) for layer in statistics]
    return counts, [(layer.mean.tobytes(), layer.covariance.tobytes()) for layer in statistics]
