"""Writes pickles as Python 2 wrote CIFAR-10's, opcode by opcode: protocol 2, byte strings, numpy.core names."""

import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np

_CLASSES = 10


def string(value: bytes) -> bytes:
    """Return the opcodes of a Python 2 str, which Python 3 reads as bytes when told to."""
    return pickle.BINSTRING + struct.pack("<i", len(value)) + value


def name(module: str, attribute: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{attribute}\n".encode()


def integer(value: int) -> bytes:
    return pickle.BININT + struct.pack("<i", value)


def array(values: np.ndarray, *, dtype: bytes = b"u1") -> bytes:
    """Return numpy.core.multiarray._reconstruct(ndarray, (0,), 'b') followed by its state."""
    begin = name("numpy.core.multiarray", "_reconstruct") + name("numpy", "ndarray")
    begin += integer(0) + pickle.TUPLE1 + string(b"b") + pickle.TUPLE3 + pickle.REDUCE
    made_dtype = name("numpy", "dtype") + string(dtype) + integer(0) + integer(1) + pickle.TUPLE3 + pickle.REDUCE
    dtype_state = pickle.MARK + integer(3) + string(b"|") + pickle.NONE * 3 + integer(-1) * 2 + integer(0)
    made_dtype += dtype_state + pickle.TUPLE + pickle.BUILD
    shape = b"".join(map(integer, values.shape)) + (pickle.TUPLE1 if values.ndim == 1 else pickle.TUPLE2)
    state = pickle.MARK + integer(1) + shape + made_dtype + pickle.NEWFALSE + string(values.tobytes()) + pickle.TUPLE
    return begin + state + pickle.BUILD


def dictionary(items: dict[bytes, bytes]) -> bytes:
    """Return a whole pickle of a dictionary whose values are opcodes."""
    pairs = b"".join(string(key) + value for key, value in items.items())
    return pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.MARK + pairs + pickle.SETITEMS + pickle.STOP


def batch(images: np.ndarray, labels: list[int]) -> bytes:
    """Return one batch of CIFAR-10: images uint8 (N, 32, 32, 3)."""
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), 3072)
    listed = pickle.EMPTY_LIST + pickle.MARK + b"".join(map(integer, labels)) + pickle.APPENDS
    return dictionary({b"batch_label": string(b"synthetic"), b"labels": listed, b"data": array(rows)})


def write_archive(path: Path, *, per_batch: int = 20, damage: dict[str, bytes] | None = None) -> np.ndarray:
    """Write a small CIFAR-10 archive; return all its images, training first."""
    rng = np.random.default_rng(0)
    everything = []
    with tarfile.open(path, "w:gz") as archive:
        for member in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
            images = rng.integers(0, 256, (per_batch, 32, 32, 3), dtype=np.uint8)
            everything.append(images)
            content = (damage or {}).get(member, batch(images, [i % _CLASSES for i in range(per_batch)]))
            info = tarfile.TarInfo(f"cifar-10-batches-py/{member}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return np.concatenate(everything)
