"""Fused modules: what the plain ones compute, fused where nobody can observe it, and plain everywhere else."""

import copy
import warnings
from functools import partial

import pytest
import torch
from torch import nn

from filtercov.lab import models
from filtercov.lab.models.convmixer import FastResidual, Residual
from filtercov.nn import FusedSequential, accelerate_, restore_
from tests.nn.support import called, double_output_, images, needs_native
from tests.nn.test_norm_act import MODULES
from tests.peers import import_peer

pytestmark = needs_native

TRAIN, EVAL, GELU = "filtercov::batch_norm_act_train", "filtercov::batch_norm_act_eval", "filtercov::gelu"
MLP = "filtercov::norm_mlp_forward"


def sequences(activation="relu", *, first=False, **options):
    """Return layers with a pair at the end, as PyTorch runs them and fused."""
    pair = nn.BatchNorm2d(20, **options), MODULES[activation]()
    plain = nn.Sequential(nn.Conv2d(3, 20, 1), *(reversed(pair) if first else pair))
    if not options:
        for vector in (plain[1 + first].running_mean, plain[1 + first].running_var):
            vector.copy_(torch.rand(20) + 0.5)
    return plain, FusedSequential(*copy.deepcopy(plain))


assert_close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-5)
PAIRS = [*((name, False) for name in MODULES), ("gelu", True)]


# Norms with activations.


@pytest.mark.parametrize(("activation", "first"), PAIRS)
def test_a_pair_is_fused_only_where_nobody_can_observe_it(activation, first):
    x, (plain, fused) = images(4, 3, 7, 7), sequences(activation, first=first)
    assert TRAIN in called(fused, x)
    plain(x)  # as often as the other
    assert_close(fused(x), plain(x))
    assert_close(fused.state_dict(), plain.state_dict())
    for part in (1, 2):
        plain, patched = sequences(activation, first=first)
        hooked = copy.deepcopy(patched)
        hooked[part].register_forward_hook(lambda *_: None)
        assert TRAIN not in called(hooked, x)
        for net in (plain, patched):
            double_output_(net[part])
        assert_close(patched(x), plain(x))
    assert TRAIN not in called(fused, x.contiguous())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert TRAIN not in called(fused, x)
    assert TRAIN not in called(fused.double(), x.double())


@pytest.mark.parametrize(("activation", "first"), PAIRS)
def test_in_evaluation_a_pair_is_fused_without_gradients(activation, first):
    x, (plain, fused) = images(4, 3, 7, 7), sequences(activation, first=first)
    plain.eval(), fused.eval()
    before = copy.deepcopy(fused.state_dict())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert EVAL in called(fused, x)
            assert_close(fused(x), plain(x))
    assert all(torch.equal(fused.state_dict()[name], value) for name, value in before.items())
    assert EVAL not in called(fused, x)  # someone may ask for gradients
    grads = [torch.autograd.grad(net(x).square().sum(), net[1 + first].weight)[0] for net in (plain, fused)]
    assert_close(*grads, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            traced = torch.jit.trace(fused, x)  # which may be made to run elsewhere
        assert "filtercov::" not in str(traced.inlined_graph)
        for net in (plain, fused):
            net[1 + first].running_mean = net[1 + first].running_var = None  # then it normalises by the batch's own
        assert EVAL not in called(fused, x)
        assert_close(fused(x), plain(x))


UNUSUAL = {
    "no counter": {"num_batches_tracked": None},
    "no statistics": {"running_mean": None, "running_var": None},
    "cumulative average": {"momentum": None},
    "not tracked": {"track_running_stats": False},
    "usual": {},
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("changes", UNUSUAL)
def test_statistics_are_kept_as_batch_norm_keeps_them_whatever_it_lacks(changes, first):
    nets = sequences("gelu", first=first)
    for net in nets:
        for name, value in UNUSUAL[changes].items():
            setattr(net[1 + first], name, value)
    for _ in range(3):
        x = images(4, 3, 7, 7) + 1
        assert_close(*(net(x) for net in nets))
    assert_close(*(dict(net.named_buffers()) for net in nets), rtol=1e-5, atol=1e-6)


def test_what_batch_norm_refuses_is_refused():
    for missing in ("running_mean", "running_var"):
        _, fused = sequences()
        setattr(fused[1], missing, None)
        with pytest.raises((RuntimeError, ValueError)):
            fused(images(4, 3, 7, 7))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        sequences()[1](images(1, 3, 1, 1))
    with pytest.raises(ValueError, match="eps"):
        sequences(eps=0.0)[1](images(4, 3, 7, 7))


@pytest.mark.parametrize("first", [True, False])
def test_calls_of_both_kinds_share_one_backward_pass(first, monkeypatch):
    """Multi-crop training: small images go to PyTorch's norm, which keeps the running statistics for its gradient."""
    monkeypatch.undo()  # the thresholds hold
    plain, fused = sequences("gelu", first=first)
    exact = copy.deepcopy(plain).double()
    small, large = images(8, 3, 24, 24), images(8, 3, 64, 64)
    for net in (fused, exact):
        kind = net[0].weight.dtype
        sum(net(x.to(kind)).sin().sum() for x in (small, large)).backward()
    wanted = exact[0].weight.grad
    assert (fused[0].weight.grad - wanted).norm() < 1e-4 * wanted.norm()


def test_small_images_are_left_to_pytorch(monkeypatch):
    monkeypatch.undo()
    assert TRAIN not in called(sequences()[1], images(4, 3, 7, 7))
    assert TRAIN in called(sequences()[1], images(16, 3, 32, 32))
    assert TRAIN in called(sequences("gelu", first=True)[1], images(4, 3, 7, 7))


@pytest.mark.parametrize("act", ["relu", "hard_swish", None])
def test_timms_norm_with_activation_is_fused_and_restored(act):
    layers = import_peer("timm.layers")
    norm = layers.BatchNormAct2d(16, apply_act=act is not None, act_layer=layers.get_act_layer(act or "relu"))
    plain, x = nn.Sequential(nn.Conv2d(3, 16, 1), norm), images(4, 3, 9, 9)
    net = copy.deepcopy(plain)
    assert accelerate_(net).fused == ("1",)
    assert TRAIN in called(net, x)
    plain(x)
    assert_close(net(x), plain(x))
    net[1].drop = nn.Dropout()
    assert TRAIN not in called(net, x)
    with torch.no_grad():
        assert EVAL in called(net.eval(), x)
    net.train()[1].drop.p = 0.0
    assert TRAIN in called(net, x)
    double_output_(net[1].act)
    assert TRAIN not in called(net, x)
    restore_(net)
    assert type(net[1]) is layers.BatchNormAct2d


def test_torchvisions_convolution_norm_and_activation_are_fused_and_restored():
    misc = import_peer("torchvision.ops.misc")
    block = misc.Conv2dNormActivation(8, 8, 3, activation_layer=nn.Hardswish)
    block.append(block[0])  # a layer that is there twice runs twice
    plain, x = nn.Sequential(block), images(4, 8, 12, 12)
    net = copy.deepcopy(plain)
    assert accelerate_(net).fused == ("0.1+2",)
    assert TRAIN in called(net, x)
    assert_close(net(x), plain(x))
    assert restore_(net) == ("0",)
    assert type(net[0]) is misc.Conv2dNormActivation


# GELU.


def test_gelu_is_native_only_where_nobody_can_observe_it():
    plain = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    net, x, seen = copy.deepcopy(plain), torch.randn(3, 4), []
    assert accelerate_(net).changed == {"GELU": ("1",)}
    net[1].register_forward_hook(lambda *_: seen.append(1))
    assert GELU in called(net, x)
    assert seen == [1]  # the module is called, and so are its hooks
    assert_close(net(x), plain(x), rtol=1e-5, atol=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert GELU not in called(net, x)
    assert_close(torch.func.vmap(net)(x), plain(x), rtol=1e-5, atol=1e-6)
    assert GELU not in called(net.double(), x.double())
    restore_(net)
    assert type(net[1]) is nn.GELU


def test_gelus_of_pairs_are_native_where_the_pair_is_not():
    net = nn.Sequential(nn.Conv2d(4, 4, 1), nn.GELU(), nn.BatchNorm2d(4), nn.GELU("tanh"))
    assert accelerate_(net).changed == {"norm and activation": ("1+2",)}
    x = images(2, 4, 5, 6)
    assert GELU not in called(net, x)  # the pair is one operator
    net.eval()
    assert GELU in called(net, x)
    net[1].register_forward_hook(lambda *_: None)
    assert GELU not in called(net, x)
    assert type(net[1]) is nn.GELU


# Residuals of ConvMixer and blocks of ConvNeXt.


def timms_convmixer():
    return import_peer("timm.models.convmixer").ConvMixer(8, 3, kernel_size=5, patch_size=2, num_classes=3)


def timms_convnext(**settings):
    sizes = {"depths": (1, 1, 1, 1), "dims": (8, 12, 16, 24), "patch_size": 1, "num_classes": 3}
    return import_peer("timm.models.convnext").ConvNeXt(**sizes | settings)


MIXER, POINTWISE, BLOCK = "our ConvMixer", "timm's, pointwise", "stages.0.blocks.0"
NETWORKS = {
    MIXER: (lambda: models.create("convmixer_8_3_k5_p2", num_classes=3), TRAIN, 7),
    "timm's ConvMixer": (timms_convmixer, TRAIN, 7),
    "our ConvNeXt": (lambda: models.create("convnext_atto_div8_p1", num_classes=3), MLP, 12),
    "timm's ConvNeXt": (timms_convnext, MLP, 4),
    POINTWISE: (lambda: timms_convnext(conv_mlp=True, kernel_sizes=9), MLP, 4),
    "timm's, dropping branches": (lambda: timms_convnext(conv_mlp=True, drop_path_rate=0.5), MLP, 4),
    "timm's second version": (lambda: timms_convnext(conv_mlp=True, use_grn=True, ls_init_value=None), MLP, 0),
}


def pair(build):
    """Return a network and the same one accelerated; every parameter can be seen in the output."""
    plain = build()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    fast = copy.deepcopy(plain)
    restore_(plain)
    accelerate_(fast)
    return plain, fast


def assert_alike(plain, fast, x):
    outputs = []
    for net in (plain, fast):
        net.zero_grad()
        torch.manual_seed(1)
        outputs.append(net(x))
        outputs[-1].square().sum().backward()
    assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-4)
    for (name, a), b in zip(plain.named_parameters(), fast.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        assert a.grad is None or (a.grad - b.grad).norm() <= 1e-3 * a.grad.norm() + 1e-4, name
    assert_close(list(fast.buffers()), list(plain.buffers()))


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_gradients_and_statistics_are_the_plain_networks(name):
    build, operator, count = NETWORKS[name]
    plain, fast = pair(build)
    x = images(4, 3, 16, 16)
    assert called(copy.deepcopy(fast), x).count(operator) == count
    assert_alike(plain, fast, x)
    for net in (plain, fast):
        for parameter in (p for n, p in net.named_parameters() if "conv_dw" in n or "fn.0" in n):
            parameter.requires_grad_(False)
    assert_alike(plain, fast, x)
    assert_close(fast.eval()(x), plain.eval()(x), rtol=1e-4, atol=1e-4)
    assert list(fast.state_dict()) == list(plain.state_dict())
    restore_(fast)
    assert [type(module) for module in fast.modules()] == [type(module) for module in plain.modules()]


def additions(net, x):
    return called(net, x).count("aten::add.Tensor")


def test_residuals_are_added_by_the_operator_before_them_to_the_bit():
    branch = nn.Sequential(nn.Conv2d(40, 40, 1), nn.GELU(), nn.BatchNorm2d(40))
    block, x = Residual(branch, drop_path_rate=0.0), images(4, 40, 9, 9)
    net = nn.Sequential(block)
    assert accelerate_(net).changed["residual"] == ("0",)
    assert type(block) is FastResidual
    assert torch.equal(block(x), block.fn(x) + x)
    inside = additions(block, x)
    with torch.no_grad():
        assert "aten::add.Tensor" not in called(block.eval(), x)
    block.train()
    watched = dict.fromkeys((block.fn, block.fn[1], block.fn[2], block.drop_path), 1)
    for part, more in (watched | {block: 0, block.fn[0]: 0}).items():
        handle = part.register_forward_hook(lambda *_: None)
        assert additions(block, x) == inside + more
        handle.remove()
    assert restore_(net)[:2] == ("0", "0.fn")
    assert type(block) is Residual
    other = nn.Sequential(Residual(nn.Conv2d(8, 8, 3, padding=1), drop_path_rate=0.0))
    assert "residual" not in accelerate_(other).changed


def own_class_(module):
    module.__class__ = type("Own", (type(module),), {})


CHANGES = {  # what somebody does to a residual of our ConvMixer, or to a block of timm's ConvNeXt
    "a branch with a forward of its own": (MIXER, lambda m: double_output_(m.fn)),
    "dropped branches": (MIXER, lambda m: setattr(m.drop_path, "rate", 0.5)),
    "a layer after the pair": (MIXER, lambda m: m.fn.append(nn.Tanh())),
    "an MLP of its own class": (POINTWISE, lambda m: own_class_(m.mlp)),
    "another activation": (POINTWISE, lambda m: setattr(m.mlp, "act", nn.ReLU())),
    "dropout within": (POINTWISE, lambda m: setattr(m.mlp.drop1, "p", 0.5)),
    "a parametrised product": (POINTWISE, lambda m: torch.nn.utils.parametrizations.weight_norm(m.mlp.fc1)),
    "a product without bias": (POINTWISE, lambda m: setattr(m.mlp.fc1, "bias", None)),
    "a norm without weight": (POINTWISE, lambda m: setattr(m, "norm", type(m.norm)(8, affine=False))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_residuals_and_blocks_that_were_changed_run_plainly(change):
    name, change_ = CHANGES[change]
    plain, fast = pair(NETWORKS[name][0])
    for net in (plain, fast):
        change_(net.get_submodule(BLOCK if name == POINTWISE else "blocks.1.0"))
    x = images(2, 3, 16, 16)
    assert name != POINTWISE or called(copy.deepcopy(fast), x).count(MLP) == 3
    assert_alike(plain, fast, x)


def test_watched_parts_other_numbers_layouts_and_modes_run_plainly():
    plain, fast = pair(NETWORKS[POINTWISE][0])
    x, block = images(2, 3, 16, 16), fast.get_submodule(BLOCK)
    fused = dict.fromkeys(("norm", "mlp", "mlp.fc1", "mlp.act", "mlp.drop1", "mlp.fc2", "drop_path"), 3)
    for part, count in (fused | {"conv_dw": 4, "shortcut": 4}).items():
        handle = block.get_submodule(part).register_forward_hook(lambda *_: None)
        assert called(fast, x).count(MLP) == count, part
        handle.remove()
    assert MLP not in called(block, torch.randn(2, 8, 16, 16))  # channels first
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert MLP not in called(fast, x)
    slopes = [torch.func.jvp(net, (x,), (x,))[1] for net in (plain, fast)]
    assert_close(slopes[1], slopes[0], rtol=1e-3, atol=1e-3)
    assert MLP not in called(fast.double(), x.double())
