"""From an image file's bytes to pixels, treating the file as hostile."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_GREY_MODES = ("1", "L", "LA")
_ORIENTATION = 0x0112  # Exif's
_METADATA = frozenset(("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"))  # where Pillow finds it
_BITS_PER_SAMPLE = 258  # TIFF's
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UndecodableError(Exception):
    """The bytes are not an image that can be used; the message says why."""


def open_image(data: bytes, *, channels: int) -> Image.Image:
    """Return the decoded RGB (3 channels) or grey (1) image of a file's content, upright, 8 bits per channel.

    Of an animation it is the first picture; transparency is dropped.

    >>> open_image(b"", channels=3)
    Traceback (most recent call last):
    filtercov.lab.data.decode.UndecodableError: empty file
    """
    with _decoding():
        return _load(data).convert("RGB" if channels == 3 else "L")


def shape_of(data: bytes) -> tuple[int, int, int]:
    """Return the (height, width, channels) of a file's image: one channel if it is stored grey, else three."""
    with _decoding():
        image = _load(data)
    return image.height, image.width, 1 if image.mode in _GREY_MODES else 3


@contextmanager
def _decoding() -> Iterator[None]:
    """Turn whatever decoding raises into an `UndecodableError` with the reason."""
    try:
        with warnings.catch_warnings():
            # Pillow warns of what it mends or doubts (damaged metadata, a picture so large that it may be meant to
            # exhaust memory). Only the last is a reason not to go on.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except UndecodableError:
        raise
    except UnidentifiedImageError:
        raise UndecodableError(f"not an image of a format that is read ({', '.join(FORMATS)})") from None
    except Exception as error:  # a damaged file can raise nearly anything, from OSError to struct.error
        raise UndecodableError(f"{type(error).__name__}: {error}") from error


def _load(data: bytes) -> Image.Image:
    if not data:
        raise UndecodableError("empty file")
    stored = Image.open(io.BytesIO(data), formats=FORMATS)
    stored.load()
    turn, image = _turn(stored), _eight_bits(stored)
    return image if turn is None else image.transpose(turn)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return an image whose pixels are bytes: of deeper grey the high byte, which is what Pillow keeps of deeper RGB.

    `convert` would cut such values off at 255 and leave a white image.
    """
    if image.mode == "F":
        raise UndecodableError("its pixels are floats, whose range nobody knows; store it with 8 or 16 bits")
    if not image.mode.startswith("I"):
        return image
    if image.mode == "I" and image.format == "TIFF":
        raise UndecodableError("its pixels are signed or 32-bit, whose range nobody knows; store it with 8 or 16 bits")
    return Image.fromarray((np.asarray(image) >> (_grey_bits(image) - 8)).astype(np.uint8))


def _grey_bits(image: Image.Image) -> int:
    """Return how many bits deep a grey image is: 16, but TIFF has scanners' 12 too."""
    tags = getattr(image, "tag_v2", {})
    return int(tags.get(_BITS_PER_SAMPLE, (16,))[0])


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return how to turn the image upright: cameras store what the sensor saw, and say in Exif how it lay."""
    if _METADATA.isdisjoint(image.info):  # as in most files of a dataset, and looking further would take a while
        return None
    try:
        return _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata can raise nearly anything, and the pixels are sound
        return None


def pixels(image: Image.Image) -> NDArray[np.uint8]:
    """Return uint8 (H, W, C)."""
    array = np.asarray(image)
    return array if array.ndim == 3 else array[..., None]


def fit_square(image: Image.Image, size: int, *, crop_share: float = 1.0) -> Image.Image:
    """Return the central square, `crop_share` of the shorter side, scaled to size × size; as it is if that fits.

    >>> fit_square(Image.new("RGB", (40, 20)), 10).size
    (10, 10)
    """
    if image.size == (size, size) and crop_share == 1.0:
        return image
    side = max(1, round(min(image.size) * crop_share))
    left, top = (image.width - side) // 2, (image.height - side) // 2
    # Cut first: with resize's own `box` the filter would see beyond it.
    square = image.crop((left, top, left + side, top + side))
    return square.resize((size, size), Image.Resampling.BILINEAR)
