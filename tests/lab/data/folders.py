"""Makes image folders for the tests, and files that are bad in a dozen ways."""

import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
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
    test: str = "test",
    **image: object,
) -> Path:
    """Write root/train/CLASS/*.png and root/test/CLASS/*.png (half as many)."""
    seed = 0
    for split, count in (("train", per_class), (test, max(1, per_class // 2))):
        for label in classes:
            folder = root / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{number:04}.png").write_bytes(encoded(seed, **image))  # type: ignore[arg-type]
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


def write_bad_files(folder: Path) -> set[str]:
    """Write files of which none is a usable image, with names that look like images; return the names."""
    png, jpeg = encoded(1, (40, 40)), encoded(1, (40, 40), kind="JPEG")
    noise = bytes(np.random.default_rng(0).integers(0, 256, 3000, dtype=np.uint8))
    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    bad = {
        "empty": b"",
        "html": b"<!doctype html><title>404</title>",
        "noise": noise,
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n",
        "png-header": png[:24],
        "png-half": png[: len(png) // 2],
        "png-overwritten": png[:60] + noise[:200] + png[260:],
        "png-checksum": png[:20] + b"\x07" + png[21:],
        "png-bomb": png[:8] + png_chunk(b"IHDR", header) + png[33:],
        "jpeg-half": jpeg[: len(jpeg) // 2],
        "jpeg-noise": jpeg[:4] + noise,
    }
    for name, content in bad.items():
        (folder / f"bad-{name}.jpg").write_bytes(content)
    return {f"bad-{name}.jpg" for name in bad}
