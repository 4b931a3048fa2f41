"""Every kind of picture becomes 8-bit RGB or grey and upright, or is refused with the reason."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from filtercov.lab.data import cache
from filtercov.lab.data.decode import UndecodableError, open_image, pixels, shape_of
from filtercov.lab.data.folder import load_folder
from tests.lab.data.folders import png_chunk, write_folder

RNG = np.random.default_rng(0)
DEEP = RNG.integers(0, 65536, (16, 12), dtype=np.uint16)
COLOUR = RNG.integers(0, 256, (16, 12, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILTERCOV_CACHE", str(tmp_path / "cache"))


def stored(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def deep_rgb_png(values: np.ndarray) -> bytes:
    """Return a PNG of 16 bits in each of three channels, which Pillow reads but does not write."""
    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    chunks = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bit_grey_is_scaled_not_cut_off(kind: str, channels: int) -> None:
    data = stored(Image.fromarray(DEEP), kind)
    image = pixels(open_image(data, channels=channels))
    expected = [[value // 256 for value in row] for row in DEEP.tolist()]
    for channel in range(channels):
        assert image[..., channel].tolist() == expected
    assert shape_of(data) == (16, 12, 1)


def test_big_endian_and_twelve_bit_tiffs_are_scaled_too() -> None:
    big = Image.frombytes("I;16B", (12, 16), DEEP.astype(">u2").tobytes())
    np.testing.assert_array_equal(pixels(open_image(stored(big, "TIFF"), channels=1))[..., 0], DEEP >> 8)
    row = bytes.fromhex("fff800")  # two pixels of twelve bits, 4095 and 2048, packed into three bytes
    tags = [(256, 2), (257, 1), (258, 12), (259, 1), (262, 1), (273, 122), (277, 1), (278, 1), (279, 3)]
    entries = b"".join(tag.to_bytes(2, "little") + b"\4\0\1\0\0\0" + value.to_bytes(4, "little") for tag, value in tags)
    tiff = b"II*\0\x08\0\0\0" + len(tags).to_bytes(2, "little") + entries + b"\0\0\0\0" + row
    assert tiff.index(row) == 122
    assert pixels(open_image(tiff, channels=1))[..., 0].tolist() == [[255, 128]]


def test_sixteen_bit_rgb_keeps_the_high_byte() -> None:
    values = RNG.integers(0, 65536, (5, 7, 3), dtype=np.uint16)
    np.testing.assert_array_equal(pixels(open_image(deep_rgb_png(values), channels=3)), values >> 8)


def test_a_folder_of_deep_grey_has_one_channel_and_all_its_levels(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "xrays")
    for number, file in enumerate(sorted(root.rglob("*.png"))):
        values = np.random.default_rng(number).integers(0, 65536, (16, 16), dtype=np.uint16)
        file.write_bytes(stored(Image.fromarray(values), "PNG"))
    data = load_folder(root, bad_limit=0)
    assert data.in_channels == 1
    assert 0.45 < data.mean[0] < 0.55
    assert len(np.unique(data.train.images)) == 256


def grey(mode: str) -> Image.Image:
    return Image.fromarray(COLOUR).convert("L").convert(mode)


@pytest.mark.parametrize(
    ("image", "kind", "channels"),
    [
        (Image.fromarray(COLOUR).convert("CMYK"), "TIFF", 3),
        (Image.fromarray(COLOUR).convert("CMYK"), "JPEG", 3),
        (Image.fromarray(COLOUR).convert("RGBA"), "PNG", 3),
        (Image.fromarray(COLOUR).convert("RGBA"), "WEBP", 3),
        (Image.fromarray(COLOUR).convert("P"), "PNG", 3),
        (Image.fromarray(COLOUR).convert("YCbCr"), "JPEG", 3),
        (Image.fromarray(COLOUR), "BMP", 3),
        (grey("LA"), "PNG", 1),
        (grey("1"), "PNG", 1),
        (grey("1"), "TIFF", 1),
        (grey("L"), "JPEG", 1),
    ],
    ids=lambda value: value.mode if isinstance(value, Image.Image) else str(value),
)
def test_every_mode_becomes_what_pillow_converts_it_to(image: Image.Image, kind: str, channels: int) -> None:
    data = stored(image, kind)
    assert shape_of(data) == (16, 12, channels)
    for wanted, mode in ((3, "RGB"), (1, "L")):
        expected = np.asarray(Image.open(io.BytesIO(data)).convert(mode))
        np.testing.assert_array_equal(pixels(open_image(data, channels=wanted)).squeeze(), expected)


def test_a_palette_with_transparency_is_read_without_a_warning() -> None:
    image = Image.fromarray(COLOUR).convert("P")
    data = stored(image, "PNG", transparency=bytes(range(256)))
    np.testing.assert_array_equal(pixels(open_image(data, channels=3)), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (Image.fromarray(RNG.random((4, 4), dtype=np.float32)), "floats"),
        (Image.fromarray(RNG.integers(-9, 9, (4, 4), dtype=np.int32)), "signed or 32-bit"),
    ],
    ids=["float", "int32"],
)
def test_pixels_of_unknown_range_are_refused_with_the_reason(image: Image.Image, reason: str) -> None:
    with pytest.raises(UndecodableError, match=reason):
        open_image(stored(image, "TIFF"), channels=3)


def test_a_mode_that_pillow_cannot_convert_is_a_bad_file_and_no_crash() -> None:
    lab = Image.frombytes("LAB", (12, 16), COLOUR.tobytes())
    with pytest.raises(UndecodableError, match="not supported"):
        open_image(stored(lab, "TIFF"), channels=1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_upright_as_viewers_show_them(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = stored(Image.fromarray(COLOUR), kind, exif=exif)
    with Image.open(io.BytesIO(data)) as opened:
        upright = ImageOps.exif_transpose(opened).convert("RGB")
    np.testing.assert_array_equal(pixels(open_image(data, channels=3)), np.asarray(upright))
    assert shape_of(data)[:2] == (upright.height, upright.width)
    assert (upright.height < upright.width) == (orientation >= 5)


def test_deep_grey_is_turned_too() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = stored(Image.fromarray(DEEP), "PNG", exif=exif)
    np.testing.assert_array_equal(pixels(open_image(data, channels=1))[..., 0], np.rot90(DEEP >> 8, -1))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("exif", [b"garbage", b"II*\0\x08", b"MM\0*\xff\xff\xff\xff", b"II*\0\x08\0\0\0\xff\xff"])
def test_damaged_metadata_do_not_cost_the_picture(kind: str, exif: bytes) -> None:
    data = stored(Image.fromarray(COLOUR), kind, exif=b"Exif\0\0" + exif)
    assert open_image(data, channels=3).size == (12, 16)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "MPO"])
def test_of_several_pictures_in_a_file_the_first_counts(kind: str) -> None:
    frames = [Image.fromarray(np.full((16, 12, 3), level, np.uint8)) for level in (200, 20, 90)]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = stored(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    with Image.open(io.BytesIO(data)) as opened:
        assert opened.n_frames == 3
    np.testing.assert_allclose(pixels(open_image(data, channels=3)), 200, atol=1)


def test_one_colour_picture_among_grey_ones_is_enough_for_three_channels(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "mostly-grey", mode="L")
    colour = np.full((16, 16, 3), (250, 10, 120), np.uint8)
    (root / "train" / "cat" / "0000.png").write_bytes(stored(Image.fromarray(colour), "PNG"))
    data = load_folder(root)
    assert data.in_channels == 3
    np.testing.assert_array_equal(data.train.images[0], colour)


def test_what_an_older_version_decoded_is_not_read_as_this_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_folder(tmp_path / "pets")
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_VERSION", 2)
        load_folder(root)
    (old,) = (tmp_path / "pets.filtercov").iterdir()
    (old / "images.bytes").write_bytes(bytes((old / "images.bytes").stat().st_size))
    assert load_folder(root).train.images.any()
