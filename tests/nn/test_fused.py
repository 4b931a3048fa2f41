"""Fused modules: what the plain ones compute, fused where nobody can observe it, and plain everywhere else."""

import copy
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
assert_close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)


def sequence(*layers):
    return nn.Sequential(nn.Conv2d(3, 20, 1), *layers)


def pair(activation, *, first=False):
    layers = nn.BatchNorm2d(20), MODULES[activation]()
    return sequence(*(reversed(layers) if first else layers))


def timms_norm(act):
    layers = import_peer("timm.layers")
    return sequence(layers.BatchNormAct2d(20, apply_act=act is not None, act_layer=layers.get_act_layer(act or "relu")))


def torchvisions_block():
    block = import_peer("torchvision.ops.misc").Conv2dNormActivation(20, 20, 3, activation_layer=nn.Hardswish)
    return sequence(block.append(block[0]))  # a layer that is there twice runs twice


def timms_convmixer():
    return import_peer("timm.models.convmixer").ConvMixer(8, 3, kernel_size=5, patch_size=2, num_classes=3)


def timms_convnext(**settings):
    sizes = {"depths": (1, 1, 1, 1), "dims": (8, 12, 16, 24), "patch_size": 1, "num_classes": 3}
    return import_peer("timm.models.convnext").ConvNeXt(**sizes | settings)


FIRST, NORM, MIXER, POINTWISE = "gelu first", "timm's norm, relu", "our ConvMixer", "timm's ConvNeXt, pointwise"
NETWORKS = {  # how they are built, and the operator that they call so many times
    **{name: (partial(pair, name), TRAIN, 1) for name in MODULES},
    FIRST: (partial(pair, "gelu", first=True), TRAIN, 1),
    **{f"timm's norm, {act}": (partial(timms_norm, act), TRAIN, 1) for act in ("relu", "hard_swish", None)},
    "torchvision's block": (torchvisions_block, TRAIN, 1),
    "GELU alone": (lambda: sequence(nn.GELU(), nn.Conv2d(20, 4, 1)), GELU, 1),
    MIXER: (lambda: models.create("convmixer_8_3_k5_p2", num_classes=3), TRAIN, 7),
    "timm's ConvMixer": (timms_convmixer, TRAIN, 7),
    "our ConvNeXt": (lambda: models.create("convnext_atto_div8_p1", num_classes=3), MLP, 12),
    "timm's ConvNeXt": (timms_convnext, MLP, 4),
    POINTWISE: (lambda: timms_convnext(conv_mlp=True, kernel_sizes=9), MLP, 4),
    "timm's, dropping branches": (
        lambda: timms_convnext(conv_mlp=True, drop_path_rate=0.5, ls_init_value=None),
        MLP,
        4,
    ),
    "timm's second version": (lambda: timms_convnext(conv_mlp=True, use_grn=True, ls_init_value=None), MLP, 0),
}


def both(build):
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
        outputs[-1].square().mean().backward()
    assert_close(outputs[1], outputs[0])
    for (name, a), b in zip(plain.named_parameters(), fast.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        assert a.grad is None or (a.grad - b.grad).norm() <= 1e-3 * a.grad.norm() + 1e-5, name
    assert_close(list(fast.buffers()), list(plain.buffers()), atol=1e-5)


def calls(net, x, operator):
    return called(copy.deepcopy(net), x).count(operator)


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_gradients_and_statistics_are_the_plain_networks(name):
    build, operator, count = NETWORKS[name]
    (plain, fast), x = both(build), images(4, 3, 16, 16)
    assert calls(fast, x, operator) == count
    assert_alike(plain, fast, x)
    for net in (plain, fast):
        for parameter in (p for n, p in net.named_parameters() if "conv_dw" in n or "fn.0" in n):
            parameter.requires_grad_(False)
    assert_alike(plain, fast, x)
    plain.eval(), fast.eval()
    assert calls(fast, x, EVAL) == 0  # someone may ask for gradients
    assert_alike(plain, fast, x)
    before = copy.deepcopy(fast.state_dict())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert called(fast, x).count(EVAL if operator == TRAIN else operator) == count
            assert_close(fast(x), plain(x))
    assert all(torch.equal(fast.state_dict()[name], value) for name, value in before.items())
    assert list(before) == list(plain.state_dict())
    restore_(fast)
    assert [type(module) for module in fast.modules()] == [type(module) for module in plain.modules()]


# Where somebody could observe it.


def hook_(module):
    module.register_forward_hook(lambda *_: None)


def own_class_(module):
    module.__class__ = type("Own", (type(module),), {})


BRANCH, BLOCK = "blocks.1.0", "stages.0.blocks.0"
CHANGES = [  # what somebody does to a part of a network, and how many operators are then called
    *((name, part, change_, 0) for name in ("relu", FIRST) for part in "12" for change_ in (hook_, double_output_)),
    (NORM, "1", lambda m: setattr(m, "drop", nn.Dropout()), 0),
    (NORM, "1", lambda m: setattr(m, "drop", nn.Dropout(0.0)), 1),
    (NORM, "1.drop", hook_, 0),
    (NORM, "1.act", double_output_, 0),
    ("GELU alone", "1", hook_, 1),  # the module is called, and so are its hooks
    (MIXER, BRANCH, lambda m: double_output_(m.fn), 7),
    (MIXER, BRANCH, lambda m: setattr(m.drop_path, "rate", 0.5), 7),
    (MIXER, BRANCH, lambda m: m.fn.append(nn.Tanh()), 7),
    (POINTWISE, BLOCK, lambda m: own_class_(m.mlp), 3),
    (POINTWISE, BLOCK, lambda m: setattr(m.mlp, "act", nn.ReLU()), 3),
    (POINTWISE, BLOCK, lambda m: setattr(m.mlp.drop1, "p", 0.5), 3),
    (POINTWISE, BLOCK, lambda m: torch.nn.utils.parametrizations.weight_norm(m.mlp.fc1), 3),
    (POINTWISE, BLOCK, lambda m: setattr(m.mlp.fc1, "bias", None), 3),
    (POINTWISE, BLOCK, lambda m: setattr(m, "norm", type(m.norm)(8, affine=False)), 3),
    *(
        (POINTWISE, f"{BLOCK}.{part}", hook_, 4 if part in ("conv_dw", "shortcut") else 3)
        for part in ("norm", "mlp", "mlp.fc1", "mlp.act", "mlp.drop1", "mlp.fc2", "drop_path", "conv_dw", "shortcut")
    ),
]


@pytest.mark.parametrize(("name", "part", "change_", "count"), CHANGES)
def test_modules_that_were_changed_run_as_their_owner_wants(name, part, change_, count):
    build, operator, _ = NETWORKS[name]
    (plain, fast), x = both(build), images(2, 3, 16, 16)
    for net in (plain, fast):
        change_(net.get_submodule(part))
    with torch.random.fork_rng():
        plain(x)  # as often as the other, with the same random numbers
    assert called(fast, x).count(operator) == count
    assert_alike(plain, fast, x)


@pytest.mark.parametrize("name", ["relu", FIRST, NORM, "GELU alone", POINTWISE])
def test_other_numbers_and_modes_run_plainly(name):
    build, operator, _ = NETWORKS[name]
    (plain, fast), x = both(build), images(2, 3, 16, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert calls(fast, x, operator) == 0
    if operator != TRAIN:
        assert_close(*(torch.func.jvp(net, (x,), (x,))[1] for net in (fast, plain)), rtol=1e-3, atol=1e-3)
    assert calls(fast.double(), x.double(), operator) == 0


def test_images_with_channels_first_run_plainly():
    first = torch.randn(2, 8, 16, 16)
    assert MLP not in called(both(NETWORKS[POINTWISE][0])[1].get_submodule(BLOCK), first)
    assert TRAIN not in called(FusedSequential(nn.BatchNorm2d(8), nn.ReLU()), first)


# BatchNorm's own rules.

UNUSUAL = {
    "no statistics": {"running_mean": None, "running_var": None},
    "cumulative average": {"momentum": None},
    "not tracked": {"track_running_stats": False},
    "not counted": {"num_batches_tracked": None},
    "usual": {},
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("changes", UNUSUAL)
def test_statistics_are_kept_as_batch_norm_keeps_them_whatever_it_lacks(changes, first):
    nets = both(partial(pair, "gelu", first=first))
    for net in nets:
        for name, value in UNUSUAL[changes].items():
            setattr(net[1 + first], name, value)
    for _ in range(3):
        x = images(4, 3, 7, 7) + 1
        assert_close(*(net(x) for net in nets))
    assert_close(*(dict(net.named_buffers()) for net in nets), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        assert_close(*(net.eval()(x) for net in nets))


@pytest.mark.parametrize("first", [True, False])
def test_calls_of_both_kinds_share_one_backward_pass(first, monkeypatch):
    """Multi-crop training: small images go to PyTorch's norm, which keeps the running statistics for its gradient."""
    monkeypatch.undo()  # the thresholds hold
    plain, fused = both(partial(pair, "gelu", first=first))
    crops = images(8, 3, 24, 24), images(8, 3, 64, 64)
    for net in (fused, plain.double()):
        sum(net(x.to(net[0].weight.dtype)).sin().sum() for x in crops).backward()
    wanted = plain[0].weight.grad
    assert (fused[0].weight.grad - wanted).norm() < 1e-4 * wanted.norm()


def test_small_images_are_left_to_pytorch(monkeypatch):
    monkeypatch.undo()
    for name, shape, fused in (("relu", (4, 3, 7, 7), 0), ("relu", (16, 3, 32, 32), 1), (FIRST, (4, 3, 7, 7), 1)):
        assert calls(both(NETWORKS[name][0])[1], images(*shape), TRAIN) == fused


# Pairs and what is beside them.


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


def additions(net, x):
    return called(net, x).count("aten::add.Tensor")


def test_residuals_are_added_by_the_operator_before_them_to_the_bit():
    branch = nn.Sequential(nn.Conv2d(40, 40, 1), nn.GELU(), nn.BatchNorm2d(40))
    block, x = Residual(branch, drop_path_rate=0.0), images(4, 40, 9, 9)
    assert accelerate_(nn.Sequential(block)).changed["residual"] == ("0",)
    assert type(block) is FastResidual
    assert torch.equal(block(x), block.fn(x) + x)
    inside = additions(block, x)
    with torch.no_grad():
        assert additions(block.eval(), x) == 0
    block.train()
    watched = dict.fromkeys((block.fn, block.fn[1], block.fn[2], block.drop_path), 1)
    for part, more in (watched | {block: 0, block.fn[0]: 0}).items():
        handle = part.register_forward_hook(lambda *_: None)
        assert additions(block, x) == inside + more
        handle.remove()
    other = nn.Sequential(Residual(nn.Conv2d(8, 8, 3, padding=1), drop_path_rate=0.0))
    assert "residual" not in accelerate_(other).changed
