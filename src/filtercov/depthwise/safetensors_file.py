"""Files of safetensors: their tensors, mapped and not read, in the order the writer gave if it gave one."""

from __future__ import annotations

import os
from pathlib import Path

import safetensors
from torch import Tensor

from filtercov.errors import CheckpointError
from filtercov.files import sealed
from filtercov.files.limits import DESCRIPTION, show_bytes


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], list[str], bool]:
    """Return the tensors by name, notes, and whether they are in the order of the model they came from."""
    check_header(path)
    with safetensors.safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.offset_keys()}
    order = sealed.claimed(path).get("order")
    if order is None:
        return tensors, [], False
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(tensors):
        return tensors, ["the order of layers stored in the file does not name its tensors and was not used"], False
    return {name: tensors[name] for name in map(str, order)}, [], True


def check_header(path: Path) -> None:
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
