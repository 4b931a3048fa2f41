"""Hostile checkpoints and statistics files, written past every check that PyTorch's and safetensors' writers make.

`python hostile_files.py WORK LISTED` runs a command of filtercov on every file of a JSON list of [kind, path], under a
limit on memory. It prints a JSON line for each, with its exit code and what was printed, and the memory taken.
"""

import hashlib
import io
import json
import os
import pickle
import random
import resource
import struct
import sys
import zipfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

from filtercov.cli import main
from filtercov.files import MEMORY

KERNEL = (6, 1, 3, 3)


def weights() -> dict[str, torch.Tensor]:
    return {f"blocks.{i}.dw.weight": torch.ones(KERNEL) * torch.arange(6.0).view(6, 1, 1, 1) for i in range(2)}


def saved(content: object, *, legacy: bool = False) -> bytes:
    """What torch.save writes."""
    stream = io.BytesIO()
    torch.save(content, stream, _use_new_zipfile_serialization=not legacy)
    return stream.getvalue()


def archive(data_pkl: bytes, storages: dict[str, bytes] | None = None, **options: int) -> bytes:
    """A zip archive as torch.save writes it, around any pickle."""
    stream = io.BytesIO()
    records = {"data.pkl": data_pkl, "byteorder": b"little", "version": b"3\n", **(storages or {})}
    with zipfile.ZipFile(stream, "w", **options) as file:
        for name, data in records.items():
            file.writestr(f"archive/{name}", data)
    return stream.getvalue()


def header(content: bytes | dict, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file with any header; a `length` is claimed in place of the header's own."""
    encoded = content if isinstance(content, bytes) else json.dumps(content).encode()
    return (len(encoded) if length is None else length).to_bytes(8, "little") + encoded + data


def entry(shape: list[int], begin: int, end: int) -> dict:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


# --- Pickles by their opcodes ---


def text(value: str) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(value.encode())) + value.encode()


def named(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def number(value: int) -> bytes:
    return pickle.LONG1 + bytes([9]) + value.to_bytes(9, "little", signed=True)


def tuple_of(*items: bytes) -> bytes:
    return pickle.MARK + b"".join(items) + pickle.TUPLE


def tensor(shape: tuple[int, ...], stride: tuple[int, ...], *, offset: int = 0, count: int = 54) -> bytes:
    """The opcodes of a tensor in storage 0 with any layout."""
    storage = tuple_of(text("storage"), named("torch", "FloatStorage"), text("0"), text("cpu"), number(count))
    layout = [tuple_of(*map(number, sides)) for sides in (shape, stride)]
    arguments = tuple_of(storage, pickle.BINPERSID, number(offset), *layout, pickle.NEWFALSE, pickle.EMPTY_DICT)
    return named("torch._utils", "_rebuild_tensor_v2") + arguments + pickle.REDUCE


def dictionary(**items: bytes) -> bytes:
    """A whole pickle of a dictionary, its values given as opcodes."""
    body = b"".join(text(key.replace("__", ".")) + value for key, value in items.items())
    return pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.MARK + body + pickle.SETITEMS + pickle.STOP


PLAIN = tensor(KERNEL, (9, 9, 3, 1))
NUMBERS = {"data/0": bytes(216)}
MANY = b"\xff\xff\xff\x7f"
CALL = pickle.TUPLE1 + pickle.REDUCE


def in_both_formats(extra: bytes) -> Iterator[bytes]:
    """Files of torch.save with any opcodes and, read after them, a weight."""
    whole = dictionary(extra=extra, a__weight=PLAIN)
    yield archive(whole, NUMBERS)
    legacy = saved(weights(), legacy=True)
    start = legacy.index(pickle.STOP, legacy.index(b"little_endian")) + 1  # where the third pickle ends
    yield legacy[:start] + whole + legacy[start:]


def executing(marker: Path) -> Iterator[bytes]:
    shell, function = text(f"touch {marker}"), named("posix", "system")
    looked_up = named("builtins", "getattr") + named("shutil", "os") + text("system") + pickle.TUPLE2 + pickle.REDUCE
    yield dictionary(extra=function + shell + CALL)
    yield archive(dictionary(a__weight=PLAIN), {**NUMBERS, "constants.pkl": b"", "code/a.py": b""})  # TorchScript
    for opcodes in (
        function + shell + CALL,
        named("builtins", "exec") + text(f"open({str(marker)!r}, 'w')") + CALL,
        text("os") + text("system") + pickle.STACK_GLOBAL + shell + CALL,
        pickle.MARK + shell + pickle.INST + b"os\nsystem\n",
        pickle.MARK + function + shell + pickle.OBJ,
        named("torch._tensor", "_rebuild_from_type_v2")
        + tuple_of(function, pickle.NONE, shell + pickle.TUPLE1, pickle.NONE)
        + pickle.REDUCE,
        pickle.EXT1 + b"\x01",
        looked_up + shell + CALL,
    ):
        yield from in_both_formats(opcodes)


def executing_by_class(marker: Path) -> Iterator[bytes]:
    popen = named("subprocess", "Popen") + tuple_of(text("touch"), text(str(marker))) + pickle.TUPLE1
    for made in (pickle.NEWOBJ, pickle.REDUCE):
        yield from in_both_formats(popen + made)


def deeply_nested() -> Iterator[bytes]:
    depth, as_key = 150_000, pickle.NONE + pickle.SETITEM  # which hashes it
    for opcodes in (
        (pickle.EMPTY_DICT + text("k")) * depth + pickle.NONE + pickle.SETITEM * depth,
        pickle.EMPTY_DICT + pickle.EMPTY_TUPLE + pickle.TUPLE1 * depth + as_key,
        pickle.EMPTY_DICT + pickle.MARK * depth + pickle.TUPLE * depth + as_key,
    ):
        yield archive(pickle.PROTO + b"\x02" + opcodes + pickle.STOP)


def asking_for_gigabytes() -> Iterator[bytes]:
    big, endless = (2**33).to_bytes(8, "little"), tensor((2**31,), (0,))
    remembered, again = text("x" * 10**6) + pickle.MEMOIZE, pickle.BINGET + b"\0"
    holder = pickle.EMPTY_DICT + pickle.NONE + pickle.NONE + pickle.SETITEM
    holders = b"".join(pickle.BININT + i.to_bytes(4, "little") + holder for i in range(100_000))
    for opcodes in (
        named("builtins", "bytearray") + pickle.BININT + MANY + CALL,
        named("torch", "FloatStorage") + pickle.BININT + MANY + CALL,
        named("torch.storage", "UntypedStorage") + number(2**33) + CALL,
        pickle.NONE + pickle.LONG_BINPUT + MANY,
        pickle.BYTEARRAY8 + big,
        pickle.BINUNICODE8 + big,
        remembered + (named("_codecs", "encode") + again + CALL) * 2000,
        remembered + pickle.POP + pickle.EMPTY_DICT + again  # a long key with many dictionaries under it
        + pickle.EMPTY_DICT + pickle.MARK + holders + pickle.SETITEMS + pickle.SETITEM,
        pickle.EMPTY_LIST + pickle.MARK + pickle.EMPTY_DICT * 500_000 + pickle.APPENDS,
        tensor((2**40, 1, 3, 3), (9, 9, 3, 1), count=9 * 2**40),
        endless + pickle.EMPTY_TUPLE + pickle.NEWTRUE + pickle.SETITEM,  # fill it
        named("collections", "Counter") + endless + pickle.REDUCE,  # unpack it into arguments
        tuple_of(text("storage"), named("torch", "FloatStorage"), text("0"), text("cpu"), endless) + pickle.BINPERSID,
    ):  # fmt: skip
        yield from in_both_formats(opcodes)


def archives() -> Iterator[bytes]:
    zeros = bytes(2**24)
    pickled = dictionary(a__weight=tensor((len(zeros) // 36, 1, 3, 3), (9, 9, 3, 1), count=len(zeros) // 4))
    padded = pickled[:-1] + (pickle.NONE + pickle.POP) * 2**23 + pickle.STOP
    yield archive(pickled, {"data/0": zeros}, compression=zipfile.ZIP_DEFLATED)
    yield archive(padded, NUMBERS)
    yield archive(dictionary(a__weight=PLAIN), NUMBERS).replace(b"little", b"biggie")
    place = saved(weights()).index(b"PK\x01\x02") + 20  # the size of a record in the central directory
    yield saved(weights())[:place] + MANY + saved(weights())[place + 4 :]


def damaged() -> Iterator[bytes]:
    rng = random.Random(0)
    for data in (saved(weights()), saved(weights(), legacy=True), safetensors.torch.save(weights())):
        yield data[: rng.randrange(len(data))]
        for _ in range(10):
            flipped = bytearray(data)
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            yield bytes(flipped)
    yield from (b"", b"\0", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), rng.randbytes(200))


def headers() -> Iterator[bytes]:
    for shape in ([2**40, 1, 7, 7], [10**30, 1, 3], [0, 1, 2**62, 2**62]):
        for end in (36, 2**40 * 49 * 4, 0):
            yield header({"a.weight": entry(shape, 0, end)}, bytes(36))
    for length in (2**64 - 1, 0, 100_000_000):
        yield header({"a.weight": entry([*KERNEL], 0, 216)}, bytes(216), length=length)
    yield header({f"{i}.{'x' * 100}.bias": entry([0], 0, 0) for i in range(6 * 10**4)})
    yield header(b'{"a":' * 10**6)


def odd_weights() -> Iterator[bytes]:
    for value in (torch.inf, 1e300, 1e-300):
        yield saved({"a.weight": torch.full(KERNEL, value, dtype=torch.float64)})
    for count, size in ((4 * 10**6, (3, 3)), (60_000, (23, 23))):  # a few bytes that show many
        yield saved({"a.weight": torch.randn(1, 1, *size).expand(count, 1, *size)})
    loop: dict[str, object] = {"net": weights()}
    loop["self"] = [loop, (loop, {"again": loop})]
    yield saved(loop)
    for name in ("\x1b[2J\x1b[31m", "a\nwrote /etc/passwd", "\u202eevil", "</script>", "a" * 2**20):
        yield saved({name: {f"{name}.weight": torch.randn(*KERNEL)}})


def statistics() -> Iterator[bytes]:
    """Statistics files whose checksum is right."""
    layer = {"name": "a", "count": 6, "kernel_size": [3, 3]}
    changes = ({"name": "\x1b[31m"}, {"name": "x" * 10**6}, {"kernel_size": [500, 500]}, {"kernel_size": [9**99]})
    for listed in (*([layer | change] for change in changes), [layer] * 10**4, "layer", [None]):
        about = {"format": "filtercov-statistics", "schema": 1, "sha256": "0" * 64, "source": 7, "notes": ["\x1b"]}
        tensors = {"layer.0.mean": np.zeros(9), "layer.0.covariance": np.eye(9)}
        blank = safetensors.numpy.save(tensors, metadata={"filtercov": json.dumps({**about, "layers": listed})})
        yield blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


def holes(folder: Path) -> Iterator[Path]:
    """Files whose numbers are a hole, so that they take no disk."""
    for i, shape in enumerate(([8, 1, 500, 500], [1, 1, 65, 64], [2**28, 1, 3, 3], [2, 1, 64, 64])):
        size, layers = 4 * int(np.prod(shape)), 1 if i < 3 else 9
        target = folder / f"hole-{i}.safetensors"
        described = {f"layer.{j}.weight": entry(shape, j * size, (j + 1) * size) for j in range(layers)}
        target.write_bytes(header(described))
        os.truncate(target, target.stat().st_size + layers * size)
        yield target


def paths(folder: Path) -> Iterator[Path]:
    for suffix in (".pth", ".safetensors"):
        for i, target in enumerate(("/dev/zero", "/nowhere", f"link-2{suffix}")):  # the last to itself
            link = folder / f"link-{i}{suffix}"
            link.symlink_to(target)
            yield link
        os.mkfifo(folder / f"pipe{suffix}")
        yield folder / f"pipe{suffix}"
    for i, index in enumerate(("[" * 10**6, "{}", '{"weight_map": {}}', " " * 9_000_000)):
        path = folder / f"{i}.safetensors.index.json"
        path.write_text(index)
        yield path
    safetensors.torch.save_file(weights(), folder / "outside.safetensors")
    shards = ("/etc/passwd", "../outside.safetensors", "..", "missing.safetensors", "a\0b.bin", "\x1b[31m", 7)
    for i, shard in enumerate((*shards, ["one.safetensors"], "x" * 5000 + ".bin", "C:outside.safetensors", "pipe.bin")):
        inside = folder / f"shards-{i}"
        inside.mkdir()
        os.mkfifo(inside / "pipe.bin")
        safetensors.torch.save_file(weights(), inside / "one.safetensors")
        index = inside / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {"not.there.weight": shard}}))
        yield inside if i % 2 else index


def hostile_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write every file into a folder; yield its kind and its path."""
    marker = folder / "executed"
    for kind, contents, suffixes in (
        ("executing", executing(marker), [".pth"]),
        ("executing by class", executing_by_class(marker), [".pth"]),
        ("deeply nested", deeply_nested(), [".pth"]),
        ("asking for gigabytes", asking_for_gigabytes(), [".pth"]),
        ("archives", archives(), [".pth"]),
        ("odd weights", odd_weights(), [".pth"]),
        ("damaged", damaged(), [".pth", ".safetensors"]),
        ("headers", headers(), [".safetensors"]),
        ("statistics", statistics(), [".safetensors"]),
    ):
        for i, content in enumerate(contents):
            for suffix in suffixes:
                path = folder / f"{kind.replace(' ', '-')}-{i}{suffix}"
                path.write_bytes(content)
                yield kind, path
    yield from (("holes", path) for path in holes(folder))
    yield from (("paths", path) for path in paths(folder))


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(*arguments: str) -> dict[str, object]:
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["filtercov", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        code: object = end.code or 0
    except BaseException as error:  # anything but an orderly exit is named
        code = f"{type(error).__name__}: {error}"[:300]
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    work, listed = sys.argv[1:]
    run("info")
    before = memory()
    addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (addresses + MEMORY, addresses + MEMORY))
    for kind, path in json.loads(Path(listed).read_text()):
        command = ("inspect", path, "--json") if kind == "statistics" else ("stats", path, "--out", f"{work}/out")
        print(json.dumps({"kind": kind, "path": path, **run(*command)}), flush=True)
    print(json.dumps({"taken": memory() - before}), flush=True)
