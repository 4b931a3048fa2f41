"""Any file that `torch.save` wrote: its contents, and its tensors, mapped and not read.

Since PyTorch 1.6 it is a zip archive: a pickle, data.pkl, and one record for each storage. PyTorch stores records
without compression, and only such are read: nothing can come out larger than it lies there. Before, it was a stream:
five pickles one after the other, then every storage with its length before it.

The file is mapped into memory, privately, so that only what is looked at is ever read, and no tensor can have more
numbers than the file.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from filtercov.depthwise.inert_pickle import Pickled, read_pickle
from filtercov.depthwise.stored import StoredTensor
from filtercov.errors import CheckpointError
from filtercov.files.limits import DESCRIPTION, show_bytes


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
        tensor = numbers.as_strided(stored.shape, stored.stride, stored.first)
        tensor = tensor.conj() if stored.conjugated else tensor  # both are views, which read nothing
        return torch._neg_view(tensor) if stored.negated else tensor

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


SIGNATURE = b"PK\x03\x04"
HEADER = struct.Struct("<4s22x2H")  # of a record: signature, and the lengths of its name and of what follows that


class TorchArchive:
    """A zip archive of PyTorch's in a mapped file: `pickled`, and where each storage lies."""

    def __init__(self, mapped: mmap.mmap, file: BinaryIO) -> None:
        self._mapped = mapped
        self._records = zipfile.ZipFile(_Bounded(file)).NameToInfo
        pickles = [name for name in self._records if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError("is a zip archive, but not one of PyTorch's, which has one data.pkl")
        self._folder = pickles[0].removesuffix("data.pkl")
        if f"{self._folder}constants.pkl" in self._records:
            raise CheckpointError("is a TorchScript program; load it with torch.jit.load and save its state dict")
        if f"{self._folder}byteorder" in self._records and self._read("byteorder") != b"little":
            raise CheckpointError("was written on a big-endian machine; save it again on a little-endian one")
        self.pickled: Pickled = read_pickle(io.BytesIO(self._read("data.pkl")))

    def place(self, key: str) -> tuple[int, int]:
        """Return where the bytes of a storage begin in the file, and how many there are."""
        return self._place(f"data/{key}")

    def _read(self, name: str) -> bytes:
        where, length = self._place(name)
        if length > DESCRIPTION:
            raise CheckpointError(
                f"describes its tensors in {show_bytes(length)}, {show_bytes(DESCRIPTION)} is the most that is read; "
                "save only the state dict, best as .safetensors"
            )
        return self._mapped[where : where + length]

    def _place(self, name: str) -> tuple[int, int]:
        record = self._records.get(self._folder + name)
        if record is None:
            raise CheckpointError("is damaged: a tensor's numbers are not in its archive; get it again")
        if record.compress_type != zipfile.ZIP_STORED or record.flag_bits & 1:
            raise CheckpointError(
                "is a compressed or encrypted archive, which PyTorch does not write; pack it again without compression"
            )
        at = record.header_offset
        signature, name_length, extra_length = HEADER.unpack(self._mapped[at : at + HEADER.size])
        where, length = at + HEADER.size + name_length + extra_length, record.file_size
        if signature != SIGNATURE or length != record.compress_size or where + length > len(self._mapped):
            raise CheckpointError("is damaged: the sizes in its archive do not fit together; get it again")
        return where, length


class _Bounded:
    """A file that refuses to be read in large pieces: the directory of an archive is read in one."""

    def __init__(self, file: BinaryIO) -> None:
        self.seek, self.tell, self.seekable, self._read = file.seek, file.tell, file.seekable, file.read

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, if they are not too many."""
        if size < 0 or size > DESCRIPTION:
            data = self._read(DESCRIPTION + 1)
            if len(data) > DESCRIPTION:
                raise CheckpointError(
                    f"lists its records in more than {show_bytes(DESCRIPTION)}, the most that is read; save only the "
                    "state dict, best as .safetensors"
                )
            return data
        return self._read(size)


MAGIC = 0x1950A86A20F9469CFC6C
COUNT = struct.Struct("<q")  # of the numbers in a storage


class TorchStream:
    """A file of PyTorch before 1.6 in a mapped file: `pickled`, and where each storage lies."""

    def __init__(self, mapped: mmap.mmap) -> None:
        stream = io.BytesIO(mapped[:DESCRIPTION])
        if read_pickle(stream).content != MAGIC:
            raise CheckpointError("is a pickle, but not one that torch.save wrote; save the state dict with torch.save")
        for _ in ("version", "system"):
            read_pickle(stream)
        self.pickled: Pickled = read_pickle(stream)
        keys = read_pickle(stream).content
        at = stream.tell()
        self._places: dict[str, tuple[int, int]] = {}
        for key in keys if isinstance(keys, list) else ():
            if not isinstance(key, str) or key not in self.pickled.dtypes:
                raise CheckpointError("is damaged, or has tensors of a type that is not known; get it again")
            (count,) = COUNT.unpack(mapped[at : at + COUNT.size])
            at += COUNT.size
            length = count * self.pickled.dtypes[key].itemsize
            if not 0 <= length <= len(mapped) - at:
                raise CheckpointError("is truncated: the file ends before its tensors do; get it again")
            self._places[key] = at, length
            at += length

    def place(self, key: str) -> tuple[int, int]:
        """Return where the bytes of a storage begin in the file, and how many there are."""
        if key not in self._places:
            raise CheckpointError("is damaged: a tensor's numbers are not in it; get it again")
        return self._places[key]
