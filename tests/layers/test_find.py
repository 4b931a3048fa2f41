"""The depthwise layers of a model: which they are, their order and names, and weights that are not plain parameters."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.utils import parametrizations, parametrize, prune

import filtercov as fc
from filtercov.errors import ModelError
from filtercov.layers.assign import assign_filters_
from filtercov.layers.find import unwrap
from filtercov.nn import DepthwiseConv2d


def depthwise(channels=8, kernel_size=5, kind=nn.Conv2d, **kwargs):
    return kind(channels, channels, kernel_size, groups=channels, **kwargs)


def names(net, example=None):
    return [layer.name for layer in fc.depthwise_layers(net, example)]


def state(net):
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def unchanged(net, before):
    return all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


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
    net[8].kernel_size = (3, 5, 5)
    net[7].kernel_size = 11  # as some subclasses keep it
    found = fc.depthwise_layers(net)
    assert [layer.name for layer in found] == ["3", "4", "6", "7", "8"]
    assert [layer.kernel_size for layer in found] == [(5, 5), (5, 5), (5, 5), (11,), (3, 5, 5)]
    assert [layer.channels for layer in found] == [8, 24, 1, 8, 8]
    assert [(layer.index, layer.depth) for layer in found] == [(0, 0.0), (1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    assert found[1].weight is net[4].weight


class OutOfOrder(nn.Module):
    """Registers its layers in the opposite order of their execution."""

    def __init__(self):
        super().__init__()
        self.last = depthwise(padding=2)
        self.first = depthwise(padding=2)
        self.unused = depthwise(padding=2)

    def forward(self, x):
        return self.last(self.first(self.first(x)))


def test_an_example_input_traces_the_order_of_execution():
    net = OutOfOrder()
    assert names(net) == ["last", "first", "unused"]
    for example in (torch.zeros(2, 8, 6, 6), {"x": torch.zeros(2, 8, 6, 6)}):
        assert names(torch.compile(net), example) == ["first", "last", "unused"]
    with pytest.raises(ModelError, match="example_input"):
        fc.depthwise_layers(net, torch.zeros(2, 3, 6, 6))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3)), "Sequential: needed at least one depthwise convolution"),
        ({"a": torch.ones(1)}, "got a state dict; pass the model it belongs to"),
        ({"a": 1}, "got dict"),
        (nn.Conv2d, "got the class Conv2d; make one first"),
        ("net.pth", "FilterStatistics.from_checkpoint"),
        (None, "got NoneType"),
    ],
    ids=repr,
)
def test_what_is_no_model_with_depthwise_layers_is_refused(wrong, said):
    with pytest.raises(ModelError, match=said):
        fc.depthwise_layers(wrong)


class Beside(nn.Module):
    """Has a layer in a submodule called module, and one of the same name beside it."""

    def __init__(self):
        super().__init__()
        self.module = nn.ModuleDict({"dw": depthwise(8)})
        self.dw = depthwise(16)


def test_names_are_free_of_wrappers_and_no_two_become_one():
    net = nn.Sequential(depthwise(), nn.Sequential(checkpoint_wrapper(depthwise())))
    net[1] = torch.compile(net[1])
    for wrapped in (torch.compile(net), nn.DataParallel(torch.compile(net)), torch.optim.swa_utils.AveragedModel(net)):
        assert names(wrapped) == ["0", "1.0"]
    assert unwrap(nn.DataParallel(torch.compile(net))) is net
    for wrap in (nn.Module.train, nn.DataParallel):
        assert [(layer.name, layer.channels) for layer in fc.depthwise_layers(wrap(Beside()))] == [
            ("module.dw", 8),
            ("dw", 16),
        ]


def test_distributed_models_are_named_as_the_model_inside(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(nn.Sequential(depthwise(), depthwise()))
        assert names(wrapped) == ["0", "1"]
        assert len(fc.init_(wrapped).initialised) == 2
    finally:
        torch.distributed.destroy_process_group()


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


class Conditional(nn.Module):
    def __init__(self, **attributes):
        super().__init__()
        self.in_channels = self.groups = 8
        self.kernel_size = (3, 3)
        for name, value in attributes.items():
            setattr(self, name, value)


def test_convolutions_that_are_not_pytorchs_are_left_out_with_a_note():
    others = [Conditional(groups=4), Conditional(groups=1, in_channels=1)]
    net = nn.Sequential(depthwise(), Conditional(), *others, Conditional(conv=depthwise()))
    measured = fc.FilterStatistics.from_model(net)
    assert [layer.name for layer in measured] == ["0", "4.conv"]
    [note] = measured.notes
    assert note.startswith("left out 1, a ")
    with pytest.raises(ModelError, match=r"found none .*left out 0, a .*Conditional"):
        fc.depthwise_layers(nn.Sequential(Conditional()))


def test_freezing_touches_the_filters_and_nothing_else():
    net = nn.Sequential(depthwise(), nn.BatchNorm2d(8), parametrizations.weight_norm(depthwise(kernel_size=3)))
    assert fc.freeze_(net) is net
    frozen = [name for name, p in net.named_parameters() if not p.requires_grad]
    assert frozen == ["0.weight", *(f"2.parametrizations.weight.original{i}" for i in range(2))]
    with pytest.raises(ModelError, match="needed a convolution with a weight"):
        fc.freeze_(without_parameter(nn.Sequential(depthwise())))


# --- Weights that are computed, sparse, quantised or shared ---


def old_style(function, layer):
    with warnings.catch_warnings(action="ignore"):  # torch.nn.utils.weight_norm is deprecated
        return function(layer)


class Doubled(nn.Module):
    """A parametrisation whose inverse is wrong, and which counts how often it is asked for it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("writes", torch.zeros(()))

    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        self.writes += 1
        return x


class Halved(Doubled):
    def right_inverse(self, x):
        return x / 2


@pytest.mark.parametrize(
    "wrap",
    [
        parametrizations.spectral_norm,
        lambda layer: parametrize.register_parametrization(layer, "weight", Doubled()),
        lambda layer: prune.random_unstructured(layer, "weight", 0.5),
    ],
    ids=["spectral_norm", "doubled", "prune"],
)
def test_a_weight_that_does_not_keep_what_is_written_is_refused_and_restored(wrap):
    torch.manual_seed(0)
    net = nn.Sequential(depthwise(32), wrap(depthwise(32)), depthwise(32))
    before = state(net)
    with pytest.raises(ModelError, match=r"^1: "):
        fc.init_(net)
    assert unchanged(net, before)
    assert len(fc.init_(net, filter_fn=lambda layer: layer.name != "1").initialised) == 2


def test_a_shared_weight_is_restored_to_what_it_was_before_its_first_writing():
    net = nn.Sequential(depthwise(), depthwise(), parametrizations.spectral_norm(depthwise()))
    net[1].weight = net[0].weight
    before = state(net)
    layers = fc.depthwise_layers(net)
    with pytest.raises(ModelError, match=r"^2: "):
        assign_filters_(layers, [torch.randn_like(layer.weight) for layer in layers])
    assert unchanged(net, before)


def test_a_parametrisation_with_a_true_inverse_is_written_through():
    plain, halved = nn.Sequential(depthwise()), nn.Sequential(depthwise())
    parametrize.register_parametrization(halved[0], "weight", Halved())
    for net in (plain, halved):
        fc.init_(net, generator=torch.Generator().manual_seed(0))
    assert torch.equal(plain[0].weight, halved[0].weight)


def test_measuring_a_spectral_norm_does_not_move_it():
    torch.manual_seed(0)
    net = nn.Sequential(parametrizations.spectral_norm(depthwise()))
    before = state(net)
    fc.FilterStatistics.from_model(net)
    assert unchanged(net, before)
    assert net[0].parametrizations.weight[0].training


@pytest.mark.parametrize(
    "wrap",
    [
        lambda layer: old_style(nn.utils.weight_norm, layer),
        lambda layer: old_style(nn.utils.spectral_norm, layer),
        lambda layer: prune.random_unstructured(layer, "weight", 0.5),
    ],
    ids=["weight_norm", "spectral_norm", "prune"],
)
def test_a_weight_that_a_hook_computes_is_measured_as_the_next_call_uses_it(wrap):
    torch.manual_seed(0)
    net = nn.Sequential(wrap(depthwise())).eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter)  # the attribute `weight` still holds what the last call computed
    measured = fc.FilterStatistics.from_model(net).layers[0]
    net(torch.zeros(1, 8, 9, 9))
    used = net[0].weight.detach().double().reshape(8, -1).numpy()
    np.testing.assert_allclose(measured.mean, used.mean(0), rtol=1e-5, atol=1e-7)


def with_weight(change):
    layer = depthwise()
    layer.weight = nn.Parameter(change(layer.weight.detach()), requires_grad=False)
    return nn.Sequential(layer)


def without_parameter(net):
    net[0].register_parameter("weight", None)
    return net


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_weight(lambda weight: weight.to(torch.complex64)),
        lambda: with_weight(lambda weight: weight.to("meta")),
        lambda: with_weight(lambda weight: weight.flatten()),
        lambda: without_parameter(nn.Sequential(depthwise())),
    ],
    ids=["complex", "meta", "flattened", "none"],
)
def test_a_weight_without_plain_numbers_is_refused_by_name(make):
    for use in (fc.FilterStatistics.from_model, fc.init_):
        with pytest.raises(ModelError, match=r"^0: "):
            use(make())


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (torch.Tensor.to_sparse, torch.Tensor.to_dense),
        (lambda weight: torch.quantize_per_tensor(weight, 1 / 128, 0, torch.qint8), torch.Tensor.dequantize),
        (torch._neg_view, torch.clone),
    ],
    ids=["sparse", "quantised", "negative bit"],
)
def test_a_weight_that_stands_for_numbers_is_measured_as_what_it_shows(change, shown):
    net = with_weight(lambda weight: change((weight * 128).round() / 128))
    np.testing.assert_array_equal(
        fc.FilterStatistics.from_model(net).layers[0].mean, shown(net[0].weight).double().mean(0).flatten().numpy()
    )
