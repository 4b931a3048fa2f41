"""Hostile checkpoints and statistics files of many kinds, each a function that writes the i-th of its kind."""

import builtins
import hashlib
import json
import os
import pickle
import random
import subprocess
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

from tests.depthwise.files import (
    Calls,
    dictionary,
    entry,
    named,
    saved,
    tensor_opcodes,
    text,
    weights,
    write_archive,
    write_safetensors,
)

EACH = 20  # files of each kind
KERNEL = (6, 1, 3, 3)


def truncated(i: int, path: Path) -> Path:
    rng = random.Random(i)
    data = [saved(weights()), saved(weights(), legacy=True), safetensors.torch.save(weights())][i % 3]
    target = path.with_suffix([".pth", ".pth", ".safetensors"][i % 3])
    target.write_bytes(data[: rng.randrange(len(data))])
    return target


def bits_flipped(i: int, path: Path) -> Path:
    rng = random.Random(path.name)
    data = bytearray([saved(weights()), saved(weights(), legacy=True), safetensors.torch.save(weights())][i % 3])
    target = path.with_suffix([".pth", ".pth", ".safetensors"][i % 3])
    for _ in range(1 + i // 4):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    target.write_bytes(data)
    return target


def executing(i: int, path: Path) -> Path:
    marker = path.parent / "executed"
    shell, code = f"touch {marker}", f"open({str(marker)!r}, 'w')"
    call = [
        Calls(os.system, shell),
        Calls(subprocess.getoutput, shell),
        Calls(builtins.eval, code),
        Calls(builtins.exec, code),
        Calls(builtins.open, str(marker), "w"),
    ][i % 5]
    wrap = [call, {"state_dict": weights(), "extra": call}, {"blocks.0.weight": call}, [call, weights()]][i // 5 % 4]
    path.write_bytes(saved(wrap, legacy=i % 2 == 0) if i < 16 else pickle.dumps(wrap))
    return path


def executing_by_opcode(i: int, path: Path) -> Path:
    shell = text(f"touch {path.parent / 'executed'}")
    stack_global = text("os") + text("system") + pickle.STACK_GLOBAL
    opcodes = [
        named("posix", "system") + shell + pickle.TUPLE1 + pickle.REDUCE,
        stack_global + shell + pickle.TUPLE1 + pickle.REDUCE,
        pickle.MARK + shell + pickle.INST + b"os\nsystem\n",
        pickle.MARK + named("os", "system") + shell + pickle.OBJ,
        named("subprocess", "Popen") + shell + pickle.TUPLE1 + pickle.NEWOBJ,
        named("torch._tensor", "_rebuild_from_type_v2")
        + pickle.MARK
        + named("os", "system")
        + pickle.NONE
        + shell
        + pickle.TUPLE1
        + pickle.NONE
        + pickle.TUPLE
        + pickle.REDUCE,
        pickle.EXT1 + b"\x01",
        named("builtins", "getattr") + named("os", "path") + text("os") + pickle.TUPLE2 + pickle.REDUCE,
    ][i % 8]
    write_archive(path, dictionary({"extra": opcodes, "a.weight": tensor_opcodes(KERNEL, (9, 9, 3, 1), count=54)}))
    return path


def self_referential(i: int, path: Path) -> Path:
    loop: dict[str, object] = {"epoch": i}
    items: list[object] = [loop]
    for key in ("state_dict", "model", "module", "ema")[: 1 + i % 4]:
        loop[key] = [loop, items, {"inner": loop}, (items, loop)][i // 4 % 4]
    items.append(items)
    if i >= 10:
        loop["net"] = weights()
    path.write_bytes(saved(loop, legacy=i % 2 == 0))
    return path


def deeply_nested(i: int, path: Path) -> Path:
    depth = 100_000 if i < 5 else 3_000
    opcodes = [
        (pickle.EMPTY_DICT + text("k")) * depth + pickle.NONE + pickle.SETITEM * depth,
        pickle.EMPTY_LIST * depth + pickle.APPEND * (depth - 1),
        pickle.EMPTY_TUPLE + pickle.TUPLE1 * depth,
        pickle.EMPTY_DICT
        + pickle.EMPTY_TUPLE
        + pickle.TUPLE1 * depth
        + pickle.NONE
        + pickle.SETITEM,  # hashed as a key
        pickle.MARK * depth + pickle.TUPLE * depth,
    ][i % 5]
    if i < 5:
        write_archive(path, pickle.PROTO + b"\x02" + opcodes + pickle.STOP)
    else:
        inner = dictionary({"deep": opcodes, "net": dictionary({"a.weight": tensor_opcodes(KERNEL, (0,) * 4)})[2:-1]})
        path.write_bytes(inner[: len(inner) - i % 3])
    return path


def expanded(i: int, path: Path) -> Path:
    side = [3, 31, 500, 4500][i % 4]
    shape = (10 ** (i // 2), 1, side, side)
    if i % 2:
        path.write_bytes(saved({"a.weight": torch.zeros(1).expand(shape)}))
    else:
        layouts = [(0, 0, 0, 0), (1, 1, 1, 1), (2**61, 0, 0, 0), (0, 0, 2**61, 1), (side * side, 0, side, 1)]
        opcodes = tensor_opcodes(shape, layouts[i // 2 % 5], offset=[0, 8, 2**40][i % 3])
        write_archive(path, dictionary({"a.weight": opcodes}), {"0": bytes(36)})
    return path


def huge_shapes(i: int, path: Path) -> Path:
    target = path.with_suffix(".safetensors")
    shape = [[2**40, 1, 7, 7], [2**63, 1, 3, 3], [2**32, 2**32, 4], [10**30, 1, 3], [0, 1, 2**62, 2**62]][i % 5]
    end = [36, 2**40 * 49 * 4, 2**63, 0][i % 4]
    write_safetensors(target, {"a.weight": entry(shape, 0, end)}, bytes(36))
    return target


def wrong_offsets(i: int, path: Path) -> Path:
    target = path.with_suffix(".safetensors")
    ranges = [
        ((0, 216), (0, 216)),
        ((0, 216), (100, 316)),
        ((-216, 0), (0, 216)),
        ((216, 0), (0, 216)),
        ((8, 224),) * 2,
    ]
    (a, b), (c, d) = ranges[i % 5]
    write_safetensors(target, {"a.weight": entry([*KERNEL], a, b), "b.weight": entry([*KERNEL], c, d)}, bytes(20 * i))
    return target


def wrong_lengths(i: int, path: Path) -> Path:
    target = path.with_suffix(".safetensors")
    length = [2**63, 2**64 - 1, 2**62, 0, 1, 7, 100_000_000, 2**31, 2**32 + 5, 300][i % 10]
    write_safetensors(target, {"a.weight": entry([*KERNEL], 0, 216)}, bytes(216), length=length)
    return target


def duplicate_names(i: int, path: Path) -> Path:
    target = path.with_suffix(".safetensors")
    one = json.dumps(entry([*KERNEL], 0, 216))
    two = json.dumps(entry([*KERNEL], [0, 216, 8][i % 3], 216 * (1 + i % 2)))
    write_safetensors(target, f'{{"a.weight":{one},"a.weight":{two}}}'.encode(), bytes(432))
    return target


def deep_json(i: int, path: Path) -> Path:
    depth = 10 ** (3 + i % 3)
    text_ = [b"[" * depth, b'{"a":' * depth, b"[" * depth + b"]" * depth][i // 3 % 3]
    if i % 2:
        target = path.with_suffix(".safetensors")
        write_safetensors(target, text_)
    else:
        target = path.with_name(f"{path.stem}.safetensors.index.json")
        target.write_bytes(text_)
    return target


def zip_bombs(i: int, path: Path) -> Path:
    zeros = bytes(2 ** (20 + i % 5))
    channels = len(zeros) // 36
    pickled = dictionary({"a.weight": tensor_opcodes((channels, 1, 3, 3), (9, 9, 3, 1), count=9 * channels)})
    padded = pickled[:-1] + (pickle.NONE + pickle.POP) * (2 ** (18 + i % 5)) + pickle.STOP
    method = [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA][i // 5 % 3]
    write_archive(path, [pickled, padded][i % 2], {"0": zeros}, compression=method)
    return path


def wrong_archives(i: int, path: Path) -> Path:
    data = bytearray(saved(weights()))
    central = data.rindex(b"PK\x01\x02") if i % 2 else data.index(b"PK\x01\x02")
    field = [20, 24, 42, 28, 30][i % 5]  # sizes, place and lengths in a record of the central directory
    value = [0xFFFFFFFF, 0x7FFFFFFF, 1, len(data)][i // 5]
    width = 2 if field in (28, 30) else 4
    data[central + field : central + field + width] = value.to_bytes(4, "little")[:width]
    if i % 3 == 0:
        end = data.rindex(b"PK\x05\x06")
        data[end + 12 : end + 16] = value.to_bytes(4, "little")
    path.write_bytes(data)
    return path


NAMES = (
    "\x1b[2J\x1b[31m", "a\nwrote /etc/passwd", "a\rb", "a\0b", "\u202eevil", "\x9b31m", "$\\nope$", "a" * 2**20,
    "</script><b>", "%s%n{0}", "\u2028", "🦊" * 600, "[bold red]", "..", "../../etc", "\x07\x08", "$", "\\$x$", "",
    "\ufeff",
)  # fmt: skip


def names(i: int, path: Path) -> Path:
    content = {f"{NAMES[i]}.weight": torch.randn(*KERNEL), "other.weight": torch.randn(*KERNEL)}
    if i % 2:
        path.write_bytes(saved({NAMES[i]: content}))
        return path
    target = path.with_suffix(".safetensors")
    safetensors.torch.save_file(content, target)
    return target


def large_kernels(i: int, path: Path) -> Path:
    """The numbers are a hole in the file, so that it takes no disk."""
    target = path.with_suffix(".safetensors")
    shape = [[8, 1, 500, 500], [1, 1, 65, 64], [2, 1, 10**6], [2, 1, 100, 100, 100], [2**28, 1, 3, 3]][i % 5]
    size = 4 * int(np.prod(shape))
    layers = 1 + i % 3
    header = {f"layer.{j}.weight": entry(shape, j * size, (j + 1) * size) for j in range(layers)}
    write_safetensors(target, header)
    os.truncate(target, target.stat().st_size + layers * size)
    return target


def many_layers(i: int, path: Path) -> Path:
    target = path.with_suffix(".safetensors")
    side, layers = [(64, 9), (31, 200), (63, 50), (1, 3000)][i % 4]
    size = 4 * side * side
    header = {f"layer.{j}.weight": entry([1, 1, side, side], j * size, (j + 1) * size) for j in range(layers)}
    if side == 1:
        header = {f"{j}.{'x' * 40 * i}.bias": entry([0], 0, 0) for j in range(layers)}
    numbers = np.random.default_rng(i).normal(size=layers * side * side).astype(np.float32)
    write_safetensors(target, header, b"" if side == 1 else numbers.tobytes())
    return target


def odd_tensors(i: int, path: Path) -> Path:
    base, large = torch.randn(*KERNEL), torch.full(KERNEL, 1e120, dtype=torch.float64)
    with warnings.catch_warnings(action="ignore"):  # PyTorch wants to be rid of quantised tensors
        quantised = torch.quantize_per_tensor(base, 0.1, 0, torch.qint8)
    tensors = [
        base.to(torch.complex64), base.int(), base > 0, quantised,
        base.to_sparse(), torch.empty(KERNEL, device="meta"), base.to(torch.float8_e4m3fn), base.bfloat16(),
        torch.full(KERNEL, torch.nan), torch.full(KERNEL, 1e300, dtype=torch.float64), torch.zeros(0, 1, 3, 3),
        torch.randn(6, 1, 3, 3, 3, 3), torch.full(KERNEL, 1e-300, dtype=torch.float64), torch.tensor(1.0), base.half(),
        large * 1e80, large * base.sign(), base.permute(3, 2, 1, 0), base[:1], torch.zeros(KERNEL),
    ]  # fmt: skip
    with warnings.catch_warnings(action="ignore"):
        path.write_bytes(saved({"a.weight": tensors[i], "step": 3}, legacy=i in (0, 1, 2, 7, 14)))
    return path


def indices(i: int, path: Path) -> Path:
    folder = path.with_suffix("")
    folder.mkdir()
    target = folder / "model.safetensors.index.json"
    safetensors.torch.save_file(weights(), folder / "one.safetensors")
    safetensors.torch.save_file(weights(), folder.parent / "outside.safetensors")
    shard = [
        "/etc/passwd", "../outside.safetensors", target.name, "..", ".", "",
        "one.safetensors/../../outside.safetensors",
        "/dev/zero", "missing.safetensors", "one.safetensors", "a\0b", "..\\outside.safetensors", "\x1b[31m", 7, None,
        ["one.safetensors"], "x" * 5000, "C:outside.safetensors", "other.index.json", "pipe.bin",
    ][i]  # fmt: skip
    os.mkfifo(folder / "pipe.bin")
    (folder / "other.index.json").write_text(json.dumps({"weight_map": {"a": target.name}}))
    target.write_text(json.dumps({"weight_map": {"not.there.weight": shard}}))
    return target if i % 2 else folder


def special_paths(i: int, path: Path) -> Path:
    target = path.with_suffix([".pth", ".safetensors"][i % 2])
    kind = i // 2
    if kind == 0:
        os.mkfifo(target)
    elif kind in (1, 2, 3, 4):
        target.symlink_to(["/dev/zero", "/dev/null", target, "/nowhere"][kind - 1])
    elif kind == 5:
        target.mkdir()
    elif kind == 6:
        target.mkdir()
        os.mkfifo(target / "model.safetensors")
    elif kind == 7:
        target.mkdir()
        (target / "model.safetensors").symlink_to("/dev/zero")
    elif kind == 8:
        target.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    return target  # the last kind is not there at all


def nearly_nothing(i: int, path: Path) -> Path:
    rng = random.Random(i)
    target = path.with_suffix([".pth", ".safetensors", ".bin", ".ckpt"][i % 4])
    target.write_bytes([b"", b"\0", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), rng.randbytes(200)][i // 4])
    return target


def amplifying_pickles(i: int, path: Path) -> Path:
    big = (2**33).to_bytes(8, "little")
    opcodes = [
        named("builtins", "bytearray") + pickle.BININT + b"\xff\xff\xff\x7f" + pickle.TUPLE1 + pickle.REDUCE,
        named("torch", "FloatStorage") + pickle.BININT + b"\xff\xff\xff\x7f" + pickle.TUPLE1 + pickle.REDUCE,
        pickle.NONE + pickle.LONG_BINPUT + b"\xff\xff\xff\x7f",
        pickle.BYTEARRAY8 + big,
        pickle.BINUNICODE8 + big,
        pickle.BINBYTES8 + big,
        pickle.FRAME + big,
        pickle.LONG4 + b"\xff\xff\xff\x7f",
        named("torch", "zeros") + pickle.BININT + b"\xff\xff\xff\x7f" + pickle.TUPLE1 + pickle.REDUCE,
        text("x" * 10**6) + pickle.MEMOIZE
        + (named("_codecs", "encode") + pickle.BINGET + b"\0" + pickle.TUPLE1 + pickle.REDUCE) * 2000,
    ][i % 10]  # fmt: skip
    whole = dictionary({"a.weight": tensor_opcodes(KERNEL, (9, 9, 3, 1), count=54), "extra": opcodes})
    if i < 10:
        write_archive(path, whole, {"0": bytes(216)})
    else:
        path.write_bytes(whole)
    return path


def random_opcodes(i: int, path: Path) -> Path:
    rng = random.Random(i)
    known = [
        getattr(pickle, name) for name in pickle.__all__ if name.isupper() and isinstance(getattr(pickle, name), bytes)
    ]
    body = b"".join(rng.choice(known) + rng.randbytes(rng.randrange(3)) for _ in range(300))
    whole = pickle.PROTO + b"\x02" + pickle.EMPTY_DICT * 20 + body + pickle.STOP
    if i % 2:
        write_archive(path, whole)
    else:
        path.write_bytes(whole)
    return path


def statistics(i: int, path: Path) -> Path:
    """Statistics files whose checksum is right."""
    target = path.with_suffix(".safetensors")
    layer = {"name": "a", "count": 6, "kernel_size": [3, 3]}
    lists: list[object] = [
        [{**layer, "name": "\x1b[31m"}], [{**layer, "name": "x" * 10**6}], [{**layer, "count": -5}],
        [{**layer, "count": 1e308}],
        [{**layer, "kernel_size": [500, 500]}], [{**layer, "kernel_size": "33"}], [{**layer, "kernel_size": [9**99]}],
        [layer] * 10**5, "layer", [["name"]], [None], {}, [{**layer, "name": None}], [layer], [layer], [layer], [layer],
        [layer], [{**layer, "count": "6" * 5000}], [],
    ]  # fmt: skip
    cov = np.eye(9)
    if i in (13, 14):
        cov[0, 1] = [1e9, 1e300][i - 13]
    if i in (15, 16):
        cov *= [1e150, 1e-300][i - 15]
    about = {
        "format": "filtercov-statistics",
        "schema": 1,
        "sha256": "0" * 64,
        "source": 7,
        "notes": 5 if i == 17 else ["\x1b"],
    }
    tensors = {"layer.0.mean": np.zeros(9), "layer.0.covariance": cov}
    blank = safetensors.numpy.save(tensors, metadata={"filtercov": json.dumps({**about, "layers": lists[i]})})
    target.write_bytes(blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1))
    return target


KINDS: tuple[Callable[[int, Path], Path], ...] = (
    truncated, bits_flipped, executing, executing_by_opcode, self_referential, deeply_nested, expanded, huge_shapes,
    wrong_offsets, wrong_lengths, duplicate_names, deep_json, zip_bombs, wrong_archives, names, large_kernels,
    many_layers, odd_tensors, indices, special_paths, nearly_nothing, amplifying_pickles, random_opcodes, bits_flipped,
    statistics,
)  # fmt: skip


def hostile_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write every file into a folder; yield its kind and its path."""
    for number, write in enumerate(KINDS):
        for i in range(EACH):
            yield write.__name__, write(i, folder / f"{number:02}-{i:02}.pth")
