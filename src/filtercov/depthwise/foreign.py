"""Read the tensors of other people's files, without their code and without trusting them.

`.safetensors` is read as it is; everything else goes through `torch.load(weights_only=True)`, which cannot run code.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from filtercov.errors import CheckpointError

# Where trainers put the weights of a model inside a checkpoint, the one to prefer first.
STATE_DICT_KEYS = ("state_dict", "model", "model_state_dict", "model_state", "net", "network", "module", "params")
AVERAGED_KEYS = ("state_dict_ema", "model_ema", "ema_state_dict", "ema", "params_ema")


@dataclass(frozen=True)
class StateDict:
    """The tensors of a checkpoint by name, and what is known of their order."""

    tensors: dict[str, Tensor]
    notes: tuple[str, ...] = ()
    in_model_order: bool = True


def read_state_dict(path: Path) -> StateDict:
    """Return the tensors of a checkpoint by name, and notes on which of several state dicts they are."""
    if not path.is_file():
        raise CheckpointError(
            f"{path}: needed a checkpoint file, found {'a directory' if path.is_dir() else 'nothing'}"
        )
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
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
    notes = (f"read {chosen!r}; the file also holds {', '.join(map(repr, others))}",) if others else ()
    return StateDict(dicts[chosen], notes)


def _read_safetensors(path: Path) -> StateDict:
    with safetensors.safe_open(path, framework="pt") as file:
        laid_out = file.offset_keys()
        stored = json.loads((file.metadata() or {}).get("filtercov.order", "null"))
        ordered = isinstance(stored, list) and sorted(map(str, stored)) == sorted(laid_out)
        return StateDict(
            {name: file.get_tensor(name) for name in (stored if ordered else laid_out)}, in_model_order=ordered
        )


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
