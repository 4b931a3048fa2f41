"""Weights that are not plain parameters: each works, or is refused by name with nothing changed."""

import subprocess
import sys
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper
from torch.nn.utils import parametrizations, parametrize, prune

import filtercov as fc
from filtercov.errors import ModelError
from filtercov.layers.assign import assign_filters_
from filtercov.nn import accelerate_


def depthwise(channels=8, kernel_size=5, **kwargs):
    return nn.Conv2d(channels, channels, kernel_size, groups=channels, **kwargs)


def old_style(function, layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.nn.utils.weight_norm is deprecated
        return function(layer)


def state(net):
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def unchanged(net, before):
    return all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        return x


class Halved(Doubled):
    def right_inverse(self, x):
        return x / 2


class Blended(Doubled):
    """Keeps what it was given, and moves it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("writes", torch.zeros(()))

    def right_inverse(self, x):
        self.writes += 1
        return x


@pytest.mark.parametrize(
    "wrap",
    [
        parametrizations.spectral_norm,
        lambda layer: parametrizations.orthogonal(layer),
        lambda layer: parametrize.register_parametrization(layer, "weight", Doubled()),
        lambda layer: parametrize.register_parametrization(layer, "weight", Blended()),
        lambda layer: old_style(nn.utils.spectral_norm, layer),
        lambda layer: old_style(nn.utils.weight_norm, layer),
    ],
    ids=["spectral_norm", "orthogonal", "doubled", "with a buffer", "old spectral_norm", "old weight_norm"],
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


@pytest.mark.parametrize("refused", [False, True])
def test_parameters_behind_a_weight_stay_where_they_lie_in_memory(refused):
    """Where optimisers, averages and views of them look for them; and in their layout."""
    net = nn.Sequential(parametrizations.weight_norm(depthwise()), depthwise()).to(memory_format=torch.channels_last)
    if refused:
        parametrizations.spectral_norm(net[1])
    places = {name: (parameter.data_ptr(), parameter.stride()) for name, parameter in net.named_parameters()}
    directions = net[0].parametrizations.weight.original1.detach()  # of the same memory
    before = state(net)
    with pytest.raises(ModelError, match=r"^1: ") if refused else nullcontext():
        fc.init_(net, seed=0)
    assert {name: (parameter.data_ptr(), parameter.stride()) for name, parameter in net.named_parameters()} == places
    assert torch.equal(net[0].parametrizations.weight.original1, directions)
    assert unchanged(net, before) == refused


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


@pytest.mark.parametrize("change", [fc.depthwise_layers, fc.init_, fc.freeze_, fc.FilterStatistics.from_model])
def test_a_lazy_layer_that_may_turn_out_depthwise_is_refused_by_name(change):
    net = nn.Sequential(depthwise(), nn.Sequential(nn.LazyConv2d(8, 5, groups=8)))
    with pytest.raises(ModelError, match=r"^1\.0: needed a layer that knows its channels, got a LazyConv2d"):
        change(net)
    net(torch.zeros(1, 8, 16, 16))
    assert [layer.name for layer in fc.depthwise_layers(net)] == ["0", "1.0"]


def test_a_lazy_dense_layer_is_left_alone_and_not_initialised_by_tracing():
    net = nn.Sequential(nn.LazyConv2d(8, 1), depthwise(), nn.LazyBatchNorm2d())
    assert [layer.name for layer in fc.depthwise_layers(net)] == ["1"]
    with pytest.raises(ModelError, match=r"^0: needed a layer that knows its channels"):
        fc.depthwise_layers(net, torch.zeros(1, 3, 16, 16))
    assert net[0].has_uninitialized_params()


def test_accelerating_a_lazy_model_is_refused_before_anything_changes():
    net = nn.Sequential(depthwise(), nn.LazyConv2d(8, 5, groups=8))
    with pytest.raises(ModelError, match="accelerate_: 1 is a LazyConv2d that has seen no input yet"):
        accelerate_(net)
    assert type(net[0]) is nn.Conv2d


class Opaque(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") == "numpy":
            raise NotImplementedError("opaque")
        return super().__torch_function__(function, types, args, kwargs or {})


def with_weight(change):
    layer = depthwise()
    layer.weight = nn.Parameter(change(layer.weight.detach()), requires_grad=False)
    return nn.Sequential(layer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weight: weight.as_subclass(Opaque), "^0: needed a weight of plain numbers, but a .* cannot be turned"),
        (lambda weight: weight.to(torch.complex64), "^0: needed a floating-point weight, got torch.complex64"),
        (lambda weight: weight.to("meta"), "^0: needed a weight with storage"),
        (lambda weight: weight.flatten(), r"^0: needed its whole weight \(8, 1, 5, 5\), got \(200,\)"),
    ],
    ids=["subclass", "complex", "meta", "flattened"],
)
def test_a_weight_without_plain_numbers_is_refused_by_name(change, message):
    with pytest.raises(ModelError, match=message):
        fc.FilterStatistics.from_model(with_weight(change))
    with pytest.raises(ModelError, match=r"^0: "):
        fc.init_(with_weight(change))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    "change",
    [torch.Tensor.to_sparse, lambda weight: torch.quantize_per_tensor(weight, 1 / 128, 0, torch.qint8)],
    ids=["sparse", "quantised"],
)
def test_a_weight_that_stands_for_numbers_is_measured_but_not_written(change):
    net = with_weight(lambda weight: change((weight * 128).round() / 128))
    expected = net[0].weight.dequantize() if net[0].weight.is_quantized else net[0].weight.to_dense()
    np.testing.assert_array_equal(
        fc.FilterStatistics.from_model(net).layers[0].mean, expected.double().mean(0).flatten().numpy()
    )
    with pytest.raises(ModelError, match=r"^0: "):
        fc.init_(net)


def test_convolutions_that_are_not_pytorchs_are_left_out_with_a_note():
    class Conditional(nn.Module):
        def __init__(self):
            super().__init__()
            self.in_channels = self.out_channels = self.groups = 8
            self.kernel_size = (3, 3)

    net = nn.Sequential(depthwise(), Conditional())
    [note] = fc.FilterStatistics.from_model(net).notes
    assert note.startswith("left out 1, a ")
    with pytest.raises(ModelError, match=r"found none .*left out 0, a .*Conditional"):
        fc.depthwise_layers(nn.Sequential(Conditional()))


def test_a_block_that_says_what_the_convolution_inside_it_is_needs_no_note():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.in_channels, self.groups, self.kernel_size = 8, 8, 5
            self.conv = nn.Sequential(depthwise(), nn.BatchNorm2d(8))

    statistics = fc.FilterStatistics.from_model(nn.Sequential(Block()))
    assert [layer.name for layer in statistics] == ["0.conv.0"]
    assert statistics.notes == ()


def test_a_layer_that_keeps_its_kernel_size_as_one_number_is_found():
    layer = depthwise()
    layer.kernel_size = 5
    [found] = fc.depthwise_layers(layer)
    assert found.kernel_size == (5, 5)
    assert fc.init_(layer, seed=0)[0].initialised


SHARDED = """
import sys, warnings
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
import filtercov as fc

torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
nets = []
for _ in range(2):
    torch.manual_seed(0)
    nets.append(nn.Sequential(*(nn.Conv2d(8, 8, 5, groups=8) for _ in range(2))))
plain, sharded = nets
fully_shard(sharded, mesh=torch.distributed.init_device_mesh("cpu", (1,)))
assert type(sharded[0].weight).__name__ == "DTensor"

def same():
    return all(torch.equal(a.weight, b.weight.full_tensor()) for a, b in zip(plain, sharded))

def measured(net):
    return [layer.covariance.tobytes() for layer in fc.FilterStatistics.from_model(net).layers]

assert measured(plain) == measured(sharded)
for options in ({}, {"scale": "match"}):
    for net in nets:
        fc.init_(net, generator=torch.Generator().manual_seed(0), **options)
    assert same()
fc.covariance_normal_(sharded[0].weight, fc.gaussian_covariance(5, 1.0))
assert not same()
fc.copy_filters_(plain, sharded)
assert same()
fc.init_(plain)
fc.copy_filters_(sharded, plain)
assert same()
torch.save(sharded.state_dict(), f"{sys.argv[1]}/net.pth")
try:
    fc.FilterStatistics.from_checkpoint(f"{sys.argv[1]}/net.pth")
except fc.FiltercovError as error:
    assert "0.weight is no plain tensor" in str(error), error
else:
    raise AssertionError("shards of a weight were taken for the whole")
torch.distributed.destroy_process_group()
print("done")
"""


def test_sharded_weights_are_measured_and_written_like_plain_ones(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", SHARDED, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.stdout == "done\n", ended.stderr


def without_parameter(layer):
    layer.register_parameter("weight", None)


def without_attribute(layer):
    del layer.weight


@pytest.mark.parametrize("use", [fc.init_, fc.FilterStatistics.from_model, fc.freeze_])
@pytest.mark.parametrize("take_away", [without_parameter, without_attribute])
def test_a_layer_without_a_weight_is_refused_by_name(use, take_away):
    net = nn.Sequential(depthwise(), depthwise())
    take_away(net[1])
    with pytest.raises(
        ModelError, match=r"^1: needed a (convolution with a weight, got one without|weight of its own)"
    ):
        use(net)
    assert net[0].weight.requires_grad


def test_a_weight_with_the_negative_bit_is_measured_as_what_it_shows():
    net = nn.Sequential(depthwise()).double()
    expected = fc.FilterStatistics.from_model(net).layers[0].mean
    net[0].weight = nn.Parameter(torch._neg_view(-net[0].weight.detach()))
    np.testing.assert_array_equal(fc.FilterStatistics.from_model(net).layers[0].mean, expected)


class Raises(nn.Module):
    """Has a property that cannot be computed."""

    in_channels, kernel_size = 8, (3, 3)

    @property
    def groups(self):
        raise RuntimeError("not yet")


@pytest.mark.parametrize("wrap", [lambda layer: nn.Sequential(layer, Raises()), checkpoint_wrapper, offload_wrapper])
def test_wrappers_and_properties_that_raise_are_no_convolutions(wrap):
    statistics = fc.FilterStatistics.from_model(nn.Sequential(wrap(depthwise())))
    assert len(statistics.layers) == 1
    assert statistics.notes == ()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_convolution_is_left_out_with_a_note():
    net = nn.Sequential(depthwise(), torch.jit.script(depthwise()))
    [note] = fc.FilterStatistics.from_model(net).notes
    assert note.startswith("left out 1, a torch.jit.")
