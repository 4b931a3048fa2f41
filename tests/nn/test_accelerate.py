"""`accelerate_` on any model: same numbers, parameters and hooks, a true report, and `restore_` undoes it all."""

import copy
import pickle
from typing import NamedTuple

import pytest
import torch
from torch import nn

from filtercov.errors import ModelError
from filtercov.nn import (
    DepthwiseConv1d,
    DepthwiseConv2d,
    DepthwiseConv3d,
    FusedSequential,
    accelerate_,
    keep_freed_memory,
    native_status,
    restore_,
)
from filtercov.nn.conv import PointwiseConv2d, StridedPointwiseConv2d
from filtercov.nn.swap import DEPTHWISE, POINTWISE, SAFE, toggles
from tests.nn.support import CHANNELS_LAST, called
from tests.processes import python


def convmixer(width=16):
    def block(*layers):
        return nn.Sequential(*layers, nn.GELU(), nn.BatchNorm2d(width))

    return nn.Sequential(
        block(nn.Conv2d(3, width, 2, stride=2)),
        block(nn.Conv2d(width, width, 9, groups=width, padding="same")),
        block(nn.Conv2d(width, width, 1)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


class State(NamedTuple):
    """All that a user could hold on to: what `accelerate_` may change, and what nothing may change."""

    kinds: list
    strides: list
    rest: list


def state(net):
    tensors, modules = [*net.named_parameters(), *net.named_buffers()], list(net.modules())
    return State(
        kinds=[(type(m), sorted(vars(m))) for m in modules],
        strides=[t.stride() for _, t in tensors],
        rest=[
            [(id(m), m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in modules],
            [(name, id(t), t.requires_grad, t.detach().numpy().tobytes()) for name, t in tensors],
            [None if p.grad is None else (id(p.grad), p.grad.numpy().tobytes()) for p in net.parameters()],
            torch.get_rng_state().tolist(),
        ],
    )


@pytest.mark.parametrize("times", [1, 2])
def test_everything_is_as_it_was_after_restore(times):
    net, called = convmixer(), []
    net.append(nn.Conv2d(8, 8, 3).to(memory_format=CHANNELS_LAST))
    net[1][0].register_forward_hook(lambda *_: called.append("convolution"))
    net[1][1].register_forward_hook(lambda *_: called.append("gelu"))
    x = torch.randn(2, 3, 24, 24)
    before = state(net)
    reports = [accelerate_(net) for _ in range(times)]
    assert reports[0].changed["depthwise"] == ("1.0",)
    assert reports[-1].changed == reports[0].changed
    assert net[2][0].weight.is_contiguous(memory_format=CHANNELS_LAST)
    net[:-1].eval()(x)
    assert called == ["convolution", "gelu"]
    net.train()
    sequences = {"0", "1", "2"} if native_status().available else set()
    assert set(restore_(net)) == {"1.0", *sequences}
    assert state(net) == before
    assert restore_(net) == ()


def test_copies_and_saved_models_know_the_way_back_and_gradients_go_with_their_parameters():
    net = convmixer()
    strides, keys = [p.stride() for p in net.parameters()], list(net.state_dict())
    accelerate_(net)
    (toggle,) = (toggle for toggle in toggles(net) if toggle.swap is DEPTHWISE)
    toggle.set_(5)  # as a measurement may have
    net(torch.randn(2, 3, 24, 24)).square().sum().backward()
    gradients = [p.grad.clone() for p in net.parameters()]
    assert list(net.state_dict()) == keys
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), net):
        assert other[1][0].passes == 5
        restore_(other)
        assert "passes" not in vars(other[1][0])
        assert [p.stride() for p in other.parameters()] == strides
    assert [p.grad.stride() for p in net.parameters()] == strides
    assert all(torch.equal(p.grad, grad) for p, grad in zip(net.parameters(), gradients, strict=True))


def test_layers_without_weights_are_refused():
    with pytest.raises(ModelError, match="seen no input"):
        accelerate_(nn.Sequential(nn.LazyConv2d(8, 3)))


Own = type("Own", (nn.Conv2d,), {})
LAYERS = {  # a layer, and the class that it gets, if another
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8), DepthwiseConv2d),
    "depthwise, 1-D": (nn.Conv1d(8, 8, 3, groups=8), DepthwiseConv1d),
    "depthwise, 3-D": (nn.Conv3d(8, 8, 3, groups=8), DepthwiseConv3d),
    "depthwise, 1x1 and strided": (nn.Conv2d(8, 8, 1, stride=2, groups=8), DepthwiseConv2d),
    "full": (nn.Conv2d(8, 8, 3), None),
    "grouped": (nn.Conv2d(8, 8, 3, groups=4), None),
    "own": (Own(8, 8, 3, groups=8), None),
    "own depthwise": (type("Own", (DepthwiseConv2d,), {})(8, 8, 3, groups=8), None),
    "parametrised": (torch.nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3, groups=8)), None),
    "gelu of another formula": (nn.Sequential(nn.GELU(approximate="tanh"), nn.BatchNorm2d(8)), None),
    "own activation": (nn.Sequential(nn.BatchNorm2d(8), type("Mine", (nn.ReLU,), {})()), None),
    "endangered stem": (nn.Conv2d(3, 8, 1, stride=2), StridedPointwiseConv2d),
    "endangered, valid": (nn.Conv2d(15, 8, 1, stride=(1, 2), padding="valid"), StridedPointwiseConv2d),
    "endangered, grouped": (nn.Conv2d(12, 8, 1, stride=2, groups=4), StridedPointwiseConv2d),
    "endangered, own": (Own(3, 8, 1, stride=2), None),
    "unstrided": (nn.Conv2d(3, 8, 1), None),
    "padded": (nn.Conv2d(3, 8, 1, stride=2, padding=1), None),
    "wide": (nn.Conv2d(16, 8, 1, stride=2), None),
    "patches": (nn.Conv2d(3, 8, 2, stride=2), None),
}


def test_every_layer_becomes_what_it_should_and_those_with_a_class_of_their_own_are_reported():
    net = nn.ModuleDict({name: layer for name, (layer, _) in LAYERS.items()})
    before = {name: type(layer) for name, layer in net.items()}
    changed = {name: kind for name, (_, kind) in LAYERS.items() if kind is not None}
    report = accelerate_(net)
    assert {name: type(layer) for name, layer in net.items()} == before | changed
    assert report.changed[SAFE.kind] == tuple(name for name in changed if changed[name] is StridedPointwiseConv2d)
    assert set(report.skipped) == {"own", "own depthwise", "parametrised", "endangered, own"}
    assert "left alone: own: it is a Own" in str(report)
    assert "4 × depthwise" in str(report)
    assert set(restore_(net)) == set(changed)
    assert {name: type(layer) for name, layer in net.items()} == before
    built = FusedSequential(DepthwiseConv2d(8, 8, 3, groups=8))
    assert restore_(built) == ("", "0")
    assert [type(m) for m in built.modules()] == [nn.Sequential, nn.Conv2d]


# 1x1 convolutions.


@pytest.mark.parametrize("layout", [CHANNELS_LAST, torch.contiguous_format])
@pytest.mark.parametrize(
    ("kind", "stride", "size"),
    [
        (PointwiseConv2d, 1, (3, 12, 1, 1)),
        (PointwiseConv2d, 1, (3, 12, 5, 7)),
        (PointwiseConv2d, 1, (12, 5, 7)),
        (StridedPointwiseConv2d, 2, (2, 2, 13, 12)),
        (StridedPointwiseConv2d, (1, 3), (2, 3, 13, 12)),
        (StridedPointwiseConv2d, 2, (15, 6, 6)),
    ],
)
def test_1x1_convolutions_give_the_same_results(kind, stride, size, layout):
    plain = nn.Conv2d(size[-3], 20, 1, stride=stride, bias=size[-1] > 1)
    ours, x = copy.deepcopy(plain), torch.randn(size)
    ours.__class__ = kind
    moved = x.to(memory_format=layout) if x.dim() == 4 else x
    names, found = called(ours, moved), []
    for layer, image in ((ours, moved), (plain, x)):
        leaf = image.clone().requires_grad_()
        y = layer(leaf)
        found.append([y, *torch.autograd.grad(y.square().sum(), [leaf, *layer.parameters()])])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    rows = kind is PointwiseConv2d and layout is CHANNELS_LAST and size == (3, 12, 5, 7)
    assert ("aten::convolution" not in names) is rows
    assert not rows or found[0][0].is_contiguous(memory_format=layout)


def test_products_of_matrices_are_used_only_where_measured_and_possible():
    net = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 7, padding=3, groups=8))
    net[0].__class__ = PointwiseConv2d  # as a measurement may have
    accelerate_(net)
    assert type(net[0]) is PointwiseConv2d
    assert restore_(net) == ("0", "1")
    others = nn.Conv2d(8, 8, 1, stride=2), nn.Conv2d(8, 8, 1, groups=2), nn.Conv2d(8, 8, 1, padding=1)
    assert not [toggle for other in others for toggle in toggles(other) if toggle.swap is POINTWISE]


# Freed memory: 128 MiB of tensors, held together and freed together as the activations of a step are.

FAULTS = """
import resource, torch
from filtercov.nn import accelerate_
layers = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, groups=8))
kept = accelerate_(layers, keep_memory={keep}).keeps_memory
def step():
    activations = [torch.zeros({mebibytes} << 18) for _ in range(128 // {mebibytes})]
for _ in range(10):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not keep_freed_memory(), reason="needs glibc")
@pytest.mark.parametrize(("keep", "mebibytes"), [(True, 16), (True, 64), (False, 16)])  # glibc maps 32 MiB and more
def test_kept_memory_is_not_asked_for_again(keep, mebibytes):
    # Where nobody says from which size on memory is the system's, glibc learns it, and sometimes keeps all by chance.
    run = python(FAULTS.format(keep=keep, mebibytes=mebibytes), MALLOC_MMAP_THRESHOLD_="131072")
    kept, faults = map(int, run.stdout.split())
    assert bool(kept) is keep
    # Of 163,840 pages in five steps; glibc now and then takes a few more blocks before it has enough.
    assert faults < 50_000 if keep else faults > 100_000
