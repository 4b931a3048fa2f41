"""Checkpoints written byte by byte, past every check that PyTorch's and safetensors' own writers make."""

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import torch


def write_archive(path: Path, data_pkl: bytes, storages: dict[str, bytes] | None = None, **options: int) -> None:
    """Write a zip archive as torch.save does, around any pickle."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("archive/data.pkl", data_pkl)
        archive.writestr("archive/byteorder", b"little")
        for key, data in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", data)


def write_safetensors(path: Path, header: bytes | dict, data: bytes = b"", *, length: int | None = None) -> None:
    """Write a safetensors file with any header; a `length` is claimed in place of the header's own."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    claimed = len(encoded) if length is None else length
    path.write_bytes(claimed.to_bytes(8, "little") + encoded + data)


def entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict:
    """Return what a safetensors header says of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def saved(content: object, *, legacy: bool = False) -> bytes:
    """Return what torch.save writes."""
    stream = io.BytesIO()
    torch.save(content, stream, _use_new_zipfile_serialization=not legacy)
    return stream.getvalue()


def weights(count: int = 2, size: int = 3, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return a small state dict of depthwise weights."""
    torch.manual_seed(seed)
    return {f"blocks.{i}.dw.weight": torch.randn(6, 1, size, size) for i in range(count)}


class Calls:
    """Pickles as a call of a function, which an ordinary unpickler makes."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


def text(value: str) -> bytes:
    """Return the opcode that pushes a string."""
    return pickle.BINUNICODE + struct.pack("<I", len(value.encode())) + value.encode()


def named(module: str, name: str) -> bytes:
    """Return the opcode that pushes a function or class by name."""
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def tensor_opcodes(shape: tuple[int, ...], stride: tuple[int, ...], *, offset: int = 0, count: int = 9) -> bytes:
    """Return the opcodes of a tensor in storage 0 with any layout."""

    def number(value: int) -> bytes:
        return pickle.LONG1 + bytes([9]) + value.to_bytes(9, "little", signed=True)

    def tuple_of(items: bytes) -> bytes:
        return pickle.MARK + items + pickle.TUPLE

    storage = tuple_of(text("storage") + named("torch", "FloatStorage") + text("0") + text("cpu") + number(count))
    layout = [tuple_of(b"".join(map(number, sides))) for sides in (shape, stride)]
    arguments = storage + pickle.BINPERSID + number(offset) + b"".join(layout) + pickle.NEWFALSE + pickle.EMPTY_DICT
    return named("torch._utils", "_rebuild_tensor_v2") + tuple_of(arguments) + pickle.REDUCE


def dictionary(items: dict[str, bytes]) -> bytes:
    """Return a whole pickle of a dictionary, its values given as opcodes."""
    body = b"".join(text(key) + value for key, value in items.items())
    return pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.MARK + body + pickle.SETITEMS + pickle.STOP
