"""Checkpoints as people have them: nested under any key, prefixed, sharded, sorted, with averages beside them."""

import argparse
import json
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import filtercov as fc
from filtercov.depthwise.foreign import read_state_dict
from filtercov.errors import CheckpointError
from filtercov.files.limits import PIXELS


class Net(nn.Module):
    def __init__(self, seed=0, blocks=3):
        super().__init__()
        torch.manual_seed(seed)
        self.stem = nn.Conv2d(3, 8, 4)
        self.blocks = nn.ModuleList(nn.Conv2d(8, 8, 5, groups=8) for _ in range(blocks))
        self.norm = nn.BatchNorm2d(8)


def weights(seed=0, blocks=3):
    return Net(seed, blocks).state_dict()


def read(content, path, **options):
    torch.save(content, path, **options)
    return read_state_dict(path)


def save_state(net, path):
    torch.save(net.state_dict(), path)


def same(state, expected):
    return list(state.tensors) == list(expected) and all(torch.equal(state.tensors[n], expected[n]) for n in expected)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pth"


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"state_dict": s, "best_acc1": torch.tensor(71.3)},
        lambda s: {"best_acc1": torch.tensor(71.3), "fc.weight": torch.ones(2, 2), "model": s},
        lambda s: {"network_weights": s, "trainer": {"step": torch.tensor(3)}},
        lambda s: {"state": {"model": s}, "rng": torch.zeros(5000, dtype=torch.uint8)},
        lambda s: {"any": [{"thing": (1, {"here": s})}]},
        lambda s: {"module": OrderedDict(s), "args": argparse.Namespace(lr=0.1, path=Path("x"))},
        lambda s: {"model": s, "history": defaultdict(list, loss=[1.0]), "best": np.float64(0.3), "log": np.ones(3)},
        lambda s: {"model": s, "optimizer": {"state": {0: {"exp_avg": torch.zeros(8, 1, 5, 5)}}, "param_groups": [{}]}},
        lambda s: {"optimizer": {"exp_avg": {**s, **{f"more.{n}": t for n, t in s.items()}}}, "net": s},
    ],
)
def test_the_dictionary_with_depthwise_weights_is_found_under_any_key(path, wrap, legacy):
    expected = weights()
    state = read(wrap(expected), path, _use_new_zipfile_serialization=not legacy)
    assert same(state, expected)
    assert state.notes[0].startswith("read '")
    assert state.in_model_order


def test_what_is_read_is_what_torch_loads(path):
    content = {
        "half.weight": torch.randn(8, 1, 3, 3).half(),
        "bf.weight": torch.randn(8, 1, 3, 3).bfloat16(),
        "turned.weight": torch.randn(3, 3, 1, 8).permute(3, 2, 1, 0),
        "part.weight": torch.randn(20, 1, 3, 3)[5:13],
        "parameter": nn.Parameter(torch.randn(4)),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3),
        "flags": torch.tensor([True, False]),
        "complex": torch.randn(3, dtype=torch.complex64),
    }
    for legacy in (False, True):
        if not legacy:  # older files cannot hold it
            content["small"] = torch.tensor([7], dtype=torch.uint16)
        else:
            del content["small"]
        torch.save(content, path, _use_new_zipfile_serialization=not legacy)
        loaded = torch.load(path, weights_only=True)
        state = read_state_dict(path)
        assert state.tensors.keys() == loaded.keys()
        for name, tensor in loaded.items():
            assert state.tensors[name].dtype == tensor.dtype
            assert torch.equal(state.tensors[name], tensor), name


def test_tensors_that_share_memory_share_it_when_they_are_read(path):
    shared = torch.randn(8, 1, 3, 3)
    tensors = read({"a.weight": shared, "b.weight": shared, "c.weight": shared[2:]}, path).tensors
    assert tensors["a.weight"].data_ptr() == tensors["b.weight"].data_ptr()
    assert tensors["c.weight"].data_ptr() == tensors["a.weight"].data_ptr() + 2 * 9 * 4


def test_changing_what_was_read_does_not_change_the_file(path):
    state = read(weights(), path)
    before = path.read_bytes()
    state.tensors["blocks.0.weight"].zero_()
    assert path.read_bytes() == before


def test_weights_go_before_their_average_and_the_note_says_so(path):
    plain, average = weights(0), weights(1)
    state = read({"state_dict_ema": average, "state_dict": plain}, path)
    assert same(state, plain)
    assert state.notes == ("read 'state_dict'; the file also holds 'state_dict_ema' (an average)",)
    alone = read({"model_ema": average}, path)
    assert same(alone, average)
    assert alone.notes == ("read 'model_ema', an average of weights",)


def test_of_several_networks_the_one_with_most_depthwise_weights_is_read_and_of_equals_the_first(path):
    small, large = weights(0, blocks=2), weights(1, blocks=4)
    state = read({"discriminator": small, "generator": large}, path)
    assert same(state, large)
    assert state.notes == ("read 'generator'; the file also holds 'discriminator'",)
    assert same(read({"student": small, "teacher": weights(2, blocks=2)}, path), small)


def test_averages_in_the_same_dictionary_are_left_out(path):
    plain = weights(0)
    flat = {f"model_ema.module.{n}": t for n, t in weights(1).items()} | {f"model.{n}": t for n, t in plain.items()}
    torch.save({"state_dict": flat}, path)
    net = Net(0)
    for like in (None, net):
        measured = fc.FilterStatistics.from_checkpoint(path, like=like)
        assert [layer.name for layer in measured] == ["blocks.0", "blocks.1", "blocks.2"]
        assert (measured[0].covariance == fc.FilterStatistics.from_model(net)[0].covariance).all()
        assert measured.notes[1:] == (
            "left out model_ema.module.blocks.0, model_ema.module.blocks.1, model_ema.module.blocks.2, averages of "
            "weights that are there themselves",
        )


@pytest.mark.parametrize(
    ("average", "itself"),
    [
        ("ema.", "model."),
        ("ema.", ""),
        ("model_ema.module.", ""),
        ("ema_model.ema_model.", "model."),
        ("model_ema.module.", "model."),
        ("ema_model.", "online_model."),
        ("swa_encoder.", "encoder."),
        ("module.net_avg.", "module.net."),
    ],
)
def test_averages_are_known_by_what_they_are_of(path, average, itself):
    plain = weights(0)
    torch.save({p + name: tensor for p in (average, itself) for name, tensor in plain.items()}, path)
    measured = fc.FilterStatistics.from_checkpoint(path)
    assert len(measured) == 3
    assert measured.notes[-1].startswith("left out ")


@pytest.mark.parametrize("branches", [("avg_branch", "max_branch"), ("avg", "max"), ("ema_attention", "dw")])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_branches_named_like_averages_are_layers(tmp_path, branches, suffix):
    layers = {name: nn.ModuleDict({"dw": Net(seed).blocks[0]}) for seed, name in enumerate(branches)}
    net = nn.ModuleDict({"stem": nn.Conv2d(3, 8, 4), **layers})
    path = tmp_path / f"net{suffix}"
    (safetensors.torch.save_model if suffix == ".safetensors" else save_state)(net, path)
    for like in (None, net):
        measured = fc.FilterStatistics.from_checkpoint(path, like=like)
        assert sorted(layer.name for layer in measured) == sorted(f"{branch}.dw" for branch in branches)
        assert not any("average" in note for note in measured.notes)


def test_a_branch_of_other_filters_is_no_average(path):
    torch.save({"dw.weight": torch.randn(8, 1, 5, 5), "avg.dw.weight": torch.randn(8, 1, 7, 7)}, path)
    assert [layer.name for layer in fc.FilterStatistics.from_checkpoint(path)] == ["dw", "avg.dw"]


def test_a_model_with_averages_of_its_own_says_which_are_layers(path):
    net = nn.ModuleDict({"model": nn.ModuleList(Net(0).blocks), "model_ema": nn.ModuleList(Net(1).blocks)})
    save_state(net, path)
    assert len(fc.FilterStatistics.from_checkpoint(path)) == 3
    measured = fc.FilterStatistics.from_checkpoint(path, like=net)
    assert len(measured) == 6
    assert measured.notes == ()


def test_an_index_may_list_averages(tmp_path):
    content = {f"{name}.blocks.0.weight": torch.randn(8, 1, 5, 5) for name in ("model", "model_ema")}
    safetensors.torch.save_file(content, tmp_path / "a.safetensors")
    index = {"weight_map": dict.fromkeys(content, "a.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [layer.name for layer in fc.FilterStatistics.from_checkpoint(tmp_path)] == ["blocks.0"]


@pytest.mark.parametrize(
    "prefix", ["", "model.", "net.", "module.", "model.net.", "module._orig_mod.", "_orig_mod.model."]
)
def test_layers_have_the_names_of_the_model_under_every_wrapper(path, prefix):
    torch.save({"state_dict": {prefix + name: tensor for name, tensor in weights().items()}}, path)
    names = [layer.name for layer in fc.FilterStatistics.from_checkpoint(path).layers]
    assert names == ["blocks.0", "blocks.1", "blocks.2"]


def test_an_averaged_model_of_pytorchs_is_read(path):
    net = Net()
    torch.save(torch.optim.swa_utils.AveragedModel(net).state_dict(), path)
    measured = fc.FilterStatistics.from_checkpoint(path)
    assert [layer.name for layer in measured.layers] == ["blocks.0", "blocks.1", "blocks.2"]
    np.testing.assert_array_equal(
        measured.layers[1].covariance, fc.FilterStatistics.from_model(net).layers[1].covariance
    )


def shard(folder, suffix, *, index="model.safetensors.index.json"):
    """Write weights as three shards and their index, as the hub lays them out."""
    expected = weights(blocks=12)
    names = list(expected)
    weight_map = {}
    for i in range(3):
        file = f"model-{i + 1:05}-of-00003{suffix}"
        part = {name: expected[name] for name in names[i * len(names) // 3 : (i + 1) * len(names) // 3]}
        if suffix == ".bin":
            torch.save(part, folder / file)
        else:
            safetensors.torch.save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    content = {"metadata": {"total_size": 1}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / index).write_text(json.dumps(content))
    return expected


def test_a_directory_and_its_index_of_shards_are_read(tmp_path):
    expected = shard(tmp_path, ".safetensors")
    for place in (tmp_path, tmp_path / "model.safetensors.index.json"):
        state = read_state_dict(place)
        assert state.tensors.keys() == expected.keys()
        assert all(torch.equal(state.tensors[name], expected[name]) for name in expected)
        assert not state.in_model_order
    names = [layer.name for layer in fc.FilterStatistics.from_checkpoint(tmp_path).layers]
    assert names == [f"blocks.{i}" for i in range(12)]


def test_shards_of_pytorchs_keep_the_models_order(tmp_path):
    expected = shard(tmp_path, ".bin", index="pytorch_model.bin.index.json")
    state = read_state_dict(tmp_path)
    assert same(state, expected)
    assert state.in_model_order


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "diffusion_pytorch_model.safetensors", "w.ckpt"]
)
def test_a_directory_with_one_checkpoint_is_read(tmp_path, name):
    (tmp_path / "config.json").write_text("{}")
    (safetensors.torch.save_file if name.endswith("safetensors") else torch.save)(weights(), tmp_path / name)
    assert read_state_dict(tmp_path).tensors.keys() == weights().keys()


def test_a_directory_with_several_checkpoints_asks_for_one(tmp_path):
    for name in ("a.pth", "b.pth"):
        torch.save(weights(), tmp_path / name)
    with pytest.raises(CheckpointError, match=r"2 checkpoints \(a.pth, b.pth…\); name one of them"):
        read_state_dict(tmp_path)


@pytest.mark.parametrize(
    "name", ["../net.safetensors", "/etc/passwd", "..", "a\\b", "sub/net.safetensors", "x.index.json"]
)
def test_shards_outside_the_directory_are_refused(tmp_path, name):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for place in (tmp_path, folder / "sub"):
        safetensors.torch.save_file(weights(), place / "net.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(weights(), name)}))
    with pytest.raises(CheckpointError, match="not the name of a checkpoint beside it"):
        read_state_dict(folder)


def test_a_missing_shard_and_a_missing_tensor_are_told(tmp_path):
    shard(tmp_path, ".safetensors")
    part = tmp_path / "model-00002-of-00003.safetensors"
    safetensors.torch.save_file({"other": torch.zeros(1)}, part)
    with pytest.raises(CheckpointError, match=r"its shard model-00002-of-00003\.safetensors has no"):
        read_state_dict(tmp_path)
    part.unlink()
    with pytest.raises(CheckpointError, match=r"its shard model-00002.* found nothing"):
        read_state_dict(tmp_path)


def test_a_stored_order_is_used_and_a_wrong_one_noted(tmp_path):
    expected = weights(blocks=12)
    path = tmp_path / "net.safetensors"
    order = list(expected)
    for stored, right in ((order, True), (order[1:], False), ([*order[1:], order[1]], False), ({"a": 1}, False)):
        safetensors.torch.save_file(expected, path, metadata={"filtercov": json.dumps({"order": stored})})
        state = read_state_dict(path)
        assert state.in_model_order == right
        assert (list(state.tensors) == order) == right
        assert bool(state.notes) != right


@pytest.mark.parametrize(
    "value",
    [np.float64(0.5), np.ones(3), {1, 2}, torch.device("cpu"), torch.Size([3]), Path("x"), complex(1, 2)],
    ids=repr,
)
@pytest.mark.parametrize("legacy", [False, True])
def test_settings_called_weight_are_no_weights(path, value, legacy):
    plain = weights()
    settings = {"weight": value, "loss.weight": value}
    for content in ({"model": plain, "config": {"loss": settings}}, plain | settings):
        state = read(content, path, _use_new_zipfile_serialization=not legacy)
        assert same(state, plain)


def test_a_weight_of_the_network_that_is_an_array_is_left_out_with_a_note(path):
    state = read(weights() | {"last.weight": np.ones((8, 1, 5, 5))}, path)
    assert state.notes == ("left out last.weight: no tensor",)


def test_a_sparse_weight_is_refused_also_where_nothing_else_is_depthwise(path):
    content = {"model": {"dw.weight": torch.ones(8, 1, 5, 5).to_sparse()}, "other": {"a": torch.ones(3)}}
    with pytest.raises(CheckpointError, match=r"dw\.weight is no plain tensor but made by .*sparse"):
        read(content, path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.ones(8, 1, 5, 5), r"net\.pth: needed a state dict of tensors, found a tensor; save model\.state_dict"),
        (3, r"net\.pth: needed a state dict of tensors, found int; save"),
        (None, r"net\.pth: needed a state dict of tensors, found NoneType; save"),
        ({"epoch": 3}, r"net\.pth: needed a state dict of tensors, found dict without one; save"),
        ({"a.weight": torch.zeros(1).expand(10**6, 1, 4500, 4500)}, "a.weight claims 81 TB that are not in the file"),
        ({"a" * 2000 + ".weight": torch.ones(2, 1, 3, 3)}, "a name of 2007 characters; needed at most 1024"),
        (nn.Conv2d(8, 8, 3, groups=8), r"objects of Python's \(torch\.nn\.modules\.conv\.Conv2d.*\).*state_dict\(\)"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(path, content, message):
    with pytest.raises(CheckpointError, match=message):
        read(content, path)


def test_a_kernel_too_large_to_have_a_covariance_is_refused_by_name(path):
    torch.save({"big.weight": torch.zeros(8, 1, 500, 500), "a.weight": torch.zeros(8, 1, 3, 3)}, path)
    with pytest.raises(CheckpointError, match=rf"big: .*at most {PIXELS} pixels, got 500x500 ones.*would take 500 GB"):
        fc.FilterStatistics.from_checkpoint(path)


def test_layers_whose_covariances_are_too_much_together_are_refused_before_any_is_measured(path):
    torch.save({f"{i}.weight": torch.randn(2, 1, 64, 64) for i in range(9)}, path)
    with pytest.raises(CheckpointError, match=r"at most 537 MB together, got 1\.2 GB"):
        fc.FilterStatistics.from_checkpoint(path)


@pytest.mark.parametrize("legacy", [False, True])
def test_weights_saved_with_the_negative_bit_have_the_sign_they_show(path, legacy):
    shown = torch.randn(8, 1, 5, 5, 2, dtype=torch.float64)
    negated = torch.view_as_complex(shown).conj().imag
    assert negated.is_neg()
    saved = {"a.weight": negated, "b.weight": shown[..., 1], "c.weight": torch.view_as_complex(shown.clone()).conj()}
    tensors = read(saved, path, _use_new_zipfile_serialization=not legacy).tensors
    assert torch.equal(tensors["a.weight"], -shown[..., 1])
    assert torch.equal(tensors["b.weight"], shown[..., 1])
    assert torch.equal(torch.view_as_real(tensors["c.weight"].resolve_conj())[..., 1], -shown[..., 1])
    torch.save({"a.weight": negated}, path, _use_new_zipfile_serialization=not legacy)
    [layer] = fc.FilterStatistics.from_checkpoint(path).layers
    np.testing.assert_allclose(layer.mean, -shown[..., 1].mean(0).flatten().numpy())
