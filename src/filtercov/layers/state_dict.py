"""Read and write state dicts in the formats people share: .safetensors, torch.save's, directories and shards.

Files from others are hostile. Nothing in them is executed, and memory stays within the limits of `filtercov.files`:
tensors are mapped, not read, until they are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from filtercov.errors import CheckpointError, naming
from filtercov.files import DESCRIPTION, NAME, Kind, atomic_write, read_description, write_checksummed
from filtercov.layers.torch_file import Held, load_inertly, too_long
from filtercov.printable import shortened


@dataclass(frozen=True)
class StateDict:
    """Tensors by name, in the order of their file or network, and notes on what was guessed.

    `in_model_order` is false where the format sorts names, so that the order says nothing of the network's.
    """

    tensors: dict[str, Tensor]
    notes: tuple[str, ...] = ()
    in_model_order: bool = True


def read_state_dict(path: Path) -> StateDict:
    """The weights that a checkpoint holds, wherever they are nested in it.

    >>> import tempfile
    >>> saved = Path(tempfile.mkdtemp(), "net.pth")
    >>> torch.save({"epoch": 3, "net": {"conv.weight": torch.zeros(8, 1, 5, 5)}}, saved)
    >>> state = read_state_dict(saved)
    >>> list(state.tensors)
    ['conv.weight']
    """
    try:
        with naming(path):
            file = _in_directory(path) if path.is_dir() else path
        with naming(file):
            return _read_shards(file) if file.name.endswith(INDEX) and file.is_file() else _read_file(file)
    except CheckpointError:
        raise
    except Exception as error:  # torch, safetensors, zipfile and pickle raise many kinds of error for a bad file
        reason = shortened(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}", 160)
        raise CheckpointError(
            f"{path}: cannot be read as a checkpoint, it may be truncated or of another kind ({reason})"
        ) from None


def is_depthwise_weight(name: str, tensor: Tensor) -> bool:
    """Whether a tensor is called weight and shaped (channels, 1, *kernel_size) in 1, 2 or 3 dimensions.

    One channel is dense, as in attention modules; (channels, 1, 1) is a norm's or a scale. Some dense and transposed
    convolutions have such weights too.
    """
    shaped = 3 <= tensor.ndim <= 5 and len(tensor) > 1 and tensor.shape[1] == 1 and tensor.shape[1:] != (1, 1)
    return shaped and name.rpartition(".")[2] == "weight"


LFS = b"version https://git-lfs.github.com/spec/"


def _read_file(path: Path) -> StateDict:
    if not path.is_file():
        raise CheckpointError(f"needed a checkpoint file, found {'something else' if path.exists() else 'nothing'}")
    with path.open("rb") as file:
        start = file.read(len(LFS))
    if start == LFS:
        raise CheckpointError("is a pointer of Git LFS and not the file itself; fetch that with `git lfs pull`")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    longest = max(map(len, state.tensors), default=0)
    if longest > NAME:
        raise CheckpointError(f"has a tensor with a name of {longest} characters; needed at most {NAME}")
    return state


def _read_safetensors(path: Path) -> StateDict:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if DESCRIPTION < length < path.stat().st_size:
        raise too_long(length)
    with safetensors.safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    order = read_description(path).get("order")  # in files that filtercov wrote
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(tensors):
        return StateDict(tensors, in_model_order=False)
    return StateDict({name: tensors[name] for name in order})


# --- Directories and shards, as the Hugging Face hub lays them out ---

INDEX = ".index.json"
ENDINGS = (".safetensors.index.json", ".safetensors", ".bin.index.json", ".bin", ".pth", ".pt", ".ckpt")
USUAL = ("model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin")
OWN = "checkpoint.safetensors"  # in the directory of a run


def _in_directory(directory: Path) -> Path:
    """The checkpoint, or the index of one, that a directory holds: under a usual name, or the only one."""
    files = sorted(path for path in directory.iterdir() if path.is_file())
    groups = [[path for path in files if path.name == name] for name in (*USUAL, OWN)]
    groups += [[path for path in files if path.name.endswith(ending)] for ending in ENDINGS]
    found: list[Path] = next(filter(None, groups), [])
    if len(found) != 1:
        names = ", ".join(shortened(path.name) for path in found[:3])
        raise CheckpointError(
            f"is a directory with {len(found)} checkpoints{f' ({names}…)' if found else ''}; name one of them, or "
            f"a directory with {USUAL[1]} or {USUAL[3]}"
        )
    return found[0]


def _read_index(path: Path) -> dict[Path, list[str]]:
    """The shards that an index lists, in order, each with the tensors it should hold."""
    with path.open("rb") as file:
        data = file.read(DESCRIPTION + 1)
    if len(data) > DESCRIPTION:
        raise too_long(path.stat().st_size)
    content = json.loads(data)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError("is no index of shards: needed a weight_map from names of tensors to names of files")
    shards: dict[Path, list[str]] = {}
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not name.endswith(ENDINGS) or set(name) & set("/\\:\0"):
            raise CheckpointError(
                f"lists {shortened(repr(name))} as a shard, which is not the name of a checkpoint beside it; get it "
                "again"
            )
        shards.setdefault(path.parent / name, []).append(tensor)
    return dict(sorted(shards.items()))


def _read_shards(index: Path) -> StateDict:
    """The tensors of all shards; in the model's order if each is, because models are cut up in order."""
    tensors: dict[str, Tensor] = {}
    ordered = True
    for shard, names in _read_index(index).items():
        with naming(f"its shard {shard.name}"):
            read, wanted = _read_file(shard), set(names)
            if missing := wanted - read.tensors.keys():
                raise CheckpointError(f"has no {shortened(min(missing))!r}; get it again")
        tensors |= {name: tensor for name, tensor in read.tensors.items() if name in wanted}
        ordered &= read.in_model_order
    return StateDict(tensors, in_model_order=ordered)


# --- torch.save's files ---

EMA = re.compile(r"(?<![a-z])(ema|swa|avg|averaged?|polyak|shadow)(?![a-z])", re.IGNORECASE)
OPTIMISER = re.compile(r"optim|momentum|exp_avg|grad", re.IGNORECASE)
NESTING = 32  # dictionaries inside one another that are searched for weights


def _read_torch(path: Path) -> StateDict:
    """The dictionary with the most depthwise weights; an EMA's or an optimiser's only where no other has any."""
    found = dict(_dictionaries(load_inertly(path)))
    if not found:
        raise CheckpointError(
            "needed a state dict of dense tensors, found none; save model.state_dict(), its weights gathered and not "
            "quantised, best as .safetensors"
        )
    weights = {place: sum(map(is_depthwise_weight, tensors, tensors.values())) for place, tensors in found.items()}

    def preference(place: str) -> tuple[bool, bool, bool, int]:
        return not weights[place], bool(OPTIMISER.search(place)), bool(EMA.search(place)), -weights[place]

    chosen = min(found, key=preference)
    others = [_show(place) for place in found if weights[place] and place != chosen]
    note = f"read {_show(chosen)}; the file also holds {shortened(', '.join(others))}"
    return StateDict(found[chosen], (note,) if others else ())


def _show(place: str) -> str:
    where = repr(place) if place else "the top level"
    return f"{where} (EMA weights)" if EMA.search(place) else where


def _dictionaries(content: Any) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield place (keys joined by dots) and tensors of every dictionary that has some, outermost first, each once."""
    level: list[tuple[str, Any]] = [("", content)] if isinstance(content, Mapping) else []
    seen: set[int] = set()
    for _ in range(NESTING):
        inner = []
        for place, holder in level:
            held = {name: one.value for name, one in holder.items() if isinstance(name, str) and type(one) is Held}
            if tensors := {name: value for name, value in held.items() if isinstance(value, Tensor)}:
                yield place, tensors
            for key, one in holder.items():
                if isinstance(one, Mapping) and one and id(one) not in seen:  # millions may be empty
                    seen.add(id(one))
                    name = shortened(str(key))  # one long key may lead to many dictionaries
                    inner.append((shortened(f"{place}.{name}") if place else name, one))
        level = inner


# --- Writing ---

WEIGHTS = Kind(format="filtercov-weights", schema=1, called="file of weights", advice="get it again")


def write_state_dict(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict to .safetensors or .pth, all of it or nothing."""
    if path.suffix not in (".safetensors", ".pth"):
        raise CheckpointError(f"{path}: needed a name ending in .safetensors or .pth")
    try:
        if path.suffix == ".safetensors":
            write_tensors(path, WEIGHTS, state, {})
        else:
            with atomic_write(path) as temporary, temporary.open("wb") as file:  # given a path, torch notes its name
                torch.save(dict(state), file)
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise CheckpointError(
            f"{path}: cannot be written ({getattr(error, 'strerror', None) or error}); nothing was changed"
        ) from None


def write_tensors(path: Path, kind: Kind, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> str:
    """Write tensors of any type and device to a checksummed file, and return the checksum.

    safetensors sorts tensors by name, so the description keeps their order. It also refuses tensors that share memory,
    so those are copied. They are serialised in memory: its own writer maps the file, and a full disk would be a signal.
    """
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        separate[name] = plain.clone() if place in seen else plain
        seen.add(place)
    save = partial(safetensors.torch.save, separate)
    return write_checksummed(path, kind, save, {"order": list(tensors), **description})
