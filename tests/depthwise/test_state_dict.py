"""What a state dict alone tells: which of its weights are depthwise, which are tied, and what was a guess."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import prune

import filtercov as fc
from filtercov.errors import CheckpointError
from filtercov.nn import DepthwiseConv2d


def depthwise(channels=8, kernel_size=5, kind=nn.Conv2d, **kwargs):
    return kind(channels, channels, kernel_size, groups=channels, **kwargs)


def saved(net, folder):
    torch.save(net.state_dict(), folder / "net.pth")
    return folder / "net.pth"


def names(statistics):
    return [layer.name for layer in statistics.layers]


class Named(nn.Module):
    """A network with modules of any names, in their order."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


def channel_attention():
    return Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise(), eca=nn.Conv1d(1, 1, 3), pa=nn.Conv2d(1, 1, 3))


def transposed_to_one_channel():
    return Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise(), last=nn.ConvTranspose2d(8, 1, 5))


def transposed_by_name():
    return Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise(), deconv=nn.ConvTranspose2d(8, 8, 5, groups=8))


def upsampling():
    return Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise(), up_1=nn.ConvTranspose2d(8, 8, 4, groups=8, bias=False))


def upsampling_by_no_name():
    return Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise(), grow=nn.ConvTranspose2d(8, 8, 4, 2, groups=8))


def norms_over_channels():
    return Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise(), norm=nn.LayerNorm((8, 1, 1)))


def norms_without_bias():
    return Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise(), norm=nn.LayerNorm((8, 1, 1), bias=False))


def grey_images():
    return Named(stem=nn.Sequential(nn.Conv2d(1, 8, 5)), dw=depthwise(), pw=nn.Conv2d(8, 8, 1), dw2=depthwise())


def grey_images_without_a_stem_by_name():
    block = Named(dw=depthwise(), pw=nn.Conv2d(8, 8, 1))
    return nn.Sequential(nn.Sequential(nn.Conv2d(1, 8, 5)), nn.Sequential(block), nn.Conv2d(8, 8, 1))


def multiplier():
    return Named(stem=nn.Conv2d(3, 8, 3), dw=nn.Conv2d(8, 24, 5, groups=8), line=depthwise(kind=nn.Conv1d))


def depthwise_first():
    return nn.Sequential(depthwise(), depthwise(), nn.Conv2d(8, 16, 1))


def one_shared_module():
    net = Named(stem=nn.Conv2d(3, 8, 3), first=depthwise(), second=depthwise())
    net.alias = net.first
    return net


def one_shared_weight():
    net = Named(stem=nn.Conv2d(3, 8, 3), first=depthwise(), second=depthwise())
    net.second.weight = net.first.weight
    return net


def equal_weights():
    net = Named(stem=nn.Conv2d(3, 8, 3), first=depthwise(), second=depthwise(), third=depthwise())
    net.second.load_state_dict(net.first.state_dict())
    nn.init.zeros_(net.third.weight)
    return net


@pytest.mark.parametrize(
    "build",
    [
        channel_attention,
        transposed_to_one_channel,
        transposed_by_name,
        upsampling,
        norms_over_channels,
        norms_without_bias,
        grey_images,
        grey_images_without_a_stem_by_name,
        multiplier,
        depthwise_first,
        one_shared_module,
        one_shared_weight,
        equal_weights,
        depthwise,  # a bare layer, whose name is empty
    ],
)
def test_a_state_dict_gives_the_layers_of_its_model(build, tmp_path):
    torch.manual_seed(0)
    net = build()
    expected = fc.FilterStatistics.from_model(net)
    path = saved(net, tmp_path)
    for statistics in (fc.FilterStatistics.from_checkpoint(path), fc.FilterStatistics.from_checkpoint(path, like=net)):
        assert names(statistics) == names(expected)
        for a, b in zip(statistics.layers, expected.layers, strict=True):
            assert (a.covariance == b.covariance).all()


@pytest.mark.parametrize(
    ("build", "note"),
    [
        (channel_attention, "eca, pa counted as dense, one channel to one"),
        (transposed_by_name, "deconv counted as transposed"),
        (upsampling, "up_1 counted as transposed"),
        (upsampling_by_no_name, "grow may be transposed: shape alone cannot tell, and even kernels often are"),
        (norms_without_bias, "norm counted as a norm or a scale, one number for each channel"),
        (grey_images, "stem.0 counted as dense, of one-channel images"),
        (one_shared_module, "alias is tied to first; counted once"),
        (equal_weights, "second equals first in every number; counted as a layer of its own"),
    ],
)
def test_what_a_state_dict_leaves_open_is_noted_and_a_model_decides_it(build, note, tmp_path):
    torch.manual_seed(0)
    net = build()
    path = saved(net, tmp_path)
    [found] = fc.FilterStatistics.from_checkpoint(path).notes
    assert found.startswith(note)
    assert fc.FilterStatistics.from_checkpoint(path, like=net).notes == ()


def test_a_norm_with_a_bias_of_its_own_shape_needs_no_note(tmp_path):
    assert fc.FilterStatistics.from_checkpoint(saved(norms_over_channels(), tmp_path)).notes == ()


@pytest.mark.parametrize("shape", [(1, 8, 1, 1), (8, 1, 1), ()])
def test_a_bias_of_another_shape_is_no_sign_of_a_transposed_layer(shape, tmp_path):
    tensors = {
        "stem.weight": torch.ones(8, 3, 3, 3),
        "dw.weight": torch.randn(8, 1, 5, 5),
        "dw.bias": torch.ones(shape),
    }
    torch.save(tensors, tmp_path / "net.pth")
    assert names(fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth")) == ["dw"]


def test_a_network_of_width_one_is_measured_with_its_model_only(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 1, 1), DepthwiseConv2d(1, 1, 5), DepthwiseConv2d(1, 1, 5))
    path = saved(net, tmp_path)
    with pytest.raises(CheckpointError, match=r"found none .*1, 2 counted as dense.*pass like=model"):
        fc.FilterStatistics.from_checkpoint(path)
    assert names(fc.FilterStatistics.from_checkpoint(path, like=net)) == ["1", "2"]


def test_a_network_without_depthwise_layers_is_refused_as_its_model_is(tmp_path):
    net = Named(conv1=nn.Conv2d(1, 8, 3), conv2=nn.Conv2d(8, 8, 3), eca=nn.Conv1d(1, 1, 3))
    with pytest.raises(CheckpointError, match="found none"):
        fc.FilterStatistics.from_checkpoint(saved(net, tmp_path))


@pytest.mark.parametrize(
    "wrap", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm]
)
def test_a_parametrised_weight_is_refused_by_name(wrap, tmp_path):
    net = Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise(), other=wrap(depthwise()))
    with pytest.raises(CheckpointError, match=r"that of other is stored as what a parametrisation makes it of"):
        fc.FilterStatistics.from_checkpoint(saved(net, tmp_path))


@pytest.mark.parametrize("wrap", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_a_parametrised_weight_is_computed_with_its_model(wrap, tmp_path):
    torch.manual_seed(0)
    net, other = (Named(stem=nn.Conv2d(3, 8, 3), dw=wrap(depthwise())) for _ in range(2))
    statistics = fc.FilterStatistics.from_checkpoint(saved(net, tmp_path), like=other)
    expected = fc.FilterStatistics.from_model(net)
    assert (statistics.layers[0].covariance == expected.layers[0].covariance).all()
    assert (statistics.layers[0].covariance != fc.FilterStatistics.from_model(other).layers[0].covariance).any()


HOOKED = {
    "weight_norm": nn.utils.weight_norm,
    "weight_norm of a row": lambda layer: nn.utils.weight_norm(layer, dim=2),
    "weight_norm of all": lambda layer: nn.utils.weight_norm(layer, dim=None),
    "spectral_norm": nn.utils.spectral_norm,
    "prune": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("wrap", HOOKED.values(), ids=HOOKED)
def test_a_weight_that_a_hook_computes_is_computed_with_its_model(wrap, tmp_path):
    torch.manual_seed(0)
    net, hooked, plain = (Named(stem=nn.Conv2d(3, 8, 3), dw=make(depthwise())) for make in (wrap, wrap, lambda x: x))
    if "weight_g" in dict(net.dw.named_parameters()):
        net.dw.weight_g.data *= 3
    path = saved(net, tmp_path)
    with pytest.raises(CheckpointError, match="pass like=model"):
        fc.FilterStatistics.from_checkpoint(path)
    expected = fc.FilterStatistics.from_model(net)[0].covariance
    for like in (hooked, plain):
        [layer] = fc.FilterStatistics.from_checkpoint(path, like=like)
        np.testing.assert_allclose(layer.covariance, expected, atol=1e-5 * expected.max())


@pytest.mark.parametrize(
    "parts",
    [
        {"weight_orig": (8, 1, 5, 5), "weight_mask": (8, 8, 5, 5)},
        {"weight_v": (8, 1, 5, 5), "weight_g": (8, 9, 1, 1)},
        {"weight_v": (8, 1, 5, 5), "weight_g": (8,)},
        {"weight_orig": (), "weight_u": (8,), "weight_v": (25,)},
        {"weight_orig": (8, 1, 5, 5), "weight_u": (8,), "weight_v": (24,)},
    ],
)
def test_parts_that_make_no_weight_are_none(parts, tmp_path):
    torch.save({f"dw.{name}": torch.ones(shape) for name, shape in parts.items()}, tmp_path / "net.pth")
    with pytest.raises(CheckpointError, match=r"needed dw\.weight .* found none"):
        fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth", like=Named(dw=depthwise()))


def test_a_model_on_the_meta_device_is_enough(tmp_path):
    net = Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise())
    with torch.device("meta"):
        like = Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise())
    assert names(fc.FilterStatistics.from_checkpoint(saved(net, tmp_path), like=like)) == ["dw"]


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
@pytest.mark.parametrize("more", [{}, {"norm": nn.BatchNorm2d(8)}])
def test_a_submodule_called_module_keeps_its_name_where_another_is_called_so(prefix, more, tmp_path):
    torch.manual_seed(0)
    alike = {"norm" if more else "dw": nn.BatchNorm2d(8) if more else depthwise()}
    net = Named(module=Named(dw=depthwise(), **more), last=depthwise(), **alike)
    expected = fc.FilterStatistics.from_model(net)
    assert names(expected)[0] == "module.dw"
    torch.save({prefix + name: tensor for name, tensor in net.state_dict().items()}, tmp_path / "net.pth")
    for like in (None, net):
        statistics = fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth", like=like)
        assert names(statistics) == names(expected)
        assert statistics.notes == ()
        for a, b in zip(statistics, expected, strict=True):
            assert (a.covariance == b.covariance).all()


def test_a_layer_called_module_is_found_with_its_model(tmp_path):
    net = Named(stem=nn.Conv2d(3, 8, 3), module=depthwise())
    statistics = fc.FilterStatistics.from_checkpoint(saved(net, tmp_path), like=net)
    assert names(statistics) == ["module"]
    assert statistics.notes == ()


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (Named(deeper=depthwise()), r"needed deeper\.weight as the Named given as like has it, found none among its 4"),
        (Named(dw=depthwise(kernel_size=7)), r"dw needs a weight \(8, 1, 7, 7\) .*the file has \(8, 1, 5, 5\)"),
    ],
)
def test_a_model_of_another_architecture_is_refused(like, message, tmp_path):
    path = saved(Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise()), tmp_path)
    with pytest.raises(CheckpointError, match=message):
        fc.FilterStatistics.from_checkpoint(path, like=like)


@pytest.mark.parametrize("holder", ["backbone", "stages"])
def test_layers_that_lie_under_other_names_are_matched_in_order_and_noted(holder, tmp_path):
    torch.manual_seed(0)
    blocks = [Named(dw=depthwise(), mlp=nn.Conv2d(8, 8, 1)) for _ in range(12)]
    net = Named(stem=nn.Conv2d(3, 8, 3), blocks=nn.Sequential(*blocks))
    path = tmp_path / "renamed.safetensors"
    save_file({name.replace("blocks", f"{holder}.block"): t for name, t in net.state_dict().items()}, path)
    found, expected = fc.FilterStatistics.from_checkpoint(path, like=net), fc.FilterStatistics.from_model(net)
    assert names(found) == names(expected)
    assert all((a.covariance == b.covariance).all() for a, b in zip(found.layers, expected.layers, strict=True))
    assert found.notes == (
        f"the file has other names, {holder}.block.0.dw for blocks.0.dw: layers were matched by their order and shapes",
    )


def test_averages_of_layers_under_other_names_are_noted(tmp_path):
    net = Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise())
    flat = {p + name.replace("dw", "b.dw"): t for p in ("model.", "model_ema.") for name, t in net.state_dict().items()}
    torch.save(flat, tmp_path / "net.pth")
    notes = fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth", like=net).notes
    assert [note.partition(",")[0] for note in notes] == ["left out model_ema.b.dw", "the file has other names"]


def test_renamed_layers_of_other_shapes_are_refused(tmp_path):
    path = saved(Named(stem=nn.Conv2d(3, 8, 3), old=Named(dw=depthwise())), tmp_path)
    for like in (Named(new=Named(dw=depthwise(kernel_size=7))), Named(new=Named(dw=depthwise(), second=depthwise()))):
        with pytest.raises(CheckpointError, match=r"needed new\.dw\.weight as the Named given as like has it"):
            fc.FilterStatistics.from_checkpoint(path, like=like)


def test_weights_that_the_model_does_not_know_are_noted(tmp_path):
    path = saved(Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise(), more=depthwise()), tmp_path)
    statistics = fc.FilterStatistics.from_checkpoint(path, like=Named(stem=nn.Conv2d(3, 8, 3), dw=depthwise()))
    assert statistics.notes == ("left out more, unknown to the model given as like",)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    ("form", "message"),
    [
        (lambda weight: weight.to(torch.int8), r"dw: needed a floating-point weight, got torch\.int8"),
        (lambda weight: weight.to(torch.complex64), r"dw: needed a floating-point weight, got torch\.complex64"),
        (lambda weight: weight.to("meta"), r"dw\.weight is no plain tensor but made by .*meta"),
        (torch.Tensor.to_sparse, r"dw\.weight is no plain tensor but made by .*sparse"),
        (lambda weight: torch.quantize_per_tensor(weight, 1 / 128, 0, torch.qint8), r"dw\.weight is no plain.*qtensor"),
    ],
)
def test_weights_that_are_no_numbers_are_refused_by_name(form, message, tmp_path):
    torch.save({"stem.weight": torch.ones(8, 3, 3, 3), "dw.weight": form(torch.ones(8, 1, 5, 5))}, tmp_path / "net.pth")
    with pytest.raises(CheckpointError, match=message):
        fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth")
