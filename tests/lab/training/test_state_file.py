import random

import pytest
import torch
from safetensors.torch import save_file

from filtercov.errors import CheckpointError
from filtercov.lab.training import load_checkpoint, save_checkpoint
from filtercov.lab.training.state_file import read_checksum


def tensors():
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(3, generator=generator)
    return {
        "float": torch.randn(4, 3, 2, 2, generator=generator).to(memory_format=torch.channels_last),
        "half": torch.randn(5, generator=generator).to(torch.bfloat16),
        "count": torch.tensor(7),
        "empty": torch.zeros(0, 4),
        "mask": torch.tensor([True, False]),
        "tied": shared,
        "tied too": shared,
        "view": shared[1:],
    }


def test_what_is_read_is_what_was_written(tmp_path):
    written = tensors()
    save_checkpoint(tmp_path / "c", written, {"step": 3, "list": [1.5, None]})
    read, values = load_checkpoint(tmp_path / "c")
    assert values == {"step": 3, "list": [1.5, None]}
    assert read.keys() == written.keys()
    for name, tensor in written.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)


def test_the_digest_is_of_the_contents(tmp_path):
    first = save_checkpoint(tmp_path / "a", tensors(), {"step": 3})
    assert save_checkpoint(tmp_path / "b", tensors(), {"step": 3}) == first
    assert save_checkpoint(tmp_path / "c", tensors(), {"step": 4}) != first
    changed = tensors()
    changed["count"] = torch.tensor(8)
    assert save_checkpoint(tmp_path / "d", changed, {"step": 3}) != first


def test_every_changed_or_missing_byte_is_detected(tmp_path):
    path = tmp_path / "c"
    save_checkpoint(path, tensors(), {"step": 3})
    original = path.read_bytes()
    rng = random.Random(0)
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_checkpoint(path)
    for length in range(0, len(original), 7):
        path.write_bytes(original[:length])
        with pytest.raises(CheckpointError):
            load_checkpoint(path)


def test_the_checksum_of_a_file_is_what_was_returned_when_it_was_written(tmp_path):
    written = save_checkpoint(tmp_path / "c", tensors(), {"step": 3})
    assert read_checksum(tmp_path / "c") == written
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="do not match its checksum"):
        read_checksum(tmp_path / "c")


def test_what_is_not_written_leaves_what_was_there(tmp_path):
    save_checkpoint(tmp_path / "c", tensors(), {"step": 3})
    with pytest.raises(ValueError, match="JSON"):
        save_checkpoint(tmp_path / "c", tensors(), {"step": float("nan")})
    too_many = {"n" * 1000 + str(i): torch.zeros(1) for i in range(5000)}
    with pytest.raises(CheckpointError, match=r"described in at most 8\.4 MB, got 10 MB"):
        save_checkpoint(tmp_path / "c", too_many, {})
    assert load_checkpoint(tmp_path / "c")[1] == {"step": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_checkpoint_of_the_first_format_is_refused_with_what_to_do(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "old", metadata={"format": "filtercov-checkpoint-1", "values": "{}"})
    with pytest.raises(CheckpointError, match=r"not a filtercov checkpoint of this version.*delete its run to start"):
        load_checkpoint(tmp_path / "old")


def test_a_missing_or_foreign_file_is_refused_with_its_path(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        load_checkpoint(tmp_path / "nowhere")
    (tmp_path / "pickle").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(CheckpointError, match="pickle"):
        load_checkpoint(tmp_path / "pickle")
    save_file({"w": torch.ones(2)}, tmp_path / "foreign")
    with pytest.raises(CheckpointError, match="not a filtercov checkpoint"):
        load_checkpoint(tmp_path / "foreign")
