"""Other people's checkpoints: every usual nesting is read, nothing in them is executed, damage is told."""

import pickle
from collections import OrderedDict

import pytest
import safetensors.torch
import torch
from torch import nn

import filtercov as fc
from filtercov.depthwise.foreign import read_state_dict
from filtercov.errors import CheckpointError
from filtercov.files.weights import write_state_dict


class Net(nn.Module):
    def __init__(self, blocks=11):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 4)
        self.blocks = nn.ModuleList(nn.Conv2d(12, 12, 7, groups=12) for _ in range(blocks))
        self.strip = nn.Conv2d(12, 12, (1, 11), groups=12)
        self.line = nn.Conv1d(12, 12, 5, groups=12)
        self.norm = nn.BatchNorm2d(12)
        self.head = nn.Linear(12, 4)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def names(path):
    return [layer.name for layer in fc.FilterStatistics.from_checkpoint(path).layers]


EXPECTED = [*(f"blocks.{i}" for i in range(11)), "strip", "line"]


def test_a_checkpoint_gives_the_statistics_of_its_model(net, tmp_path):
    torch.save(net.state_dict(), tmp_path / "net.pth")
    from_file = fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth")
    from_model = fc.FilterStatistics.from_model(net)
    for a, b in zip(from_file.layers, from_model.layers, strict=True):
        assert (a.name, a.kernel_size, a.count) == (b.name, b.kernel_size, b.count)
        assert (a.covariance == b.covariance).all()
    assert from_file.source == "net.pth"


@pytest.mark.parametrize(
    "nest",
    [
        lambda s: s,
        lambda s: {"state_dict": s, "epoch": 3, "arch": "net"},
        lambda s: {"model": s, "optimizer": {"lr": 0.1}},
        lambda s: {"model": {"state_dict": s}},
        lambda s: {"model_state_dict": OrderedDict(s)},
        lambda s: {"state_dict": {f"module.{k}": v for k, v in s.items()}},
        lambda s: {f"_orig_mod.{k}": v for k, v in s.items()},
        lambda s: {f"module._orig_mod.{k}": v.half() for k, v in s.items()},
        lambda s: {"model_ema": s},
    ],
)
def test_the_usual_nestings_and_prefixes_are_read(net, tmp_path, nest):
    torch.save(nest(net.state_dict()), tmp_path / "net.pth")
    assert names(tmp_path / "net.pth") == EXPECTED


def test_safetensors_which_sorts_by_name_is_read_in_counting_order(net, tmp_path):
    safetensors.torch.save_file(net.state_dict(), tmp_path / "net.safetensors")
    assert [name for name in names(tmp_path / "net.safetensors") if "blocks" in name] == EXPECTED[:11]


def test_which_of_several_state_dicts_was_read_is_noted(net, tmp_path):
    torch.save({"model_ema": net.state_dict(), "model": net.state_dict()}, tmp_path / "net.pth")
    assert fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth").notes == (
        "read 'model'; the file also holds 'model_ema' (an average)",
    )


def test_a_first_convolution_of_one_channel_images_is_noted_as_ambiguous(tmp_path):
    net = nn.Sequential(nn.Conv2d(1, 8, 4), nn.Conv2d(8, 8, 7, groups=8), nn.Conv2d(8, 8, 7, groups=8))
    torch.save(net.state_dict(), tmp_path / "net.pth")
    [note] = fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth").notes
    assert note.startswith("0 may be a dense convolution of one-channel images")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_state_dict_that_was_written_is_read_back(net, tmp_path, suffix):
    net.blocks[1].weight = net.blocks[0].weight
    path = tmp_path / f"net{suffix}"
    write_state_dict(net.state_dict(), path)
    state = read_state_dict(path).tensors
    assert state.keys() == net.state_dict().keys()
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    net.load_state_dict(state)


def test_checkpoints_are_written_only_in_formats_that_are_read(net, tmp_path):
    with pytest.raises(CheckpointError, match=r"needed a name ending in \.safetensors or \.pth"):
        write_state_dict(net.state_dict(), tmp_path / "net.onnx")


class Executes:
    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return (open, (self.marker, "w"))


@pytest.mark.parametrize(
    "wrap", [lambda e: e, lambda e: {"state_dict": {"a.weight": torch.ones(4, 1, 3, 3)}, "extra": e}]
)
@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_code_in_a_pickle_is_refused_and_not_run(tmp_path, wrap, save):
    marker, path = tmp_path / "executed", tmp_path / "evil.pth"
    save(wrap(Executes(marker)), path)
    with pytest.raises(CheckpointError, match=r"evil\.pth: it .*holds Python objects.*could run code"):
        fc.FilterStatistics.from_checkpoint(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "suffix", "message"),
    [
        (b"", ".pth", "cannot be read as a checkpoint"),
        (b"not a checkpoint at all", ".pth", "cannot be read as a checkpoint"),
        (b"PK\x03\x04 but no archive", ".pth", "cannot be read as a checkpoint"),
        (b"", ".safetensors", "cannot be read as a checkpoint"),
        (b"\xff" * 64, ".safetensors", "cannot be read as a checkpoint"),
    ],
)
def test_files_that_are_no_checkpoints_are_refused(tmp_path, content, suffix, message):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        fc.FilterStatistics.from_checkpoint(path)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_truncated_checkpoints_are_refused(net, tmp_path, suffix):
    path = tmp_path / f"net{suffix}"
    write_state_dict(net.state_dict(), path)
    data = path.read_bytes()
    for length in (1, 9, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            fc.FilterStatistics.from_checkpoint(path)


@pytest.mark.parametrize("content", [{"state_dict": {}}, [1, 2], {"a": 1}, {"fc.weight": torch.ones(3, 3)}])
def test_checkpoints_without_depthwise_weights_are_refused(tmp_path, content):
    torch.save(content, tmp_path / "net.pth")
    with pytest.raises(CheckpointError, match="needed"):
        fc.FilterStatistics.from_checkpoint(tmp_path / "net.pth")


def test_a_path_to_nothing_or_to_a_directory_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="found nothing"):
        fc.FilterStatistics.from_checkpoint(tmp_path / "missing.pth")
    with pytest.raises(CheckpointError, match="is a directory without a checkpoint"):
        fc.FilterStatistics.from_checkpoint(tmp_path)
