"""Makes image folders for the tests, and compares batches."""

import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image


def encoded(seed: int, size: tuple[int, int] = (16, 16), mode: str = "RGB", kind: str = "PNG") -> bytes:
    """Return an image file of a random picture."""
    channels = {"RGB": (3,), "L": (), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], *channels), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def write_folder(
    root: Path,
    *,
    per_class: int = 6,
    classes: tuple[str, ...] = ("cat", "dog", "emu"),
    **image: object,
) -> Path:
    """Write root/train/CLASS/*.png and root/test/CLASS/*.png (half as many)."""
    seed = 0
    for split, count in (("train", per_class), ("test", max(1, per_class // 2))):
        for label in classes:
            for number in range(count):
                write(root / split / label / f"{number:04}.png", encoded(seed, **image))  # type: ignore[arg-type]
                seed += 1
    return root


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def zip_folder(root: Path, path: Path, *, prefix: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file():
                archive.write(file, prefix + file.relative_to(root).as_posix())
    return path


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def assert_same(batches: list[tuple[torch.Tensor, ...]], others: list[tuple[torch.Tensor, ...]]) -> None:
    for batch, other in zip(batches, others, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(batch, other, strict=True))


def joined(shares: list[list[tuple[torch.Tensor, ...]]]) -> list[tuple[torch.Tensor, ...]]:
    """The batches whose parts the ranks got."""
    return [tuple(map(torch.cat, zip(*parts, strict=True))) for parts in zip(*shares, strict=True)]
