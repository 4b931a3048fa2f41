"""Any file that `torch.save` wrote: its contents, and its tensors, mapped and not read.

The file is mapped into memory, privately, so that only what is looked at is ever read, and no tensor can have more
numbers than the file.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import torch
from torch import Tensor

from filtercov.depthwise.inert_pickle import Pickled
from filtercov.depthwise.stored import StoredTensor
from filtercov.depthwise.torch_archive import SIGNATURE, TorchArchive
from filtercov.depthwise.torch_stream import TorchStream
from filtercov.errors import CheckpointError


class TorchFile:
    """A file of PyTorch's: `pickled.content` has a `StoredTensor` for every tensor, which `tensor` turns into one."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            archive = self._mapped[: len(SIGNATURE)] == SIGNATURE
            self._layout = TorchArchive(self._mapped, file) if archive else TorchStream(self._mapped)
        self.pickled: Pickled = self._layout.pickled
        self._storages: dict[tuple[str, torch.dtype], Tensor] = {}

    def tensor(self, stored: StoredTensor) -> Tensor:
        """Return a tensor of the file; tensors of one storage share memory, as they did when they were saved."""
        if not stored.numel():
            return torch.empty(stored.shape, dtype=stored.dtype)
        numbers = self._storage(stored.storage.key, stored.dtype)
        if stored.end > len(numbers):
            raise CheckpointError("is truncated: the file ends before its tensors do; get it again")
        return numbers.as_strided(stored.shape, stored.stride, stored.first)

    def _storage(self, key: str, dtype: torch.dtype) -> Tensor:
        if (key, dtype) not in self._storages:
            where, length = self._layout.place(key)
            count = length // dtype.itemsize
            if count == 0:
                return torch.empty(0, dtype=dtype)
            numbers = torch.frombuffer(self._mapped, dtype=torch.uint8, count=count * dtype.itemsize, offset=where)
            aligned = numbers.clone() if where % dtype.itemsize else numbers
            self._storages[key, dtype] = aligned.view(dtype)
        return self._storages[key, dtype]
