"""A seed gives the same filters whatever torch's default type and device, modes and threads."""

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.covariance.transfer import LayerStatistics
from filtercov.lab.experiments.initialisations import InitContext, find

COVARIANCE = fc.gaussian_covariance(7, 0.9)
STATISTICS = fc.FilterStatistics((LayerStatistics("a", (7, 7), 9, np.linspace(-1, 1, 49), COVARIANCE),))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(32, 32, 7, groups=32), nn.Conv2d(32, 32, 7, groups=32))


def seeded():
    return torch.Generator().manual_seed(5)


def from_init(source, **options):
    return lambda net: fc.init_(net, source, generator=seeded(), **options)


def by_name(name):
    return lambda net: find(name)(net, InitContext(seeded(), argument=name.partition(":")[2]))


def from_covariance(net):
    for layer in net:
        fc.covariance_normal_(layer.weight, COVARIANCE, np.ones(49), generator=seeded())


WAYS = {
    "preset": from_init("cifar-p2"),
    "matched": from_init("cifar-p2", scale="match"),
    "statistics": from_init(STATISTICS),
    "function": from_init(lambda layer: np.float32(0.5 + layer.index)),
    "covariance_normal_": from_covariance,
    "copied": lambda net: fc.copy_filters_(net, copied_from()),
    **{name: by_name(name) for name in ("uniform", "kaiming", "orthogonal", "delta-gaussian", "box:9", "master-keys")},
}


def copied_from():
    make = partial(nn.Conv2d, 32, 32, 7, groups=32, device="cpu", dtype=torch.float32)
    source = nn.Sequential(make(), make())
    fc.init_(source, generator=seeded())
    return source


@contextmanager
def changed(setter, value, before):
    setter(value)
    try:
        yield
    finally:
        setter(before)


SETTINGS = {
    "default type": lambda: changed(torch.set_default_dtype, torch.float64, torch.float32),
    "default device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "threads": lambda: changed(torch.set_num_threads, 3, torch.get_num_threads()),
}


@pytest.mark.parametrize("way", WAYS)
def test_torchs_settings_change_no_bit_of_the_filters(way):
    expected = network()
    WAYS[way](expected)
    assert not torch.equal(expected[0].weight, network()[0].weight)
    for name, setting in SETTINGS.items():
        net = network()
        with setting():
            WAYS[way](net)
        for layer, other in zip(net, expected, strict=True):
            assert torch.equal(layer.weight, other.weight), name
            assert layer.weight.requires_grad, name


def test_the_global_generator_of_the_cpu_is_the_default_whatever_the_default_device_is():
    nets = [network() for _ in range(2)]
    for net, device in zip(nets, ("cpu", "meta"), strict=True):
        torch.manual_seed(4)
        with torch.device(device):
            fc.init_(net)
    assert torch.equal(nets[0][1].weight, nets[1][1].weight)
