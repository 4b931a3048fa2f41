"""Find the depthwise weights in a checkpoint, and write checkpoints.

A depthwise weight is recognised by its name, ending in `weight`, and its shape (channels, 1, *kernel_size).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from filtercov.depthwise.foreign import read_state_dict
from filtercov.depthwise.nested import looks_depthwise, plain_names
from filtercov.errors import CheckpointError
from filtercov.layers import clean_name
from filtercov.replacing import replacing


@dataclass(frozen=True)
class DepthwiseWeights:
    """Depthwise weights by name, in the model's order as far as the file tells it, and notes on what was ambiguous."""

    tensors: dict[str, Tensor]
    notes: tuple[str, ...]


def read_depthwise_weights(path: Path) -> DepthwiseWeights:
    """Return the depthwise weights of a checkpoint; weights tied to an earlier one are left out and noted."""
    state = read_state_dict(path)
    notes = list(state.notes)
    found = [(name, tensor) for name, tensor in state.tensors.items() if looks_depthwise(name, tensor)]
    if not found:
        raise CheckpointError(
            f"{path}: needed depthwise weights, (channels, 1, kernel height, kernel width) or the 1-D or 3-D like, "
            f"found none among its {len(state.tensors)} tensors"
        )
    if not state.in_model_order:  # sorted by name, blocks.10 comes before blocks.2; people count the other way
        found.sort(key=lambda item: _natural(item[0]))
    names = plain_names([clean_name(name.removesuffix(".weight")) for name, _ in found])
    candidates = dict(zip(names, (tensor for _, tensor in found), strict=True))
    kept: dict[str, Tensor] = {}
    for name, tensor in candidates.items():
        twin = next((other for other, seen in kept.items() if _tied(seen, tensor)), None)
        if twin is None:
            kept[name] = tensor
        else:
            notes.append(f"{name} is tied to {twin}; counted once")
    first, *others = kept
    if others and kept[first].shape[2:] not in {kept[name].shape[2:] for name in others}:
        notes.append(f"{first} may be a dense convolution of one-channel images: shape alone cannot tell")
    return DepthwiseWeights(kept, tuple(notes))


def write_state_dict(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict to .safetensors or .pth, all of it or nothing."""
    if path.suffix not in (".safetensors", ".pth"):
        raise CheckpointError(f"{path}: needed a name ending in .safetensors or .pth")
    try:
        with replacing(path) as temporary:
            if path.suffix == ".safetensors":  # which refuses tensors that share memory, so each gets its own
                tensors = {name: tensor.clone().contiguous() for name, tensor in state.items()}
                safetensors.torch.save_file(tensors, temporary)
            else:
                torch.save(dict(state), temporary)
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written ({error}); nothing was changed") from None


def _tied(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and (a.data_ptr() == b.data_ptr() or torch.equal(a, b))


def _natural(name: str) -> list[tuple[int, str | int]]:
    return [(1, int(part)) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
