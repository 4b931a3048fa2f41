"""The zip archive that `torch.save` writes: a pickle, data.pkl, and one record for each storage.

PyTorch stores records without compression, and only such are read: nothing can come out larger than it lies there.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from typing import BinaryIO

from filtercov.depthwise.inert_pickle import Pickled, read_pickle
from filtercov.errors import CheckpointError
from filtercov.files.limits import DESCRIPTION, show_bytes

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
