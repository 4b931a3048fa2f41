"""Checkpoints as people have them: nested, prefixed, sharded, sorted; which weights are depthwise, and their order."""

import argparse
import json
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import parametrizations

import filtercov as fc
from filtercov.errors import CheckpointError
from filtercov.layers.checkpoint import read_named_weights
from filtercov.layers.state_dict import checkpoint_files, read_state_dict, write_state_dict
from filtercov.nn import DepthwiseConv2d


def depthwise(channels=8, kernel_size=5, kind=nn.Conv2d, **kwargs):
    return kind(channels, channels, kernel_size, groups=channels, **kwargs)


class Named(nn.Module):
    """A network with modules of any names, in their order."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


def with_stem(**modules):
    return Named(stem=nn.Conv2d(3, 8, 4), **modules)


def network(seed=0, blocks=3):
    torch.manual_seed(seed)
    return with_stem(blocks=nn.ModuleList(depthwise() for _ in range(blocks)), norm=nn.BatchNorm2d(8))


def weights(seed=0, blocks=3):
    return network(seed, blocks).state_dict()


def measure(path, like=None):
    return fc.FilterStatistics.from_checkpoint(path, like=like)


def names(path, like=None):
    return [layer.name for layer in measure(path, like)]


def told(statistics):
    return [(layer.name, layer.count, layer.covariance.tobytes()) for layer in statistics]


def as_measured(path, net, like=None):
    return told(measure(path, like)) == told(fc.FilterStatistics.from_model(net))


def read(content, path, **options):
    torch.save(content, path, **options)
    return read_state_dict(path)


def saved(net, path):
    torch.save(net.state_dict(), path)
    return path


def same(state, expected):
    return list(state.tensors) == list(expected) and all(torch.equal(state.tensors[n], expected[n]) for n in expected)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pth"


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
    state = read(wrap(expected), path, _use_new_zipfile_serialization=not legacy)
    assert same(state, expected)
    assert state.in_model_order


@pytest.mark.parametrize("legacy", [False, True])
def test_what_is_read_is_what_torch_loads(path, legacy):
    content = {
        "bf.weight": torch.randn(8, 1, 3, 3).bfloat16(),
        "turned.weight": torch.randn(3, 3, 1, 8).permute(3, 2, 1, 0),
        "part.weight": torch.randn(20, 1, 3, 3)[5:13],
        "parameter": nn.Parameter(torch.randn(4)),
        "scalar": torch.tensor(3),
        "complex": torch.randn(3, dtype=torch.complex64).conj(),
        **({} if legacy else {"small": torch.tensor([7], dtype=torch.uint16)}),  # older files cannot hold it
    }
    state = read(content, path, _use_new_zipfile_serialization=not legacy)
    loaded = torch.load(path, weights_only=True)
    assert same(state, loaded)
    assert [tensor.dtype for tensor in state.tensors.values()] == [tensor.dtype for tensor in loaded.values()]


def test_weights_go_before_ema_weights_and_larger_networks_before_smaller(path):
    one, other, large = weights(0), weights(1), weights(2, blocks=5)
    assert same(state := read({"state_dict_ema": other, "state_dict": one}, path), one)
    assert state.notes == ("read 'state_dict'; the file also holds 'state_dict_ema' (EMA weights)",)
    assert same(read({"model_ema": other}, path), other)
    assert same(read({"discriminator": one, "generator": large}, path), large)
    assert same(read({"student": one, "teacher": other, "schema": other}, path), one)
    assert same(read({"ema": large, "optimizer": large, "net": one, "fc": {"weight": torch.ones(2, 2)}}, path), one)


@pytest.mark.parametrize("prefixes", [("ema.", "model."), ("model_ema.module.", ""), ("ema_model.", "online_model.")])
def test_ema_copies_in_the_same_dictionary_are_left_out(path, prefixes):
    ema, prefix = prefixes
    net = network(0)
    torch.save({ema + n: t for n, t in weights(1).items()} | {prefix + n: t for n, t in net.state_dict().items()}, path)
    assert as_measured(path, net)
    assert as_measured(path, net, like=net)
    assert measure(path).notes[0].startswith(f"left out {ema}blocks.0")
    torch.save({ema + n: t for n, t in weights(1).items()}, path)
    assert len(measure(path)) == 3  # where there are no others


@pytest.mark.parametrize("prefix", ["", "module.", "model.net.", "_orig_mod.module."])
def test_layers_have_the_names_of_the_model_under_every_wrapper(path, prefix):
    net = network()
    torch.save({"state_dict": {prefix + name: tensor for name, tensor in net.state_dict().items()}}, path)
    assert as_measured(path, net)
    assert as_measured(path, net, like=net)


def test_names_that_only_look_like_prefixes_are_the_networks_own(path):
    for like, net in (
        (False, Named(model=Named(dw=depthwise(), other=depthwise()), head=depthwise())),
        (True, Named(model=network(0).blocks, model_ema=network(1).blocks)),
        (False, Named(module=Named(dw=depthwise()), dw=depthwise(16))),
        (True, Named(module=Named(dw=depthwise()), dw=depthwise(16))),
    ):
        assert as_measured(saved(net, path), net, like=net if like else None)


def shard(folder, suffix, index="model.safetensors.index.json"):
    """Write weights as three shards and their index, as the hub lays them out."""
    expected = weights(blocks=12)
    listed = list(expected)
    weight_map = {}
    for i in range(3):
        file = f"model-{i + 1:05}-of-00003{suffix}"
        part = {name: expected[name] for name in listed[i * len(listed) // 3 : (i + 1) * len(listed) // 3]}
        (torch.save if suffix == ".bin" else safetensors.torch.save_file)(part, folder / file)
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
        assert state.tensors.keys() == expected.keys()
        assert all(torch.equal(state.tensors[name], expected[name]) for name in expected)
        assert state.in_model_order == (suffix == ".bin")  # PyTorch's shards keep the model's order
        assert len(checkpoint_files(place)) == 4
    assert names(tmp_path) == [f"blocks.{i}" for i in range(12)]


@pytest.mark.parametrize("name", ["pytorch_model.bin", "diffusion_pytorch_model.safetensors", "w.ckpt"])
def test_a_directory_with_one_checkpoint_is_read(tmp_path, name):
    (tmp_path / "config.json").write_text("{}")
    (safetensors.torch.save_file if name.endswith("safetensors") else torch.save)(weights(), tmp_path / name)
    assert read_state_dict(tmp_path).tensors.keys() == weights().keys()
    assert checkpoint_files(tmp_path) == [tmp_path / name]


def test_directories_and_shards_that_do_not_fit_are_refused(tmp_path):
    def refused(words):
        with pytest.raises(CheckpointError, match=words):
            read_state_dict(tmp_path)

    refused("is a directory with 0 checkpoints")
    for name in ("a.pth", "b.pth"):
        (tmp_path / name).touch()
    refused(r"2 checkpoints \(a.pth, b.pth…\); name one of them")
    shard(tmp_path, ".safetensors")
    part = tmp_path / "model-00002-of-00003.safetensors"
    safetensors.torch.save_file({"other": torch.zeros(1)}, part)
    refused(r"its shard model-00002-of-00003\.safetensors: has no")
    part.unlink()
    refused("its shard model-00002.* found nothing")


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "found nothing"),
        (b"", "cannot be read"),
        (b"\xff" * 64, "cannot be read"),
        (LFS, "git lfs pull"),
        (torch.ones(8, 1, 5, 5), "needed a state dict of dense tensors"),
        ({"epoch": 3}, "needed a state dict of dense tensors"),
        ({"fc.weight": torch.ones(3, 3)}, "found none among its 1 tensors"),
        ({"dw.weight": torch.ones(8, 1, 5, 5).to_sparse()}, "needed a state dict of dense tensors"),
        ({"dw.weight": torch.ones(8, 1, 5, 5, dtype=torch.int8)}, "dw: needed a floating-point weight"),
        ({"a.weight": torch.zeros(1).expand(10**6, 1, 4500, 4500)}, "a: "),
        ({f"{i}.weight": torch.randn(2, 1, 64, 64) for i in range(9)}, "at most 537 MB together"),
        ({"a" * 1025 + ".weight": torch.ones(2, 1, 3, 3)}, "a name of 1032 characters; needed at most 1024"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(path, content, message):
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(CheckpointError, match=message):
        measure(path)


# --- Writing ---


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_state_dict_that_was_written_is_read_back_in_order_and_truncated_it_is_refused(tmp_path, suffix):
    net = Named(zebra=depthwise(), yak=depthwise(), ant=depthwise())
    net.yak.weight = net.zebra.weight
    file = tmp_path / f"net{suffix}"
    write_state_dict(net.state_dict(), file)
    assert same(read_state_dict(file), net.state_dict())
    assert names(file) == ["zebra", "yak", "ant"]
    assert measure(file).notes == ()
    data = file.read_bytes()
    for length in (1, 9, 100, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            measure(file)
    with pytest.raises(CheckpointError, match=r"needed a name ending in \.safetensors or \.pth"):
        write_state_dict(net.state_dict(), tmp_path / "net.onnx")


def test_a_stored_order_that_does_not_fit_is_not_used(tmp_path):
    expected = weights(blocks=12)
    order = list(expected)
    for stored, right in ((order, True), (order[1:], False), ([*order[1:], order[1]], False), ({"a": 1}, False)):
        metadata = {"filtercov": json.dumps({"order": stored})}
        safetensors.torch.save_file(expected, tmp_path / "net.safetensors", metadata=metadata)
        assert read_state_dict(tmp_path / "net.safetensors").in_model_order == right


# --- The order of layers in files that sort names ---


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_stems_come_first_heads_last_and_numbers_count(tmp_path, suffix):
    stages = [Named(downsample=depthwise(), mixer=depthwise(), mlp=depthwise()) for _ in range(11)]
    stem = nn.Sequential(nn.Conv2d(3, 8, 3), depthwise())
    net, file = Named(stem=stem, stages=nn.Sequential(*stages), final=depthwise()), tmp_path / f"net{suffix}"
    write = torch.save if suffix == ".pth" else safetensors.torch.save_file
    write(dict(sorted(net.state_dict().items())), file)
    assert as_measured(file, net)
    [note] = measure(file).notes
    assert note.startswith("the file does not say in which order its layers come")


def test_a_model_settles_the_order_and_one_numbered_series_needs_none(tmp_path):
    net, file = Named(stem=nn.Conv2d(3, 8, 3), yak=depthwise(), ant=depthwise()), tmp_path / "net.safetensors"
    safetensors.torch.save_file(net.state_dict(), file)
    assert names(file) == ["ant", "yak"]
    assert measure(file).notes
    assert names(file, net) == ["yak", "ant"]
    assert measure(file, net).notes == ()
    safetensors.torch.save_file(weights(blocks=11), file)
    assert names(file) == [f"blocks.{i}" for i in range(11)]
    assert measure(file).notes == ()
    assert list(read_named_weights(file, ["blocks.2", "stem", "blocks.0"]).tensors) == ["blocks.2", "blocks.0"]


# --- Which weights are depthwise ---


def one_shared_module():
    net = with_stem(first=depthwise(), second=depthwise())
    net.alias = net.first
    return net


def one_shared_weight():
    net = with_stem(first=depthwise(), second=depthwise())
    net.second.weight = net.first.weight
    return net


BUILT = {
    "attention": lambda: with_stem(dw=depthwise(), eca=nn.Conv1d(1, 1, 3), pa=nn.Conv2d(1, 1, 3)),
    "transposed": lambda: with_stem(dw=depthwise(), deconv=nn.ConvTranspose2d(8, 8, 5, groups=8)),
    "transposed to one channel": lambda: with_stem(dw=depthwise(), last=nn.ConvTranspose2d(8, 1, 5)),
    "grey images": lambda: Named(stem=nn.Conv2d(1, 8, 5), dw=depthwise(), pw=nn.Conv2d(8, 8, 1), dw2=depthwise()),
    "shared module": one_shared_module,
    "shared weight": one_shared_weight,
    "norms over channels": lambda: with_stem(dw=depthwise(), norm=nn.LayerNorm((8, 1, 1))),
    "multiplier, 1-D, one pixel": lambda: with_stem(
        dw=nn.Conv2d(8, 24, 5, groups=8), line=depthwise(kind=nn.Conv1d), pixel=depthwise(kernel_size=1)
    ),
    "depthwise first": lambda: nn.Sequential(depthwise(), depthwise(), nn.Conv2d(8, 16, 1)),
    "depthwise only": lambda: Named(dw=depthwise(), other=depthwise(kernel_size=3)),
    "stem in colours": lambda: Named(dw=depthwise(), stem=nn.Conv2d(3, 8, 4), pw=nn.Conv2d(8, 8, 1)),
    "bare layer": depthwise,  # whose name is empty
}


@pytest.mark.parametrize("kind", BUILT)
def test_a_state_dict_gives_the_layers_of_its_model(kind, path):
    torch.manual_seed(0)
    net = BUILT[kind]()
    assert as_measured(saved(net, path), net)
    assert as_measured(path, net, like=net)
    assert len(measure(path).notes) == (kind in ("grey images", "transposed", "transposed to one channel"))
    assert measure(path, net).notes == ()


# --- With a model ---


def test_a_network_of_width_one_is_measured_with_its_model_only(path):
    net = nn.Sequential(nn.Conv2d(3, 1, 1), DepthwiseConv2d(1, 1, 5), DepthwiseConv2d(1, 1, 5))
    with pytest.raises(CheckpointError, match="found none"):
        measure(saved(net, path))
    assert names(path, net) == ["1", "2"]


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_parametrised_weight_is_refused(wrap, path):
    net = with_stem(dw=wrap(depthwise()))
    with pytest.raises(CheckpointError, match="that of dw is stored as the parameters it is computed from"):
        measure(saved(net, path))
    with pytest.raises(CheckpointError, match="given as like"):
        measure(path, net)


def test_one_name_of_a_tie_is_enough_and_so_is_a_model_on_the_meta_device(path):
    net = one_shared_weight()
    torch.save({name: tensor for name, tensor in net.state_dict().items() if name != "first.weight"}, path)
    with torch.device("meta"):
        like = one_shared_weight()
    assert as_measured(path, net, like=like)


def test_a_model_of_another_architecture_is_refused(path):
    saved(with_stem(old=Named(dw=depthwise())), path)
    for like in (
        Named(deeper=depthwise()),
        Named(new=Named(dw=depthwise(kernel_size=7))),
        Named(new=Named(dw=depthwise(), second=depthwise())),
        Named(old=Named(dw=depthwise(kernel_size=7))),
    ):
        with pytest.raises(CheckpointError, match=r"given as like"):
            measure(path, like)


def test_layers_that_lie_under_other_names_are_matched_in_order_and_noted(tmp_path):
    torch.manual_seed(0)
    net = with_stem(blocks=nn.Sequential(*(Named(dw=depthwise(), mlp=nn.Conv2d(8, 8, 1)) for _ in range(12))))
    renamed = {name.replace("blocks", "backbone.block"): tensor for name, tensor in net.state_dict().items()}
    safetensors.torch.save_file(renamed, tmp_path / "renamed.safetensors")
    assert as_measured(tmp_path / "renamed.safetensors", net, like=net)
    [note] = measure(tmp_path / "renamed.safetensors", net).notes
    assert note.startswith("the file has other names, backbone.block.0.dw for blocks.0.dw")
