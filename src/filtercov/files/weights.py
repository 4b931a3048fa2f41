"""Write state dicts for others to read: all or nothing, with the model's order where a format forgets it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from filtercov.errors import CheckpointError
from filtercov.files import sealed
from filtercov.files.replacing import replacing

WEIGHTS = sealed.Kind(format="filtercov-weights", schema=1, called="file of weights", advice="get it again")


def write_state_dict(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict to .safetensors or .pth, all of it or nothing."""
    if path.suffix not in (".safetensors", ".pth"):
        raise CheckpointError(f"{path}: needed a name ending in .safetensors or .pth")
    try:
        if path.suffix == ".safetensors":
            seal_tensors(path, WEIGHTS, state, {})
        else:
            with replacing(path) as temporary, temporary.open("wb") as file:  # of a path torch would note the name
                torch.save(dict(state), file)
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise CheckpointError(
            f"{path}: cannot be written ({getattr(error, 'strerror', None) or error}); nothing was changed"
        ) from None


def seal_tensors(path: Path, kind: sealed.Kind, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> str:
    """Write tensors of any type and device to a sealed file, with their order, and return its checksum.

    safetensors sorts tensors by name, so their order is kept in the description, for those who measure by depth. They
    are serialised in memory: its own writer maps the file, and a full disk would be a signal.
    """
    save = partial(safetensors.torch.save, _separate(tensors))
    return sealed.write(path, kind, save, {"order": list(tensors), **description})


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors on the CPU, contiguous, and copied where they share memory, which safetensors refuses."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if place in seen else plain
        seen.add(place)
    return separate
