"""Read the weights of a network out of anybody's files, without their code and without trusting them.

A checkpoint is a `.safetensors` or a file that `torch.save` wrote (any other name), a directory that holds one, or an
index of shards. Nothing in it is executed, and memory stays within `filtercov.files.limits` whatever it claims to hold:
tensors are mapped, not read, until they are used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from filtercov.depthwise.definition import has_depthwise_shape
from filtercov.depthwise.inert_pickle import Left
from filtercov.depthwise.nested import choose_weights, mappings
from filtercov.depthwise.shards import INDEX, in_directory, read_index
from filtercov.depthwise.stored import StoredTensor
from filtercov.depthwise.torch_file import TorchFile
from filtercov.errors import CheckpointError
from filtercov.files import sealed
from filtercov.files.limits import DESCRIPTION, NAME, show_bytes
from filtercov.printable import shortened

# What makes plain data: settings and measurements that lie beside weights, and are none by any name.
PLAIN = re.compile(
    r"(numpy|builtins|__builtin__|collections|pathlib|datetime|uuid|decimal|fractions)\.|torch\.(device|Size)$"
)

LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class StateDict:
    """The tensors of a network by the names of its file, in the file's order, and notes on what was ambiguous.

    `in_model_order` is false where the format sorts names, so that the order says nothing of the network's.
    """

    tensors: dict[str, Tensor]
    notes: tuple[str, ...]
    in_model_order: bool


def read_state_dict(path: Path) -> StateDict:
    """Return the weights that a checkpoint holds, wherever they are nested in it.

    >>> import tempfile, torch
    >>> saved = Path(tempfile.mkdtemp(), "net.pth")
    >>> torch.save({"epoch": 3, "net": {"conv.weight": torch.zeros(8, 1, 5, 5)}}, saved)
    >>> state = read_state_dict(saved)
    >>> list(state.tensors), state.notes
    (['conv.weight'], ("read 'net'",))
    """
    try:
        if path.is_dir():
            path = in_directory(path)
        return _read_shards(path) if path.name.endswith(INDEX) and path.is_file() else _read_file(path)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except Exception as error:  # torch, safetensors, zipfile and pickle raise many kinds of error for a bad file
        raise CheckpointError(f"{path}: {_why_unreadable(error)}") from None


def _read_shards(index: Path) -> StateDict:
    """Return the tensors of all shards; in the model's order if each is, because models are cut up in order."""
    tensors: dict[str, Tensor] = {}
    notes: dict[str, None] = {}
    ordered = True
    for shard, names in read_index(index).items():
        try:
            read = _read_file(shard)
        except CheckpointError as error:
            raise CheckpointError(f"its shard {shard.name}: {error}") from None
        missing = [name for name in names if name not in read.tensors]
        if missing:
            raise CheckpointError(f"its shard {shard.name} has no {shortened(missing[0])!r}; get it again")
        wanted = set(names)
        tensors |= {name: tensor for name, tensor in read.tensors.items() if name in wanted}
        notes |= dict.fromkeys(read.notes)
        ordered = ordered and read.in_model_order
    return StateDict(tensors, tuple(notes), ordered)


def _read_file(path: Path) -> StateDict:
    if not path.is_file():
        what = "nothing" if not path.exists() else "a directory" if path.is_dir() else "a device, a pipe or a socket"
        raise CheckpointError(f"needed a checkpoint file, found {what}")
    with path.open("rb") as file:
        start = file.read(len(LFS))
    if start == LFS:
        raise CheckpointError("is a pointer of Git LFS and not the file itself; fetch that with `git lfs pull`")
    if not start:
        raise CheckpointError("cannot be read as a checkpoint, it is empty; get it again")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    for name in state.tensors:
        if len(name) > NAME:
            raise CheckpointError(f"has a tensor with a name of {len(name)} characters; needed at most {NAME}")
    return state


def _read_safetensors(path: Path) -> StateDict:
    _check_header(path)
    with safetensors.safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.offset_keys()}
    order = sealed.claimed(path).get("order")
    if order is None:
        return StateDict(tensors, (), False)
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(tensors):
        note = "the order of layers stored in the file does not name its tensors and was not used"
        return StateDict(tensors, (note,), False)
    return StateDict({name: tensors[name] for name in map(str, order)}, (), True)


def _check_header(path: Path) -> None:
    """Refuse a file whose header is longer than is read; nothing else of it is looked at."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        size = os.fstat(file.fileno()).st_size
    if length > size - 8:
        raise CheckpointError("cannot be read as a checkpoint, it is truncated or no safetensors; get it again")
    if length > DESCRIPTION:
        raise CheckpointError(
            f"describes its tensors in {show_bytes(length)}, {show_bytes(DESCRIPTION)} is the most that is read; save "
            "only the weights"
        )


def _read_torch(path: Path) -> StateDict:
    file = TorchFile(path)
    content, left_out = file.pickled.content, file.pickled.left_out
    chosen = choose_weights(content, StoredTensor)
    place = chosen[0].keys if chosen is not None and chosen[0].depthwise else None
    left_weights = _left_weights([items for keys, items in mappings(content) if place in (None, keys)])
    if chosen is None:
        instead = f" but objects of Python's ({', '.join(left_out[:3])})" if left_out else ""
        raise CheckpointError(
            f"needed a state dict of tensors, found {_what(content)}{instead}; save model.state_dict(), best as "
            ".safetensors"
        )
    stored, notes = chosen[0].tensors, chosen[1] + left_weights
    for name, tensor in stored.items():
        if tensor.expanded and has_depthwise_shape(name, tensor):
            claimed = show_bytes(tensor.numel() * tensor.dtype.itemsize)
            raise CheckpointError(
                f"{shortened(name)} claims {claimed} that are not in the file (an expanded tensor); save it with "
                ".contiguous()"
            )
    tensors = {name: file.tensor(tensor) for name, tensor in stored.items() if not tensor.expanded}
    if len(tensors) < len(stored):
        notes.append(f"left out {len(stored) - len(tensors)} expanded tensors")
    return StateDict(tensors, tuple(notes), True)


def _left_weights(held: Sequence[dict[str, Any]]) -> list[str]:
    """Return a note on weights that are plain data and no tensors, if there are any.

    Raise for a weight that is a tensor of another kind: sparse, quantised, sharded, on the meta device.
    """
    left = [
        (shortened(name), value.name)
        for items in held
        for name, value in items.items()
        if isinstance(value, Left) and name.rpartition(".")[2] == "weight"
    ]
    for name, maker in left:
        if not PLAIN.match(maker):
            raise CheckpointError(
                f"{name} is no plain tensor but made by {maker}, as sparse, quantised, sharded and meta tensors are; "
                "save it as a dense tensor of numbers"
            )
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    return [f"left out {', '.join(name for name, _ in left[:3])}{more}: no tensor"] if left else []


def _what(content: object) -> str:
    if isinstance(content, StoredTensor):
        return "a tensor"
    what = "an object" if isinstance(content, Left) else type(content).__name__
    return f"{what} without one" if isinstance(content, Mapping | list | tuple) else what


def _why_unreadable(error: Exception) -> str:
    first_line = (str(error).strip().splitlines() or [""])[0]
    reason = shortened(f"{type(error).__name__}: {first_line}", 160)
    return f"cannot be read as a checkpoint, it may be truncated or of another kind ({reason})"
