"""Load torch.save's files without importing or running anything that they name, and without trusting their sizes."""

from __future__ import annotations

import io
import pickle
import re
import warnings
import zipfile
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from filtercov.errors import CheckpointError
from filtercov.files import DESCRIPTION, MIB
from filtercov.printable import shortened, show_bytes

LEGACY = 512 * MIB  # the largest file of PyTorch before 1.6 that is read: such a file cannot be mapped
LEGACY_START = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")  # a pickled number at its beginning


def load_inertly(path: Path) -> Any:
    """Load a file of torch.save's: dense tensors come as `Held`, mapped if they can be, other objects as `Left`."""
    with path.open("rb") as file:
        start = file.read(64)
    source: Path | io.BytesIO = path
    if start.startswith(b"PK\x03\x04"):
        _check_archive(path)
    elif LEGACY_START not in start:
        raise CheckpointError("cannot be read as a checkpoint: neither torch.save nor safetensors wrote it")
    elif path.stat().st_size > LEGACY:
        raise CheckpointError(
            f"is of PyTorch before 1.6 and larger than {show_bytes(LEGACY)}, the most that is read of such; load it "
            "and save it again"
        )
    else:
        source = io.BytesIO(path.read_bytes())  # torch.load would look for a tar archive in a file, and unpack it
    with warnings.catch_warnings(action="ignore"):
        return torch.load(
            source, "cpu", InertPickle, weights_only=False, mmap=source is path, encoding="utf-8", errors="replace"
        )


def too_long(length: int) -> CheckpointError:
    """The error for a file that describes its tensors at too great a length."""
    return CheckpointError(
        f"describes its tensors in {show_bytes(length)}, {show_bytes(DESCRIPTION)} is the most that is read; save only "
        "the weights, best as .safetensors"
    )


def _check_archive(path: Path) -> None:
    """Refuse archives that PyTorch does not write, in which a small file can become a large one."""
    with _BoundedFile(path) as listed, zipfile.ZipFile(listed) as archive:
        records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise CheckpointError("is compressed, which PyTorch's files are not; pack it again without compression")
    described = max((record.file_size for record in records if "/data/" not in record.filename), default=0)
    if described > DESCRIPTION:
        raise too_long(described)
    with path.open("rb") as file:
        reader: Any = torch._C.PyTorchFileReader(file)  # the one that torch.load uses
        if "constants.pkl" in reader.get_all_records():
            raise CheckpointError("is a TorchScript program; load it with torch.jit.load and save its state dict")


class _BoundedFile(io.FileIO):
    """A file that refuses to be read in large pieces: the directory of an archive is read in one."""

    def read(self, size: int | None = -1, /) -> bytes:
        within = size is not None and 0 <= size <= DESCRIPTION
        data = super().read(size if within else DESCRIPTION + 1)
        if len(data) > DESCRIPTION:
            raise too_long(len(data))
        return data


# --- A pickle in which names stay names ---


class Held:
    """A storage or a tensor that a pickle can pass on, but not call, iterate, index or compute with.

    A tensor of a few bytes can show terabytes, and a pickle could ask for a sum of them.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


class Left(dict[Any, Any]):
    """An object that is left out because its class is not imported, with the items that the pickle gives it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def append(self, _item: Any) -> None:
        """Take an item of a list that is left out."""


class _Tuple(tuple[Any, ...]):
    """A tuple that is hashed by identity: hashing one that is nested a million deep would overflow the stack."""

    __hash__ = object.__hash__


def _holding(rebuild: Any) -> Any:
    return lambda storage, *layout: Held(rebuild(storage.value, *layout))


# What torch.save writes around tensors of numbers.
UNTYPED = Held(torch.UntypedStorage)
REBUILD: dict[str, Any] = {
    "torch._utils._rebuild_tensor": _holding(torch._utils._rebuild_tensor),
    "torch._utils._rebuild_tensor_v2": _holding(torch._utils._rebuild_tensor_v2),
    "torch._utils._rebuild_tensor_v3": _holding(torch._utils._rebuild_tensor_v3),
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
    "torch._tensor._rebuild_from_type_v2": lambda rebuild, _type, arguments, _state: rebuild(*arguments),
    "torch.storage.UntypedStorage": UNTYPED,
    "collections.OrderedDict": dict,
}

# Functions that make plain data, which is not needed. Others could do anything, and a call of them is refused.
DATA = re.compile(
    r"(torch|numpy|collections|pathlib|datetime|uuid|decimal|fractions|copy_?reg|_codecs)\."
    r"|(builtins|__builtin__)\.(set|frozenset|bytearray|complex|range|slice|list|tuple|dict|object)$"
)


_PythonUnpickler: Any = pickle._Unpickler  # its parts are not in the type stubs


class InertUnpickler(_PythonUnpickler):
    """An unpickler that imports nothing, and makes nothing but plain data and tensors of numbers.

    It is the one in pure Python, whose memo is a dictionary: in C it is an array, and ten bytes can ask for one of
    64 GB.
    """

    def find_class(self, module: str, name: str) -> Any:  # noqa: D102
        text = f"{module}.{name}"
        if text in REBUILD:
            return REBUILD[text]
        if re.fullmatch(r"torch\.[a-z]+\d+\w*", text) and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        return Left if DATA.match(text) or name[:1].isupper() else partial(_refuse, text)

    def load_binpersid(self) -> None:  # noqa: D102
        kind, storage, *rest = self.stack.pop()
        # torch.load puts its own function for finding storages in the place of persistent_load.
        self.append(Held(self.persistent_load((kind, torch.UntypedStorage if storage is UNTYPED else storage, *rest))))

    def load_build(self) -> None:  # noqa: D102
        self.stack.pop()  # the state of an object

    def load_tuple(self) -> None:  # noqa: D102
        items = self.pop_mark()  # which replaces self.append
        self.append(_Tuple(items))

    def load_short_tuple(self, length: int) -> None:  # noqa: D102
        self.stack[-length:] = [_Tuple(self.stack[-length:])]

    dispatch: ClassVar = {
        **_PythonUnpickler.dispatch,
        pickle.BINPERSID[0]: load_binpersid,
        pickle.BUILD[0]: load_build,
        pickle.TUPLE[0]: load_tuple,
        pickle.TUPLE1[0]: partial(load_short_tuple, length=1),
        pickle.TUPLE2[0]: partial(load_short_tuple, length=2),
        pickle.TUPLE3[0]: partial(load_short_tuple, length=3),
    }
    del dispatch[pickle.BYTEARRAY8[0]]  # it allocates before it reads


def _refuse(function: str, *_: Any) -> None:
    raise CheckpointError(
        f"holds Python objects ({shortened(function)}) beside tensors, which could run code and are not loaded; save "
        "only the state dict, best as .safetensors"
    )


class InertPickle:
    """A pickle module for torch.load.

    `torch.load(weights_only=True)` runs no code either, but it allocates what a file asks for, and refuses checkpoints
    with settings and measurements of other classes beside the weights.
    """

    Unpickler = InertUnpickler

    @staticmethod
    def load(file: Any, **options: Any) -> Any:
        """Read one pickle, as torch.load does in files of PyTorch before 1.6."""
        return InertUnpickler(file, **options).load()
