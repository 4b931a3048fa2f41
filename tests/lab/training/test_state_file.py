import random

import pytest
import torch

from filtercov.errors import CheckpointError
from filtercov.lab.training import load_checkpoint, save_checkpoint


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
    original, contents = path.read_bytes(), load_checkpoint(path)
    rng = random.Random(0)
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            read = load_checkpoint(path)
        except CheckpointError:
            continue
        # Only what does not matter, such as white space in the header, may change unnoticed.
        assert read[1] == contents[1]
        assert all(torch.equal(read[0][name], tensor) for name, tensor in contents[0].items())
    for length in range(0, len(original), 7):
        path.write_bytes(original[:length])
        with pytest.raises(CheckpointError):
            load_checkpoint(path)


def test_a_missing_or_foreign_file_is_refused_with_its_path(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        load_checkpoint(tmp_path / "nowhere")
    (tmp_path / "pickle").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(CheckpointError, match="pickle"):
        load_checkpoint(tmp_path / "pickle")
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2)}, tmp_path / "foreign")
    with pytest.raises(CheckpointError, match="format"):
        load_checkpoint(tmp_path / "foreign")
