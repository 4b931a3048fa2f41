"""The order of layers in files whose format sorts names."""

import json
import struct

import pytest
import safetensors.torch
import torch
from torch import nn

import filtercov as fc
from filtercov.files.weights import write_state_dict
from filtercov.lab.training import load_checkpoint, save_checkpoint
from filtercov.layer_names import looks_built


class Net(nn.Module):
    """Names that sort against their order: stages before stem, 10 before 2, blocks before downsample."""

    def __init__(self):
        super().__init__()
        self.stem = nn.ModuleList([nn.Conv2d(3, 8, 3), self.depthwise()])
        self.stages = nn.ModuleList(
            nn.ModuleDict({"downsample": self.depthwise(), "mixer": self.depthwise(), "mlp": self.depthwise()})
            for _ in range(11)
        )
        self.final = self.depthwise()

    @staticmethod
    def depthwise():
        return nn.Conv2d(8, 8, 5, groups=8)


class Unguessable(nn.Module):
    def __init__(self):
        super().__init__()
        self.zebra = nn.ModuleList(nn.Conv2d(3 if i == 0 else 8, 8, 3) for i in range(4))
        self.yak = Net.depthwise()
        self.ant = Net.depthwise()


def names(path, **kwargs):
    return [layer.name for layer in fc.FilterStatistics.from_checkpoint(path, **kwargs).layers]


def notes(path, **kwargs):
    return fc.FilterStatistics.from_checkpoint(path, **kwargs).notes


def model_names(net):
    return [layer.name for layer in fc.depthwise_layers(net)]


def write_as_given(state, path):
    """Write .safetensors with the tensors laid out in the order of the dictionary, as writers other than its own do."""
    header, data = {}, b""
    for name, tensor in state.items():
        content = tensor.contiguous().numpy().tobytes()
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_stems_come_first_heads_last_and_numbers_count(tmp_path):
    net = Net()
    safetensors.torch.save_file(net.state_dict(), tmp_path / "net.safetensors")
    assert names(tmp_path / "net.safetensors") == model_names(net)
    [note] = notes(tmp_path / "net.safetensors")
    assert note.startswith("the file does not say in which order its layers come: it was guessed from their names")


def test_a_model_settles_the_order(tmp_path):
    net = Unguessable()
    safetensors.torch.save_file(net.state_dict(), tmp_path / "net.safetensors")
    assert names(tmp_path / "net.safetensors") == ["ant", "yak"]
    assert notes(tmp_path / "net.safetensors")
    assert names(tmp_path / "net.safetensors", like=net) == ["yak", "ant"]
    assert notes(tmp_path / "net.safetensors", like=net) == ()


def test_one_numbered_series_needs_no_note(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), *(Net.depthwise() for _ in range(11)))
    safetensors.torch.save_file(net.state_dict(), tmp_path / "net.safetensors")
    assert names(tmp_path / "net.safetensors") == model_names(net)
    assert notes(tmp_path / "net.safetensors") == ()


@pytest.mark.parametrize(
    "write", [write_state_dict, lambda state, path: save_checkpoint(path, state, {})], ids=["weights", "training"]
)
def test_files_that_filtercov_writes_keep_the_order(write, tmp_path):
    net = Unguessable()
    write(net.state_dict(), tmp_path / "net.safetensors")
    assert names(tmp_path / "net.safetensors") == ["yak", "ant"]
    assert notes(tmp_path / "net.safetensors") == ()


def test_a_training_checkpoint_is_read_back_in_its_order(tmp_path):
    state = Unguessable().state_dict()
    save_checkpoint(tmp_path / "net.safetensors", state, {})
    assert list(load_checkpoint(tmp_path / "net.safetensors")[0]) == list(state)


def test_a_file_that_is_laid_out_as_a_model_is_read_in_that_order(tmp_path):
    net = Unguessable()
    write_as_given(net.state_dict(), tmp_path / "net.safetensors")
    assert names(tmp_path / "net.safetensors") == ["yak", "ant"]
    [note] = notes(tmp_path / "net.safetensors")
    assert "it is the one its tensors lie in" in note


def test_a_dictionary_that_was_sorted_before_it_was_saved_is_put_in_order_again(tmp_path):
    net = Net()
    torch.save(dict(sorted(net.state_dict().items())), tmp_path / "net.pth")
    assert names(tmp_path / "net.pth") == model_names(net)
    assert any("it was guessed from their names" in note for note in notes(tmp_path / "net.pth"))


def test_a_shuffled_file_is_not_taken_for_a_model(tmp_path):
    net = Net()
    state = net.state_dict()
    for seed in range(5):
        order = torch.randperm(len(state), generator=torch.Generator().manual_seed(seed)).tolist()
        shuffled = [list(state)[i] for i in order]
        assert not looks_built(shuffled)
        write_as_given({name: state[name] for name in shuffled}, tmp_path / "net.safetensors")
        assert names(tmp_path / "net.safetensors") == model_names(net)


def test_the_writer_of_safetensors_leaves_no_order_to_be_read(tmp_path):
    state = Unguessable().state_dict()
    safetensors.torch.save_file(state, tmp_path / "net.safetensors")
    with safetensors.safe_open(tmp_path / "net.safetensors", framework="pt") as file:
        assert file.offset_keys() == sorted(state)


@pytest.mark.parametrize("name", ["①", "²", "dw²", "٣"])
def test_names_may_have_digits_that_make_no_number(name, tmp_path):
    state = {f"{prefix}.{name}.{i}.weight": torch.randn(8, 1, 5, 5) for prefix in "ba" for i in range(3)}
    safetensors.torch.save_file(state, tmp_path / "net.safetensors")
    write_as_given(state, tmp_path / "as_given.safetensors")
    for file in ("net", "as_given"):
        assert sorted(names(tmp_path / f"{file}.safetensors")) == sorted(key[: -len(".weight")] for key in state)
