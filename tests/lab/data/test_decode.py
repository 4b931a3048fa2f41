"""Every kind of picture becomes 8-bit RGB or grey and upright, or is refused with the reason."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from filtercov.lab.data.decode import UndecodableError, pixels, read_image
from filtercov.lab.data.tree import DirectoryTree
from tests.lab.data.folders import png_chunk

RNG = np.random.default_rng(0)
DEEP = RNG.integers(0, 65536, (16, 12), dtype=np.uint16)
COLOUR = RNG.integers(0, 256, (16, 12, 3), dtype=np.uint8)


class Contents(DirectoryTree):
    """A tree that reads the same bytes whatever the path."""

    def __init__(self, data: bytes) -> None:
        super().__init__(Path("nowhere"))
        self.data = data

    def read(self, path: str) -> bytes:  # noqa: ARG002
        return self.data


def decoded(data: bytes, channels: int | None = None) -> np.ndarray:
    return pixels(read_image(Contents(data), "", channels=channels))


def stored(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grey_is_scaled_not_clipped(kind: str) -> None:
    data = stored(Image.fromarray(DEEP), kind)
    np.testing.assert_array_equal(decoded(data), DEEP[..., None] // 256)
    np.testing.assert_array_equal(decoded(data, 3), np.repeat(DEEP[..., None] // 256, 3, axis=2))


def test_sixteen_bit_rgb_keeps_the_high_byte() -> None:
    values = RNG.integers(0, 65536, (5, 7, 3), dtype=np.uint16)
    # Pillow reads such a PNG but does not write one.
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 7, 5, 16, 2, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
    np.testing.assert_array_equal(decoded(png, 3), values >> 8)


@pytest.mark.parametrize(
    ("mode", "kind", "channels"),
    [("CMYK", "JPEG", 3), ("RGBA", "WEBP", 3), ("P", "PNG", 3), ("RGB", "BMP", 3), ("LA", "PNG", 1), ("1", "TIFF", 1)],
)
def test_every_mode_becomes_what_pillow_converts_it_to(mode: str, kind: str, channels: int) -> None:
    data = stored(Image.fromarray(COLOUR).convert("L" if channels == 1 else "RGB").convert(mode), kind)
    assert decoded(data).shape == (16, 12, channels)
    for wanted, converted in ((3, "RGB"), (1, "L")):
        expected = np.asarray(Image.open(io.BytesIO(data)).convert(converted))
        np.testing.assert_array_equal(decoded(data, wanted).squeeze(), expected)


def test_a_palette_with_transparency_is_read_without_a_warning() -> None:
    image = Image.fromarray(COLOUR).convert("P")
    data = stored(image, "PNG", transparency=bytes(range(256)))
    np.testing.assert_array_equal(decoded(data, 3), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(
    "image",
    [
        Image.fromarray(RNG.random((4, 4), dtype=np.float32)),
        Image.fromarray(RNG.integers(-9, 9, (4, 4), dtype=np.int32)),
        Image.frombytes("LAB", (12, 16), COLOUR.tobytes()),  # which Pillow cannot convert
    ],
    ids=["float", "int32", "lab"],
)
def test_pixels_of_unknown_range_or_meaning_are_refused(image: Image.Image) -> None:
    with pytest.raises(UndecodableError):
        decoded(stored(image, "TIFF"), 1)


@pytest.mark.parametrize(("kind", "orientation"), [("JPEG", 1), ("JPEG", 6), ("PNG", 3), ("WEBP", 4), ("TIFF", 5)])
def test_pictures_are_upright_as_viewers_show_them(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = stored(Image.fromarray(COLOUR), kind, exif=exif)
    with Image.open(io.BytesIO(data)) as opened:
        np.testing.assert_array_equal(decoded(data, 3), np.asarray(ImageOps.exif_transpose(opened).convert("RGB")))
    assert decoded(data).shape[:2] == ((12, 16) if orientation >= 5 else (16, 12))
    deep = stored(Image.fromarray(DEEP), "PNG", exif=exif)
    with Image.open(io.BytesIO(deep)) as opened:
        np.testing.assert_array_equal(decoded(deep, 1)[..., 0], np.asarray(ImageOps.exif_transpose(opened)) >> 8)


@pytest.mark.parametrize(("kind", "exif"), [("JPEG", b"garbage"), ("PNG", b"II*\0\x08"), ("WEBP", b"MM\0*\xff\xff")])
def test_damaged_metadata_does_not_cost_the_picture(kind: str, exif: bytes) -> None:
    data = stored(Image.fromarray(COLOUR), kind, exif=b"Exif\0\0" + exif)
    assert decoded(data, 3).shape == (16, 12, 3)


@pytest.mark.parametrize("kind", ["GIF", "MPO"])
def test_of_several_pictures_in_a_file_the_first_counts(kind: str) -> None:
    frames = [Image.fromarray(np.full((16, 12, 3), level, np.uint8)) for level in (200, 20, 90)]
    data = stored(frames[0], kind, save_all=True, append_images=frames[1:])
    np.testing.assert_allclose(decoded(data, 3), 200, atol=1)
