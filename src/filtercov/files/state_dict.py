"""Write state dicts for others to read: all or nothing, with the model's order where a format forgets it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from filtercov.errors import CheckpointError
from filtercov.files.replacing import replacing


def write_state_dict(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict to .safetensors or .pth, all of it or nothing."""
    if path.suffix not in (".safetensors", ".pth"):
        raise CheckpointError(f"{path}: needed a name ending in .safetensors or .pth")
    try:
        with replacing(path) as temporary:
            if path.suffix == ".safetensors":  # which refuses tensors that share memory, so each gets its own
                tensors = {name: tensor.clone().contiguous() for name, tensor in state.items()}
                safetensors.torch.save_file(tensors, temporary, {"filtercov.order": json.dumps(list(tensors))})
            else:
                torch.save(dict(state), temporary)
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written ({error}); nothing was changed") from None
