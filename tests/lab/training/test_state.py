"""The checkpoint file: complete and unchanged, or refused."""

import random

import pytest
import torch
from safetensors.torch import save_file

from filtercov.errors import CheckpointError
from filtercov.lab.training import load_checkpoint, save_checkpoint
from filtercov.lab.training.state import read_checksum


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
        "a view": shared[1:],
    }


def test_what_is_read_is_what_was_written_in_its_order(tmp_path):
    written = tensors()
    checksum = save_checkpoint(tmp_path / "c", written, {"step": 3, "list": [1.5, None]})
    read, values = load_checkpoint(tmp_path / "c")
    assert values == {"step": 3, "list": [1.5, None]}
    assert list(read) == list(written)
    for name, tensor in written.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
    assert read_checksum(tmp_path / "c") == checksum
    assert save_checkpoint(tmp_path / "same", written, {"step": 3, "list": [1.5, None]}) == checksum
    assert save_checkpoint(tmp_path / "other", written, {"step": 4}) != checksum


def test_changed_or_missing_bytes_are_detected(tmp_path):
    path = tmp_path / "c"
    save_checkpoint(path, tensors(), {"step": 3})
    original = path.read_bytes()
    rng = random.Random(0)
    for position in (*range(0, len(original), 5), len(original) - 1):
        damaged = bytearray(original)
        damaged[position] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_checkpoint(path)
    for length in range(0, len(original), 50):
        path.write_bytes(original[:length])
        with pytest.raises(CheckpointError):
            read_checksum(path)


def test_a_missing_old_or_foreign_file_is_refused_with_its_path(tmp_path):
    (tmp_path / "pickle").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    save_file({"w": torch.ones(2)}, tmp_path / "foreign")
    save_file({"w": torch.ones(2)}, tmp_path / "old", metadata={"format": "filtercov-checkpoint-1", "values": "{}"})
    for name in ("nowhere", "pickle", "foreign", "old"):
        with pytest.raises(CheckpointError, match=name):
            load_checkpoint(tmp_path / name)
