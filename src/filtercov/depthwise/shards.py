"""Checkpoints that are several files, as the Hugging Face hub lays them out: a directory, or an index of shards."""

from __future__ import annotations

import json
from pathlib import Path

from filtercov.errors import CheckpointError
from filtercov.files.limits import DESCRIPTION, show_bytes
from filtercov.printable import shortened

INDEX = ".index.json"
USUAL = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "checkpoint.safetensors",
)
ENDINGS = (".safetensors.index.json", ".safetensors", ".bin.index.json", ".bin", ".pth", ".pt", ".ckpt")


def in_directory(directory: Path) -> Path:
    """Return the checkpoint, or the index of one, that a directory holds: under a usual name, or the only one."""
    for name in USUAL:
        if (directory / name).is_file():
            return directory / name
    files = sorted(path for path in directory.iterdir() if path.is_file())
    for ending in ENDINGS:
        found = [path for path in files if path.name.endswith(ending)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(shortened(path.name) for path in found[:3])
            raise CheckpointError(f"is a directory with {len(found)} checkpoints ({names}…); name one of them")
    raise CheckpointError(f"is a directory without a checkpoint; needed {' or '.join(USUAL[1:4:2])}, or name a file")


def checkpoint_files(path: Path) -> list[Path]:
    """Return every file that a checkpoint is: itself, the one of a directory, or an index and its shards."""
    if path.is_dir():
        path = in_directory(path)
    return [path, *read_index(path)] if path.name.endswith(INDEX) else [path]


def read_index(path: Path) -> dict[Path, list[str]]:
    """Return the shards that an index lists, by name, each with the tensors it should hold.

    Shards lie beside the index: a name that leads anywhere else is refused.
    """
    with path.open("rb") as file:
        data = file.read(DESCRIPTION + 1)
    if len(data) > DESCRIPTION:
        raise CheckpointError(f"is an index of more than {show_bytes(DESCRIPTION)}, the most that is read")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise CheckpointError("is no index of shards: it cannot be read as JSON; get it again") from None
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError("is no index of shards: needed a weight_map from names of tensors to names of files")
    if not weight_map:
        raise CheckpointError("is an index of no shards; get it again")
    shards: dict[Path, list[str]] = {}
    for tensor, name in weight_map.items():
        shards.setdefault(path.parent / _beside(name), []).append(tensor)
    return dict(sorted(shards.items()))


def _beside(name: str) -> str:
    if name in ("", ".", "..") or set(name) & set("/\\:\0") or name.endswith(".json"):
        raise CheckpointError(
            f"lists {shortened(name)!r} as a shard, which is not the name of a checkpoint beside it; get it again"
        )
    return name
