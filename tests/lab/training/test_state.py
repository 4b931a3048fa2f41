"""The checkpoint file: complete and unchanged, or refused. `tests/test_files.py` looks at every byte of such files."""

import pytest
import torch

from filtercov.errors import CheckpointError
from filtercov.lab.training import load_checkpoint, save_checkpoint
from filtercov.lab.training.state import read_checksum


def test_what_is_read_is_what_was_written_in_its_order_or_is_refused(tmp_path):
    shared, path = torch.linspace(-1, 1, 3), tmp_path / "c"
    written = {
        "float": torch.arange(48.0).view(4, 3, 2, 2).to(memory_format=torch.channels_last),
        "half": torch.linspace(0, 1, 5).to(torch.bfloat16),
        "count": torch.tensor(7),
        "empty": torch.zeros(0, 4),
        "mask": torch.tensor([True, False]),
        "tied": shared,
        "tied too": shared,
        "a view": shared[1:],
    }
    values = {"step": 3, "list": [1.5, None]}
    checksum = save_checkpoint(path, written, values)
    read, read_values = load_checkpoint(path)
    assert read_values == values
    assert list(read) == list(written)
    for name, tensor in written.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
    assert read_checksum(path) == checksum == save_checkpoint(tmp_path / "same", written, values)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    for read_file in (load_checkpoint, read_checksum):
        with pytest.raises(CheckpointError):
            read_file(path)
