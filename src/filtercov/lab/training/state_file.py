"""A checkpoint of training: a sealed file of tensors and plain values that is complete and unchanged, or refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from filtercov.errors import CheckpointError
from filtercov.files import Kind, open_checksummed
from filtercov.lab.training.storage import storage_error
from filtercov.layers.state_dict import write_tensors

KIND = Kind(
    format="filtercov-checkpoint",
    schema=2,
    called="checkpoint",
    advice="restore it or delete its run to start again",
)


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> str:
    """Write tensors and JSON-ready values to `path`, whole or not at all; return the file's checksum.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checksum = save_checkpoint(Path(folder) / "a.safetensors", {"w": torch.ones(2)}, {"step": 3})
    ...     load_checkpoint(Path(folder) / "a.safetensors")
    ({'w': tensor([1., 1.])}, {'step': 3})
    """
    try:
        return write_tensors(path, KIND, tensors, {"values": values})
    except OSError as error:
        raise storage_error(path, error) from error


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and values of a file written by `save_checkpoint`, after checking every byte of them."""
    with open_checksummed(path, KIND, "pt") as (file, about):
        order = about["order"]
        if sorted(order) != sorted(file.keys()):
            raise CheckpointError(f"{path}: the order it holds is not of its tensors; {KIND.advice}")
        # Copied, because the reader's are mapped, and Windows lets nobody replace a file that is.
        return {name: file.get_tensor(name).clone() for name in order}, dict(about["values"])


def read_checksum(path: Path) -> str:
    """Return the checksum of a file written by `save_checkpoint`, if its contents match it."""
    with open_checksummed(path, KIND, "pt") as (_, about):
        return str(about["sha256"])
