"""An unpickler for PyTorch's checkpoints that imports nothing, calls nothing and allocates no tensor.

A pickle names functions to call while it is read. Here a name stays a name: those that rebuild tensors become records
of where a tensor lies (`StoredTensor`), those that build plain data are left out, objects of other classes become empty
dictionaries, and a call of anything else is refused. `torch.load(weights_only=True)` does not run code either, but it
allocates what a file asks for: a hundred bytes may order a bytearray or a tensor of any size.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from filtercov.depthwise.stored import Storage, stored_tensor
from filtercov.errors import CheckpointError
from filtercov.files.limits import DESCRIPTION, show_bytes
from filtercov.printable import shortened

DTYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
    "Untyped": torch.uint8,
    "QInt8": torch.qint8,
    "QUInt8": torch.quint8,
    "QInt32": torch.qint32,
}

# What may be called besides the functions that rebuild tensors: it makes plain data, of which nothing is needed.
DATA = re.compile(
    r"torch\.(Size|device|Tensor|nn\.parameter\.Parameter|serialization\._get_layout|storage\._load_from_bytes)"
    r"|torch\._utils\._rebuild_\w+"
    r"|numpy\.(dtype|ndarray|_?core\.(multiarray\.(scalar|_reconstruct)|numeric\._frombuffer))"
    r"|(builtins|__builtin__)\.(set|frozenset|bytearray|complex|range|slice|list|tuple|dict|object)"
    r"|collections\.(Counter|defaultdict|deque)|copy_?reg\._reconstructor|_codecs\.encode"
    r"|pathlib\.\w*Path|datetime\.\w+|uuid\.UUID|decimal\.Decimal|fractions\.Fraction"
)


@dataclass(frozen=True)
class Name:
    """A function or class that the pickle names; it is never looked up."""

    text: str


# The unpickler in pure Python, because its memo is a dictionary: in C it is an array, and a pickle of ten bytes can ask
# for one of 64 GB. Its parts are not in the type stubs.
_PythonUnpickler: Any = pickle._Unpickler

# Frozen sets hash what they hold, byte arrays are allocated before they are read, the others need classes or buffers.
REFUSED = (
    pickle.FROZENSET + pickle.BYTEARRAY8 + pickle.NEXT_BUFFER + pickle.READONLY_BUFFER + pickle.INST + pickle.OBJ
    + pickle.EXT1 + pickle.EXT2 + pickle.EXT4
)  # fmt: skip


class Left(dict[Any, Any]):
    """Something that was left out: an object whose class is not known here, with the items it was given."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def append(self, _item: Any) -> None:
        """Take an item of a list that was left out."""

    def extend(self, _items: Iterable[Any]) -> None:
        """Take items of a list that was left out."""


class InertUnpickler(_PythonUnpickler):
    """Reads one pickle from a stream; `left_out` names what was not rebuilt, `dtypes` has those of its storages."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, encoding="utf-8", errors="replace")
        self.left_out: dict[str, None] = {}
        self.dtypes: dict[str, torch.dtype] = {}

    def find_class(self, module: str, name: str) -> Any:  # noqa: D102
        return Name(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:  # noqa: D102
        match pid:
            case ("storage", Name(text), str(key), _, int(count), *view):
                if view and isinstance(view[0], tuple):  # part of another storage, as PyTorch before 0.4 had it
                    _, start, count = view[0]
                else:
                    start = 0
                dtype = _storage_dtype(text)
                if dtype is None:
                    return self._leave_out(text)
                self.dtypes[key] = dtype
                if isinstance(start, int) and isinstance(count, int) and min(start, count) >= 0:
                    return Storage(key, dtype, start, count)
            case ("module", Name(text), *_):
                return Name(text)
        raise CheckpointError("refers to data outside itself in a way no PyTorch does; it may be damaged")

    def _call(self, function: Any, arguments: Any) -> Any:
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            raise CheckpointError("calls what is no function; it may be damaged")
        match function.text, arguments:
            case "torch._utils._rebuild_tensor" | "torch._utils._rebuild_tensor_v2", (Storage() as storage, *rest):
                return stored_tensor(storage, storage.dtype, rest, rest[5] if len(rest) > 5 else None)
            case "torch._utils._rebuild_tensor_v3", (Storage() as storage, *rest) if len(rest) > 5:
                named = rest[5].text.removeprefix("torch.") if isinstance(rest[5], Name) else ""
                dtype = getattr(torch, named, None) if re.fullmatch(r"[a-z]+\d+\w*", named) else None
                if isinstance(dtype, torch.dtype) and storage.count % dtype.itemsize == 0:
                    return stored_tensor(storage, dtype, rest, rest[6] if len(rest) > 6 else None)
            case "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state", (data, *_):
                return data
            case "torch._tensor._rebuild_from_type_v2", (inner, _, inner_arguments, *_):
                return self._call(inner, inner_arguments)
            case "collections.OrderedDict", ():
                return {}
            case "collections.OrderedDict", (list(pairs),):  # as Python 2 wrote it
                return _dictionary(item for pair in pairs for item in (pair[0], pair[1]))
        if not DATA.fullmatch(function.text):
            raise CheckpointError(
                f"it holds Python objects ({shortened(function.text)}) beside tensors, which could run code and are "
                "not loaded; save only the state dict, best as .safetensors"
            )
        return self._leave_out(function.text)

    def _leave_out(self, name: str) -> Left:
        self.left_out[shortened(name)] = None
        return Left(shortened(name))

    def load_reduce(self) -> None:  # noqa: D102
        arguments, function = self.stack.pop(), self.stack.pop()
        self.append(self._call(function, arguments))

    def load_newobj(self) -> None:  # noqa: D102
        _, named = self.stack.pop(), self.stack.pop()
        if not isinstance(named, Name):
            raise CheckpointError("makes an object of what is no class; it may be damaged")
        self.append({} if named.text == "collections.OrderedDict" else self._leave_out(named.text))

    def load_newobj_ex(self) -> None:  # noqa: D102
        self.stack.pop()
        self.load_newobj()

    def load_build(self) -> None:
        """Drop the state of an object, whatever it is."""
        self.stack.pop()

    def load_setitem(self) -> None:  # noqa: D102
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1].update(_dictionary((key, value)))

    def load_setitems(self) -> None:  # noqa: D102
        items = self.pop_mark()
        self.stack[-1].update(_dictionary(items))

    def load_dict(self) -> None:  # noqa: D102
        self.append(_dictionary(self.pop_mark()))

    def load_additems(self) -> None:  # noqa: D102
        items = self.pop_mark()
        self.stack[-1].extend(items)

    def load_empty_set(self) -> None:  # noqa: D102
        self.append([])

    dispatch: ClassVar = {
        **{code: method for code, method in _PythonUnpickler.dispatch.items() if code not in REFUSED},
        pickle.REDUCE[0]: load_reduce,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.NEWOBJ_EX[0]: load_newobj_ex,
        pickle.BUILD[0]: load_build,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        pickle.ADDITEMS[0]: load_additems,
        pickle.EMPTY_SET[0]: load_empty_set,
    }


@dataclass(frozen=True)
class Pickled:
    """What a pickle holds, with tensors as records; what was left out of it; and the types of its storages."""

    content: Any
    left_out: tuple[str, ...]
    dtypes: Mapping[str, torch.dtype]


def read_pickle(stream: io.BytesIO) -> Pickled:
    """Read the pickle at the stream's position.

    >>> read_pickle(io.BytesIO(pickle.dumps({"epoch": 3, "where": (1, 2)}))).content
    {'epoch': 3, 'where': (1, 2)}
    """
    unpickler = InertUnpickler(stream)
    try:
        content = unpickler.load()
    except EOFError:
        if stream.tell() >= DESCRIPTION:
            raise CheckpointError(
                f"describes its tensors in more than {show_bytes(DESCRIPTION)}, the most that is read; save only the "
                "state dict, best as .safetensors"
            ) from None
        raise
    return Pickled(content, tuple(unpickler.left_out), unpickler.dtypes)


def _dictionary(items: Iterable[Any]) -> dict[Any, Any]:
    """Return keys and values in turn as a dictionary, without keys that would have to be hashed from within."""
    flat = iter(items)
    return {key: value for key, value in zip(flat, flat, strict=True) if isinstance(key, str | int | float)}


def _storage_dtype(name: str) -> torch.dtype | None:
    kind = name.rpartition(".")[2].removesuffix("Storage")
    return DTYPES.get(kind) if name.startswith("torch.") and name.endswith("Storage") else None
