"""Every kind of picture becomes 8-bit RGB or grey and upright, or is refused with the reason."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from filtercov.errors import DataError
from filtercov.lab.data.folder import read_image
from tests.lab.data.folders import encoded, png_chunk

RNG = np.random.default_rng(0)
DEEP = RNG.integers(0, 65536, (16, 12), dtype=np.uint16)
COLOUR = RNG.integers(0, 256, (16, 12, 3), dtype=np.uint8)
PNG, JPEG = encoded(1, (40, 40)), encoded(1, (40, 40), kind="JPEG")
NOISE = RNG.bytes(3000)


def decoded(data: bytes, channels: int | None = None) -> np.ndarray:
    return np.asarray(read_image(lambda _: data, "picture", channels=channels))


def stored(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grey_is_scaled_not_clipped(kind: str) -> None:
    data = stored(Image.fromarray(DEEP), kind)
    np.testing.assert_array_equal(decoded(data), DEEP // 256)
    np.testing.assert_array_equal(decoded(data, 3), np.repeat(DEEP[..., None] // 256, 3, axis=2))


def test_sixteen_bit_rgb_keeps_the_high_byte() -> None:
    values = RNG.integers(0, 65536, (5, 7, 3), dtype=np.uint16)
    # Pillow reads such a PNG but does not write one.
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 7, 5, 16, 2, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
    np.testing.assert_array_equal(decoded(png, 3), values >> 8)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("mode", "kind", "grey"),
    [("CMYK", "JPEG", False), ("RGBA", "WEBP", False), ("P", "PNG", False), ("LA", "PNG", True), ("1", "TIFF", True)],
)
def test_every_mode_becomes_what_pillow_converts_it_to(mode: str, kind: str, grey: bool) -> None:
    options = {"transparency": bytes(range(256))} if mode == "P" else {}  # of which Pillow would warn
    image = Image.fromarray(COLOUR).convert("L" if grey else "RGB").convert(mode)
    data = stored(image, kind, **options)
    assert decoded(data).ndim == (2 if grey else 3)
    opened = image if mode == "P" else Image.open(io.BytesIO(data))
    for wanted, converted in ((3, "RGB"), (1, "L")):
        np.testing.assert_array_equal(decoded(data, wanted), np.asarray(opened.convert(converted)))


@pytest.mark.parametrize(
    "data",
    {
        "empty": b"",
        "html": b"<!doctype html><title>404</title>",
        "noise": NOISE,
        "half a png": PNG[: len(PNG) // 2],
        "png overwritten": PNG[:60] + NOISE[:200] + PNG[260:],
        "bomb": PNG[:8] + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)) + PNG[33:],
        "half a jpeg": JPEG[: len(JPEG) // 2],
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n",
        "float": stored(Image.fromarray(RNG.random((4, 4), dtype=np.float32)), "TIFF"),
        "int32": stored(Image.fromarray(RNG.integers(-9, 9, (4, 4), dtype=np.int32)), "TIFF"),
        "lab": stored(Image.frombytes("LAB", (12, 16), COLOUR.tobytes()), "TIFF"),  # which Pillow cannot convert
    }.values(),
)
def test_what_is_damaged_or_of_unknown_range_or_meaning_is_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        decoded(data, 1)


@pytest.mark.parametrize(("kind", "orientation"), [("JPEG", 1), ("JPEG", 6), ("PNG", 3), ("WEBP", 4), ("TIFF", 5)])
def test_pictures_are_upright_as_viewers_show_them(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    for image, container, channels in ((Image.fromarray(COLOUR), kind, 3), (Image.fromarray(DEEP), "PNG", 1)):
        data = stored(image, container, exif=exif)
        with Image.open(io.BytesIO(data)) as opened:
            upright = np.asarray(ImageOps.exif_transpose(opened))
        np.testing.assert_array_equal(decoded(data, channels), upright if channels == 3 else upright >> 8)
        assert upright.shape[:2] == ((12, 16) if orientation >= 5 else (16, 12))


@pytest.mark.parametrize(("kind", "exif"), [("JPEG", b"garbage"), ("PNG", b"II*\0\x08"), ("WEBP", b"MM\0*\xff\xff")])
def test_damaged_metadata_does_not_cost_the_picture(kind: str, exif: bytes) -> None:
    data = stored(Image.fromarray(COLOUR), kind, exif=b"Exif\0\0" + exif)
    assert decoded(data, 3).shape == (16, 12, 3)


def test_of_several_pictures_in_a_file_the_first_counts() -> None:
    frames = [Image.fromarray(np.full((16, 12, 3), level, np.uint8)) for level in (200, 20, 90)]
    data = stored(frames[0], "GIF", save_all=True, append_images=frames[1:])
    np.testing.assert_allclose(decoded(data, 3), 200, atol=1)
