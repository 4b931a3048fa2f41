"""The files of PyTorch before 1.6: five pickles one after the other, then every storage with its length before it."""

from __future__ import annotations

import io
import mmap
import struct

from filtercov.depthwise.inert_pickle import Pickled, read_pickle
from filtercov.errors import CheckpointError
from filtercov.files.limits import DESCRIPTION

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
