"""Checkpoints as people have them: nested, prefixed, sharded, sorted; which weights are depthwise, and their order."""

import argparse
import json
from collections import OrderedDict, defaultdict
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import parametrizations

import filtercov as fc
from filtercov.errors import CheckpointError
from filtercov.files import DESCRIPTION
from filtercov.layers.checkpoint import read_named_weights
from filtercov.layers.state_dict import read_state_dict, write_state_dict
from tests.depthwise_layers import depthwise, told


def named(**modules):
    """A network with modules of any names, in their order."""
    return nn.ModuleDict(modules)


def with_stem(**modules):
    return named(stem=nn.Conv2d(3, 8, 4), **modules)


def network(seed=0, blocks=3):
    torch.manual_seed(seed)
    return with_stem(blocks=nn.ModuleList(depthwise() for _ in range(blocks)), norm=nn.BatchNorm2d(8))


def weights(seed=0, blocks=3):
    return network(seed, blocks).state_dict()


def measure(path, like=None):
    return fc.FilterStatistics.from_checkpoint(path, like=like)


def names(path, like=None):
    return [layer.name for layer in measure(path, like)]


def as_measured(path, net, like=None):
    return told(measure(path, like)) == told(fc.FilterStatistics.from_model(net))


def write(content, path, **options):
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(content, path, **options)
    else:
        torch.save(content, path, **options)
    return path


def saved(net, path):
    return write(net.state_dict(), path)


def same(state, expected):
    return list(state.tensors) == list(expected) and all(torch.equal(state.tensors[n], expected[n]) for n in expected)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pth"


@pytest.fixture
def sorting(tmp_path):
    """A file of a format that sorts names."""
    return tmp_path / "net.safetensors"


# --- Reading ---


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"best": torch.tensor(71.3), "fc.weight": torch.ones(2, 2), "any": {"thing": {"here": s}}},
        lambda s: {"module": OrderedDict(s), "args": argparse.Namespace(lr=0.1, path=Path("x"), loss=np.mean)},
        lambda s: {"model": s, "history": defaultdict(list, loss=[1.0]), "best": np.float64(0.3), "log": {1, 2}},
        lambda s: {"optimizer": {"exp_avg": {**s, **{f"more.{n}": t for n, t in s.items()}}}, "net": s},
    ],
)
def test_the_dictionary_with_depthwise_weights_is_found_under_any_key(path, wrap, legacy):
    expected = weights()
    state = read_state_dict(write(wrap(expected), path, _use_new_zipfile_serialization=not legacy))
    assert same(state, expected)
    assert state.in_model_order


@pytest.mark.parametrize("legacy", [False, True])
def test_what_is_read_is_what_torch_loads(path, legacy):
    content = {
        "bf.weight": torch.randn(8, 1, 3, 3).bfloat16(),
        "turned.weight": torch.randn(3, 3, 1, 8).permute(3, 2, 1, 0),
        "part.weight": torch.randn(20, 1, 3, 3)[5:13],
        "parameter": nn.Parameter(torch.randn(4)),
        "complex": torch.randn(3, dtype=torch.complex64).conj(),
        **({} if legacy else {"small": torch.tensor([7], dtype=torch.uint16)}),  # older files cannot hold it
    }
    state = read_state_dict(write(content, path, _use_new_zipfile_serialization=not legacy))
    loaded = torch.load(path, weights_only=True)
    assert same(state, loaded)
    assert [tensor.dtype for tensor in state.tensors.values()] == [tensor.dtype for tensor in loaded.values()]


def test_weights_go_before_ema_weights_and_larger_networks_before_smaller(path):
    one, other, large = weights(0), weights(1), weights(2, blocks=5)
    state = read_state_dict(write({"state_dict_ema": other, "state_dict": one}, path))
    assert state.notes == ("read 'state_dict'; the file also holds 'state_dict_ema' (EMA weights)",)
    for content, expected in (
        ({"state_dict_ema": other, "state_dict": one}, one),
        ({"model_ema": other}, other),
        ({"discriminator": one, "generator": large}, large),
        ({"student": one, "teacher": other, "schema": other}, one),
        ({"ema": large, "optimizer": large, "net": one, "fc": {"weight": torch.ones(2, 2)}}, one),
    ):
        assert same(read_state_dict(write(content, path)), expected)


PREFIXES = ["", "module.", "model.net.", "_orig_mod.module."]
WITH_EMA = [("model.", "ema."), ("", "model_ema.module."), ("online_model.", "ema_model.")]


@pytest.mark.parametrize(("prefix", "ema"), [*((prefix, None) for prefix in PREFIXES), *WITH_EMA])
def test_layers_have_the_names_of_the_model_under_every_wrapper_and_ema_copies_are_left_out(path, prefix, ema):
    net = network()
    own = {prefix + name: tensor for name, tensor in net.state_dict().items()}
    copies = {ema + name: tensor for name, tensor in weights(1).items()} if ema else {}
    write({"state_dict": copies | own}, path)
    assert as_measured(path, net)
    assert as_measured(path, net, like=net)
    if ema:
        assert measure(path).notes[0].startswith(f"left out {ema}blocks.0")
        assert len(measure(write(copies, path))) == 3  # where there are no others
    with_ema = named(model=network(0).blocks, model_ema=network(1).blocks)  # which are the network's own
    assert as_measured(saved(with_ema, path), with_ema, like=with_ema)


def shard(folder, suffix, index="model.safetensors.index.json"):
    """Write weights as three shards and their index, as the hub lays them out."""
    expected = weights(blocks=12)
    listed, weight_map = list(expected), {}
    for i in range(3):
        file = f"model-{i + 1:05}-of-00003{suffix}"
        part = {name: expected[name] for name in listed[i * len(listed) // 3 : (i + 1) * len(listed) // 3]}
        write(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / index).write_text(json.dumps({"weight_map": dict(sorted(weight_map.items()))}))
    return expected


@pytest.mark.parametrize(
    ("suffix", "index"), [(".safetensors", "model.safetensors.index.json"), (".bin", "pytorch_model.bin.index.json")]
)
def test_a_directory_and_its_index_of_shards_are_read(tmp_path, suffix, index):
    expected = shard(tmp_path, suffix, index)
    for place in (tmp_path, tmp_path / index):
        state = read_state_dict(place)
        assert same(state, expected) or suffix == ".safetensors"
        assert state.in_model_order == (suffix == ".bin")  # PyTorch's shards keep the model's order
    assert as_measured(tmp_path, network(blocks=12))


def test_a_directory_is_read_if_one_checkpoint_is_in_it_or_has_a_usual_name(tmp_path):
    for name, words in (
        ("config.json", "is a directory with 0 checkpoints"),
        ("w.ckpt", None),
        ("v.ckpt", r"2 checkpoints \(v.ckpt, w.ckpt…\); name one of them"),
        ("diffusion_pytorch_model.safetensors", None),
        ("pytorch_model.bin", None),
    ):
        named = weights() | {name: torch.zeros(1)}  # which tells the file that is read
        write(named, tmp_path / name)
        with nullcontext() if words is None else pytest.raises(CheckpointError, match=words):
            assert read_state_dict(tmp_path).tensors.keys() == named.keys()


def test_shards_that_do_not_fit_are_refused(tmp_path):
    shard(tmp_path, ".safetensors")
    part = tmp_path / "model-00002-of-00003.safetensors"
    write({"other": torch.zeros(1)}, part)
    with pytest.raises(CheckpointError, match=r"its shard model-00002-of-00003\.safetensors: has no"):
        read_state_dict(tmp_path)
    part.unlink()
    with pytest.raises(CheckpointError, match="found nothing"):
        read_state_dict(tmp_path)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "found nothing"),
        (b"\xff" * 64, "cannot be read"),
        (LFS, "git lfs pull"),
        (torch.ones(8, 1, 5, 5), "needed a state dict of dense tensors"),
        ({"fc.weight": torch.ones(3, 3)}, "found none among its 1 tensors"),
        ({"dw.weight": torch.ones(8, 1, 5, 5).to_sparse()}, "needed a state dict of dense tensors"),
        ({"dw.weight": torch.ones(8, 1, 5, 5, dtype=torch.int8)}, "dw: needed a floating-point weight"),
        ({"dw.weight": torch.ones(8, 1, 5, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, "dw: .* plain numbers"),
        ({f"{i}.weight": torch.randn(2, 1, 64, 64) for i in range(9)}, "at most 537 MB together"),
        ({"a" * 1025 + ".weight": torch.ones(2, 1, 3, 3)}, "a name of 1032 characters; needed at most 1024"),
        ({"dw.parametrizations.weight.original1": torch.ones(8, 1, 5, 5)}, "that of dw is stored as the parameters it"),
        ({"dw.weight_v": torch.ones(8, 1, 5, 5)}, "that of dw is stored as the parameters it is computed from"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(path, content, message):
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        write(content, path)
    with pytest.raises(CheckpointError, match=message):
        measure(path)


# --- Writing ---


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_state_dict_that_was_written_is_read_back_in_order(tmp_path, suffix):
    net = named(zebra=depthwise(), yak=depthwise(), ant=depthwise())
    net.yak.weight = net.zebra.weight
    file = tmp_path / f"net{suffix}"
    write_state_dict(net.state_dict(), file)
    assert same(read_state_dict(file), net.state_dict())
    assert as_measured(file, net)
    assert measure(file).notes == ()
    with pytest.raises(CheckpointError, match=r"needed a name ending in \.safetensors or \.pth"):
        write_state_dict(net.state_dict(), tmp_path / "net.onnx")


def test_a_stored_order_that_does_not_fit_is_not_used(sorting):
    expected = weights()
    order = list(expected)
    for stored, right in ((order, True), (order[1:], False), ([*order[1:], order[1]], False), ({"a": 1}, False)):
        write(expected, sorting, metadata={"filtercov": json.dumps({"order": stored})})
        assert read_state_dict(sorting).in_model_order == right


# --- The order of layers in files that sort names ---


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_stems_come_first_heads_last_and_numbers_count(tmp_path, suffix):
    stages = [named(downsample=depthwise(), mixer=depthwise(), mlp=depthwise()) for _ in range(11)]
    stem = nn.Sequential(nn.Conv2d(3, 8, 3), depthwise())
    net, file = named(stem=stem, stages=nn.Sequential(*stages), final=depthwise()), tmp_path / f"net{suffix}"
    write(dict(sorted(net.state_dict().items())), file)
    assert as_measured(file, net)
    [note] = measure(file).notes
    assert note.startswith("the file does not say in which order its layers come")


def test_a_model_settles_the_order_and_one_numbered_series_needs_none(sorting):
    net = with_stem(yak=depthwise(), ant=depthwise())
    assert names(saved(net, sorting)) == ["ant", "yak"]
    assert names(sorting, net) == ["yak", "ant"]
    assert measure(sorting, net).notes == ()
    series = network(blocks=11)
    assert as_measured(saved(series, sorting), series)
    assert measure(sorting).notes == ()
    assert list(read_named_weights(sorting, ["blocks.2", "stem", "blocks.0"]).tensors) == ["blocks.2", "blocks.0"]


# --- Which weights are depthwise ---


def one_shared_weight():
    net = with_stem(first=depthwise(), second=depthwise())
    net.second.weight = net.first.weight
    return net


NOTED = {
    "transposed": lambda: with_stem(dw=depthwise(), deconv=nn.ConvTranspose2d(8, 8, 5, groups=8)),
    "transposed to one channel": lambda: with_stem(dw=depthwise(), last=nn.ConvTranspose2d(8, 1, 5)),
    "grey images": lambda: named(stem=nn.Conv2d(1, 8, 5), dw=depthwise(), pw=nn.Conv2d(8, 8, 1), dw2=depthwise()),
}
BUILT = NOTED | {
    "attention": lambda: with_stem(dw=depthwise(), eca=nn.Conv1d(1, 1, 3), pa=nn.Conv2d(1, 1, 3)),
    "shared module": lambda: with_stem(first=(first := depthwise()), second=depthwise(), alias=first),
    "shared weight": one_shared_weight,
    "norms over channels": lambda: with_stem(dw=depthwise(), norm=nn.LayerNorm((8, 1, 1))),
    "multiplier, 1-D, one pixel": lambda: with_stem(
        dw=depthwise(multiplier=3), line=depthwise(kind=nn.Conv1d), pixel=depthwise(kernel_size=1)
    ),
    "depthwise first": lambda: nn.Sequential(depthwise(), depthwise(), nn.Conv2d(8, 16, 1)),
    "depthwise only": lambda: named(dw=depthwise(), other=depthwise(kernel_size=3)),
    "stem in colours": lambda: named(dw=depthwise(), stem=nn.Conv2d(3, 8, 4), pw=nn.Conv2d(8, 8, 1)),
    "bare layer": depthwise,  # whose name is empty
    "a part called module": lambda: named(module=named(dw=depthwise()), dw=depthwise(16)),
}


@pytest.mark.parametrize("kind", BUILT)
def test_a_state_dict_gives_the_layers_of_its_model(kind, path):
    net = BUILT[kind]()
    assert as_measured(saved(net, path), net)
    assert as_measured(path, net, like=net)
    assert len(measure(path).notes) == (kind in NOTED)
    assert measure(path, net).notes == ()


# --- With a model ---


def test_one_name_of_a_tie_is_enough_and_so_is_a_model_on_the_meta_device(path):
    net = one_shared_weight()
    write({name: tensor for name, tensor in net.state_dict().items() if name != "first.weight"}, path)
    with torch.device("meta"):
        like = one_shared_weight()
    assert as_measured(path, net, like=like)


@pytest.mark.parametrize(
    "like",
    [
        named(deeper=depthwise()),
        named(new=named(dw=depthwise(kernel_size=5))),
        named(new=named(dw=depthwise(), second=depthwise())),
        named(old=named(dw=depthwise(kernel_size=5))),
        named(old=named(dw=parametrizations.weight_norm(depthwise()), two=depthwise())),
    ],
)
def test_a_model_of_another_architecture_is_refused(path, like):
    saved(with_stem(old=named(dw=depthwise())), path)
    with pytest.raises(CheckpointError, match="given as like"):
        measure(path, like)


def test_weights_larger_than_any_description_are_read(path):
    large = torch.zeros(10, DESCRIPTION // 20)
    content = {"0.weight": torch.ones(4, 3, 2, 2), "1.weight": torch.ones(4, 1, 7, 7), "head.weight": large}
    assert next(iter(measure(write(content, path)))).count == 4
