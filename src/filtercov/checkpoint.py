"""Read depthwise weights out of other people's files, without their code and without trusting them.

`.safetensors` is read as it is; everything else goes through `torch.load(weights_only=True)`, which cannot run code. A
depthwise weight is recognised by its name, ending in `weight`, and its shape (channels, 1, *kernel_size).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from filtercov.errors import CheckpointError
from filtercov.layers import clean_name
from filtercov.replacing import replacing

# Where trainers put the weights of a model inside a checkpoint, the one to prefer first.
STATE_DICT_KEYS = ("state_dict", "model", "model_state_dict", "model_state", "net", "network", "module", "params")
AVERAGED_KEYS = ("state_dict_ema", "model_ema", "ema_state_dict", "ema", "params_ema")


@dataclass(frozen=True)
class DepthwiseWeights:
    """Depthwise weights by name, in the model's order as far as the file tells it, and notes on what was ambiguous."""

    tensors: dict[str, Tensor]
    notes: tuple[str, ...]


def read_depthwise_weights(path: Path) -> DepthwiseWeights:
    """Return the depthwise weights of a checkpoint; weights tied to an earlier one are left out and noted."""
    state, notes = read_state_dict(path)
    candidates = {
        clean_name(name.removesuffix(".weight")): tensor
        for name, tensor in state.items()
        if _looks_depthwise(name, tensor)
    }
    if not candidates:
        raise CheckpointError(
            f"{path}: needed depthwise weights, (channels, 1, kernel height, kernel width) or the 1-D or 3-D like, "
            f"found none among its {len(state)} tensors"
        )
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


def read_state_dict(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of a checkpoint by name, and notes on which of several state dicts they are."""
    if not path.is_file():
        raise CheckpointError(
            f"{path}: needed a checkpoint file, found {'a directory' if path.is_dir() else 'nothing'}"
        )
    try:
        if path.suffix == ".safetensors":
            tensors = safetensors.torch.load_file(path)
            # The format sorts tensors by name, so blocks.10 comes before blocks.2; people count the other way.
            return dict(sorted(tensors.items(), key=lambda item: _natural(item[0]))), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise many kinds of error for a bad file
        raise CheckpointError(f"{path}: {_why_unreadable(error)}") from None
    dicts = dict(_state_dicts(content))
    if not dicts:
        raise CheckpointError(f"{path}: needed a state dict of tensors, found {type(content).__name__} without one")
    chosen = next(iter(dicts))
    others = [key for key in dicts if key != chosen]
    notes = [f"read {chosen!r}; the file also holds {', '.join(map(repr, others))}"] if others else []
    return dicts[chosen], notes


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


def _state_dicts(content: Any, key: str = "") -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield every dictionary of tensors with the key it lies under, the one to prefer first."""
    if not isinstance(content, Mapping):
        return
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if tensors:
        yield key or "the top level", tensors
    for name in (*STATE_DICT_KEYS, *AVERAGED_KEYS):
        if name in content:
            yield from _state_dicts(content[name], f"{key}.{name}" if key else name)


def _looks_depthwise(name: str, tensor: Tensor) -> bool:
    return (
        name.split(".")[-1] == "weight"
        and tensor.is_floating_point()
        and 3 <= tensor.ndim <= 5
        and tensor.shape[1] == 1
        and tensor.numel() > 0
    )


def _tied(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and (a.data_ptr() == b.data_ptr() or torch.equal(a, b))


def _natural(name: str) -> list[tuple[int, str | int]]:
    return [(1, int(part)) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _why_unreadable(error: Exception) -> str:
    text = str(error)
    if "weights_only" in text:
        named = re.search(r"GLOBAL ([\w.]+)", text)
        damaged = "" if named else "is damaged, of another kind, or "
        what = f" ({named.group(1)})" if named else ""
        return (
            f"it {damaged}holds Python objects{what} beside tensors, which could run code and are not loaded; save "
            "only the state dict, best as .safetensors"
        )
    first_line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return f"cannot be read as a checkpoint, it may be truncated or of another kind ({first_line[:160]})"
