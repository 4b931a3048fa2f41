"""The depthwise layers of a model: which they are, their order and names, weights that are not plain parameters; and
running a model to look at it leaves no trace."""

from contextlib import nullcontext
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.utils import parametrizations, prune

import filtercov as fc
from filtercov.errors import ModelError
from filtercov.layers.assign import assign_filters_
from filtercov.layers.find import unwrap
from filtercov.nn import DepthwiseConv2d
from tests.depthwise_layers import depthwise, state, unchanged


def names(net, example=None):
    return [layer.name for layer in fc.depthwise_layers(net, example)]


def test_only_convolutions_with_one_input_channel_per_group_are_depthwise():
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5),  # dense, on one-channel images
        nn.Conv2d(8, 8, 5, groups=4),
        nn.ConvTranspose2d(8, 8, 5, groups=8),
        depthwise(),
        depthwise(multiplier=3),
        nn.Conv2d(1, 1, 5),  # one channel: might as well be dense, as in channel attention
        DepthwiseConv2d(1, 1, 5),  # a network of width 1
        depthwise(kind=nn.Conv1d, kernel_size=11),
        depthwise(kind=nn.Conv3d, kernel_size=(3, 5, 5)),
    )
    net[3].kernel_size, net[7].kernel_size = 7, 11  # as some subclasses keep it
    found = fc.depthwise_layers(net)
    assert [(layer.name, layer.kernel_size, layer.channels, layer.index, layer.depth) for layer in found] == [
        ("3", (7, 7), 8, 0, 0.0),
        ("4", (7, 7), 24, 1, 0.25),
        ("6", (5, 5), 1, 2, 0.5),
        ("7", (11,), 8, 3, 0.75),
        ("8", (3, 5, 5), 8, 4, 1.0),
    ]
    assert found[1].weight is net[4].weight


class OutOfOrder(nn.Sequential):
    """Runs its second layer, twice, before the first, and the third never."""

    def forward(self, x):
        return self[0](self[1](self[1](x)))


def test_an_example_input_traces_the_order_of_execution():
    net = OutOfOrder(*(depthwise(padding=3) for _ in range(3)))
    assert names(net) == ["0", "1", "2"]
    for example in (torch.zeros(2, 8, 6, 6), {"x": torch.zeros(2, 8, 6, 6)}):
        assert names(torch.compile(net), example) == ["1", "0", "2"]
    with pytest.raises(ModelError, match="example_input"):
        fc.depthwise_layers(net, torch.zeros(2, 3, 6, 6))
    assert [row.sigma for row in fc.init_(net, "figure", example_input=example)] == [0.5, 1.125, 2.5]


def test_names_are_free_of_wrappers_and_no_two_become_one():
    net = nn.Sequential(depthwise(), nn.Sequential(checkpoint_wrapper(depthwise())))
    net[1] = torch.compile(net[1])
    for wrapped in (torch.compile(net), nn.DataParallel(torch.compile(net)), torch.optim.swa_utils.AveragedModel(net)):
        assert names(wrapped) == ["0", "1.0"]
    assert unwrap(nn.DataParallel(torch.compile(net))) is net
    beside = nn.ModuleDict({"module": nn.ModuleDict({"dw": depthwise()}), "dw": depthwise()})
    assert names(beside) == names(nn.DataParallel(beside)) == ["module.dw", "dw"]


def test_a_lazy_layer_is_refused_by_name_where_it_may_be_depthwise_or_tracing_would_initialise_it():
    net = nn.Sequential(depthwise(), nn.Sequential(nn.LazyConv2d(8, 5, groups=8)))
    with pytest.raises(ModelError, match=r"^1\.0: needed a layer that knows its channels"):
        fc.depthwise_layers(net)
    net(torch.zeros(1, 8, 16, 16))
    assert names(net) == ["0", "1.0"]
    net = nn.Sequential(nn.LazyConv2d(8, 1), depthwise())
    assert names(net) == ["1"]
    with pytest.raises(ModelError, match=r"^0: needed a layer that knows its channels"):
        fc.depthwise_layers(net, torch.zeros(1, 3, 16, 16))
    assert net[0].has_uninitialized_params()


# --- Weights that are not plain parameters ---


def pruned(layer):
    return prune.random_unstructured(layer, "weight", 0.5)


@pytest.mark.parametrize("wrap", [parametrizations.spectral_norm, pruned])
def test_a_weight_that_does_not_keep_what_is_written_is_refused_and_all_are_restored(wrap):
    replacing_its_buffers = parametrizations.orthogonal(depthwise())
    net = nn.Sequential(depthwise(32), wrap(depthwise(32)), depthwise(32), replacing_its_buffers)
    before = state(net)
    with pytest.raises(ModelError, match=r"^1: "):
        fc.init_(net)
    with pytest.raises(ModelError):
        fc.init_(net[2:])
    assert unchanged(net, before)
    assert len(fc.init_(net, filter_fn=lambda layer: layer.name in ("0", "2")).initialised) == 2


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_weight_under_weight_norm_becomes_what_was_drawn(scale):
    net, plain = nn.Sequential(parametrizations.weight_norm(depthwise())), nn.Sequential(depthwise())
    for model in (net, plain):
        fc.init_(model, seed=0, scale=scale)
    torch.testing.assert_close(net[0].weight, plain[0].weight, rtol=1e-4, atol=1e-6 * scale)


class Failing(nn.Parameter):
    """A weight that fails when it is first written to."""

    errors: ClassVar = []

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        if function is torch.Tensor.copy_ and cls.errors:
            raise cls.errors.pop()
        return super().__torch_function__(function, types, arguments, options or {})


@pytest.mark.parametrize(
    ("error", "raised"), [(RuntimeError("no"), ModelError), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_failure_while_writing_restores_the_layers_already_written(error, raised, monkeypatch):
    net = nn.Sequential(depthwise(), depthwise(), depthwise())
    net[1].weight = net[0].weight  # which is restored to what it was before its first writing
    net[2].weight = Failing(net[2].weight.detach())
    before, layers = state(net), fc.depthwise_layers(net)
    monkeypatch.setattr(Failing, "errors", [error])
    with pytest.raises(raised):
        assign_filters_(layers, [torch.randn(8, 7, 7) for _ in layers])
    assert unchanged(net, before)


def with_weight(change):
    layer = depthwise()
    layer.weight = nn.Parameter(change(layer.weight.detach()), requires_grad=False)
    return nn.Sequential(layer)


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_weight(lambda weight: weight.to(torch.complex64)),
        lambda: with_weight(lambda weight: weight.to("meta")),
        lambda: with_weight(lambda weight: weight.flatten()),
        lambda: nn.Sequential(pruned(depthwise())),
    ],
    ids=["complex", "meta", "flattened", "pruned"],
)
def test_a_weight_without_plain_numbers_is_refused_by_name(make):
    for use in (fc.FilterStatistics.from_model, fc.init_):
        with pytest.raises(ModelError, match=r"^0: "):
            use(make())


def test_layout_gradients_and_identity_of_weights_are_kept():
    net = fc.freeze_(depthwise().to(memory_format=torch.channels_last))
    weight, stride = net.weight, net.weight.stride()
    fc.init_(net, seed=0)
    assert net.weight is weight
    assert (weight.stride(), weight.requires_grad) == (stride, False)


# --- Running a model to look at it, also one that changes when it runs or when its mode does ---


class Merging(nn.BatchNorm1d):
    """A layer that changes its weight when its mode is changed by `train`, as some LoRA layers do."""

    def train(self, mode=True):
        self.weight.data += 1
        return super().train(mode)


class Restless(nn.Module):
    """Counts its calls, replaces and adds tables' entries and draws random numbers, whatever its mode; may fail."""

    def __init__(self, fails):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 5, groups=4)
        self.norm = Merging(4)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("last", torch.zeros(4))
        self.layer = self.scale = None
        self.fails, self.length = fails, 0

    def forward(self, x):
        self.calls += 1
        self.last = x.mean((0, 2)) + torch.randn(4)
        self.register_buffer("cached", x)
        self.layer, self.scale = nn.Identity(), nn.Parameter(torch.ones(1))
        self.length = self.more = x.shape[-1]
        if self.fails:
            raise RuntimeError("on purpose")
        return self.norm(self.conv(x))


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_changes_when_it_runs_is_as_it_was_after_tracing(fails):
    net = Restless(fails)
    net.norm.eval()
    before, buffers = {name: tensor.clone() for name, tensor in net.state_dict().items()}, dict(net._buffers)
    attributes = set(vars(net))
    random = torch.get_rng_state()
    with pytest.raises(ModelError, match="on purpose") if fails else nullcontext():
        fc.depthwise_layers(net, (torch.ones(2, 4, 9),))
    assert list(net._buffers) == ["calls", "last"]
    assert list(net.state_dict()) == list(before)
    assert (set(vars(net)), net.layer, net.scale, net.length) == (attributes, None, None, 0)
    assert all(net._buffers[name] is buffer for name, buffer in buffers.items())
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert (net.training, net.conv.training, net.norm.training) == (True, True, False)
    assert not any(module._forward_hooks for module in net.modules())
