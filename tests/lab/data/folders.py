"""Makes folder datasets for the tests: good ones, and files that are bad in forty ways."""

import io
import os
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


def zip_folder(root: Path, path: Path, *, prefix: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file():
                archive.write(file, prefix + file.relative_to(root).as_posix())
    return path


def bad_contents() -> dict[str, bytes]:
    """Return thirty-seven files' contents, none of which is a usable image."""
    good = {kind: encoded(1, (40, 40), kind=kind) for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")}
    png = good["PNG"]
    bad = {"empty": b"", "one-byte": b"\xff", "zeros": bytes(500), "spaces": b" " * 100, "newline": b"\n"}
    for kind, data in good.items():
        bad[f"{kind}-magic-only"] = data[:4]
        bad[f"{kind}-cut-in-half"] = data[: len(data) // 2]
        if kind in ("PNG", "JPEG", "GIF", "WEBP"):
            bad[f"{kind}-header-only"] = data[:24]
    noise = bytes(np.random.default_rng(0).integers(0, 256, 3000, dtype=np.uint8))
    bad |= {
        "noise": noise,
        "jpeg-magic-then-noise": b"\xff\xd8\xff\xe0" + noise,
        "png-magic-then-noise": png[:8] + noise,
        "png-pixels-overwritten": png[:60] + noise[:200] + png[260:],
        "png-header-checksum": png[:20] + b"\x07" + png[21:],
        "png-bomb": png[:8] + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)) + png[33:],
        "text": b"this is not an image, whatever its name says",
        "html": b"<!doctype html><title>404</title>",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"/>',
        "pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
        "zip": b"PK\x03\x04" + bytes(40),
        "python": b"import os\nos.system('true')\n",
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n",
        "ds-store": b"\x00\x00\x00\x01Bud1" + bytes(50),
    }
    return bad


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_bad_files(folder: Path) -> set[str]:
    """Write every bad content and three things that are no files into a folder; return their names."""
    names = set()
    for name, content in bad_contents().items():
        (folder / f"bad-{name}.jpg").write_bytes(content)
        names.add(f"bad-{name}.jpg")
    (folder / "bad-link.jpg").symlink_to("nowhere")
    (folder / "bad-loop.jpg").symlink_to("bad-loop.jpg")
    os.mkfifo(folder / "bad-pipe.jpg")
    return names | {"bad-link.jpg", "bad-loop.jpg", "bad-pipe.jpg"}
