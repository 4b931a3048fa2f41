"""A file of tensors and plain values that is complete, unchanged and safe to read, or refused.

The container is safetensors; the values are JSON in its metadata, and a SHA-256 over names, types, shapes, bytes and
values detects any change.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from filtercov.errors import CheckpointError
from filtercov.lab.training.storage import write_atomic

FORMAT = "filtercov-checkpoint-1"
ORDER = "filtercov.order"  # by which other readers know it too


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> str:
    """Write tensors and JSON-ready values to `path` atomically; return their SHA-256.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     digest = save_checkpoint(Path(folder) / "a.safetensors", {"w": torch.ones(2)}, {"step": 3})
    ...     load_checkpoint(Path(folder) / "a.safetensors")
    ({'w': tensor([1., 1.])}, {'step': 3})
    """
    # Serialised in memory and written by us: safetensors' own writer maps the file, and a full disk would be a signal.
    # Copied, because the container refuses tensors that share memory, as tied weights do.
    plain = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    text = json.dumps(values, sort_keys=True, allow_nan=False)
    digest = _digest(plain, text)
    # The container sorts tensors by name; the order of layers is kept beside them for those who measure by depth.
    metadata = {"format": FORMAT, "values": text, "sha256": digest, ORDER: json.dumps(list(plain))}
    write_atomic(path, save(plain, metadata=metadata))
    return digest


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and values of a file written by `save_checkpoint`, after checking every byte of them."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise _damaged(path, f"its format is {metadata.get('format')!r}, not {FORMAT!r}")
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a mapping
        text = metadata["values"]
        if metadata["sha256"] != _digest(tensors, text):
            raise _damaged(path, "its checksum does not match its contents")
        order = json.loads(metadata.get(ORDER, "null")) or list(tensors)
        if sorted(order) != sorted(tensors):
            raise _damaged(path, "the order it holds is not of its tensors")
        return {name: tensors[name] for name in order}, json.loads(text)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise _damaged(path, str(error)) from error


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"cannot read the checkpoint {path}: {reason}; restore it or delete its run to start again")
