from contextlib import nullcontext

import pytest
import torch
from torch import nn

import filtercov as fc
from filtercov.errors import ModelError
from filtercov.layer_names import clean_name
from filtercov.nn import DepthwiseConv2d


def depthwise(channels=8, kernel_size=5, kind=nn.Conv2d, **kwargs):
    return kind(channels, channels, kernel_size, groups=channels, **kwargs)


class OutOfOrder(nn.Module):
    """Registers its layers in the opposite order of their execution."""

    def __init__(self):
        super().__init__()
        self.last = depthwise(padding=2)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.first = depthwise(padding=2)
        self.unused = depthwise(padding=2)

    def forward(self, x):
        return self.last(self.drop(self.norm(self.first(x))))


def test_only_convolutions_with_one_input_channel_per_group_are_depthwise():
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5),  # dense, on one-channel images
        nn.Conv2d(8, 8, 5, groups=4),
        nn.ConvTranspose2d(8, 8, 5, groups=8),
        depthwise(),
        nn.Conv2d(8, 24, 5, groups=8),  # channel multiplier 3
        nn.Conv2d(1, 1, 5),  # one channel: might as well be dense, as in channel attention
        DepthwiseConv2d(1, 1, 5),  # a network of width 1
        depthwise(kind=nn.Conv1d, kernel_size=11),
        depthwise(kind=nn.Conv3d, kernel_size=(3, 5, 5)),
    )
    found = fc.depthwise_layers(net)
    assert [layer.name for layer in found] == ["3", "4", "6", "7", "8"]
    assert [layer.kernel_size for layer in found] == [(5, 5), (5, 5), (5, 5), (11,), (3, 5, 5)]
    assert [layer.depth for layer in found] == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_an_example_input_traces_the_order_of_execution():
    net = OutOfOrder()
    assert [layer.name for layer in fc.depthwise_layers(net)] == ["last", "first", "unused"]
    traced = fc.depthwise_layers(net, torch.zeros(2, 8, 6, 6))
    assert [layer.name for layer in traced] == ["first", "last", "unused"]
    assert [layer.depth for layer in traced] == [0.0, 0.5, 1.0]


def test_tracing_leaves_modes_buffers_and_randomness_as_they_were():
    net = OutOfOrder().train()
    net.drop.eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    torch.manual_seed(0)
    state = torch.get_rng_state()
    fc.depthwise_layers(net, (torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(0)),))
    assert torch.equal(torch.get_rng_state(), state)
    assert net.training
    assert net.norm.training
    assert not net.drop.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert not any(module._forward_hooks for module in net.modules())


class Restless(nn.Module):
    """Counts its calls, replaces a buffer, adds one and draws random numbers, whatever its mode; then may fail."""

    def __init__(self, fails=False):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 5, groups=4)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("last", torch.zeros(4))
        self.fails = fails

    def forward(self, x):
        self.calls += 1
        self.last = x.mean((0, 2)) + torch.randn(4)
        self.register_buffer("cached", x)
        if self.fails:
            raise RuntimeError("on purpose")
        return self.conv(x)


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_changes_when_it_runs_is_as_it_was_after_tracing(fails):
    net = Restless(fails)
    buffers = dict(net.named_buffers())
    state = torch.get_rng_state()
    with pytest.raises(ModelError, match="on purpose") if fails else nullcontext():
        fc.depthwise_layers(net, torch.ones(2, 4, 9))
    assert list(net._buffers) == ["calls", "last"]
    assert all(net._buffers[name] is buffer for name, buffer in buffers.items())
    assert not any(buffer.any() for buffer in buffers.values())
    assert torch.equal(torch.get_rng_state(), state)
    assert net.conv.training
    assert not net.conv._forward_hooks


def test_an_example_input_that_does_not_fit_is_refused():
    with pytest.raises(ModelError, match="example_input: running the model on it failed"):
        fc.depthwise_layers(OutOfOrder(), torch.zeros(2, 3, 6, 6))


def test_a_model_without_depthwise_layers_is_refused():
    with pytest.raises(ModelError, match=r"Sequential: needed at least one depthwise convolution .* among its Conv2d"):
        fc.depthwise_layers(nn.Sequential(nn.Conv2d(3, 8, 3)))


def test_names_are_free_of_wrappers():
    net = nn.Sequential(depthwise(), nn.Sequential(depthwise()))
    net[1] = torch.compile(net[1])
    for wrapped in (torch.compile(net), nn.DataParallel(net), nn.DataParallel(torch.compile(net))):
        assert [layer.name for layer in fc.depthwise_layers(wrapped)] == ["0", "1.0"]


def test_a_submodule_called_module_keeps_its_name():
    assert clean_name("blocks.module.dw") == "blocks.module.dw"
    assert clean_name("module.module.blocks.0") == "blocks.0"


class Beside(nn.Module):
    """Has a layer in a submodule called module, and one of the same name beside it."""

    def __init__(self):
        super().__init__()
        self.module = nn.ModuleDict({"dw": depthwise(8)})
        self.dw = depthwise(16)


@pytest.mark.parametrize("wrap", [lambda net: net, nn.DataParallel, torch.optim.swa_utils.AveragedModel])
def test_layers_that_would_have_one_name_keep_their_own(wrap):
    found = fc.depthwise_layers(wrap(Beside()))
    assert [(layer.name, layer.channels) for layer in found] == [("module.dw", 8), ("dw", 16)]


def test_a_report_freezes_the_layer_it_is_about_where_names_are_alike():
    net = Beside()
    fc.freeze_(net, fc.init_(net, filter_fn=lambda layer: layer.channels == 8))
    assert not net.module["dw"].weight.requires_grad
    assert net.dw.weight.requires_grad


def test_freezing_touches_the_filters_and_nothing_else():
    net = nn.Sequential(nn.Conv2d(3, 8, 1), depthwise(), nn.BatchNorm2d(8), depthwise(kernel_size=3))
    assert fc.freeze_(net) is net
    assert [name for name, p in net.named_parameters() if not p.requires_grad] == ["1.weight", "3.weight"]
    fc.thaw_(net, filter_fn=lambda layer: layer.kernel_size == (3, 3))
    assert [name for name, p in net.named_parameters() if not p.requires_grad] == ["1.weight"]
    fc.thaw_(net)
    assert all(p.requires_grad for p in net.parameters())


def test_freezing_a_parametrised_filter_freezes_what_it_is_made_of():
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(depthwise()))
    fc.freeze_(net)
    assert [name for name, p in net.named_parameters() if p.requires_grad] == ["0.bias"]


def test_distributed_models_are_named_as_the_model_inside(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(nn.Sequential(depthwise(), depthwise()))
        assert [layer.name for layer in fc.depthwise_layers(wrapped)] == ["0", "1"]
        assert len(fc.init_(wrapped).initialised) == 2
    finally:
        torch.distributed.destroy_process_group()


class Obliging(nn.Module):
    """Has None for every attribute that it has not."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(depthwise(), depthwise())

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return None


def test_a_model_that_has_none_for_unknown_attributes_is_no_wrapper():
    net = Obliging()
    assert len(fc.init_(net).initialised) == 2
    assert len(fc.FilterStatistics.from_model(net).layers) == 2
    assert not fc.freeze_(net).layers[0].weight.requires_grad
