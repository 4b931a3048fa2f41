"""The checkpoint file: complete and unchanged, or refused. `tests/test_files.py` looks at every byte of such files."""

import pytest
import torch

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
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-1] + b"?")
    for read_file in (load_checkpoint, read_checksum):
        with pytest.raises(CheckpointError):
            read_file(tmp_path / "c")
