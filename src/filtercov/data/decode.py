"""From an image file's bytes to pixels, treating the file as hostile."""

import io
import warnings

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")


class UndecodableError(Exception):
    """The bytes are not an image that can be used; the message says why."""


def open_image(data: bytes, *, channels: int) -> Image.Image:
    """Return the decoded RGB (3 channels) or grey (1) image of a file's content.

    >>> open_image(b"", channels=3)
    Traceback (most recent call last):
    filtercov.data.decode.UndecodableError: empty file
    """
    return _decode(data).convert("RGB" if channels == 3 else "L")


def shape_of(data: bytes) -> tuple[int, int, int]:
    """Return the (height, width, channels) of a file's image: one channel if it is stored grey, else three."""
    image = _decode(data)
    return image.height, image.width, 1 if image.mode in ("1", "L") else 3


def _decode(data: bytes) -> Image.Image:
    if not data:
        raise UndecodableError("empty file")
    try:
        with warnings.catch_warnings():
            # Pillow warns of what it mends or doubts (damaged metadata, a picture so large that it may be meant to
            # exhaust memory). Only the last is a reason not to go on.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            image.load()
        return image
    except UnidentifiedImageError:
        raise UndecodableError("not an image") from None
    except Exception as error:  # a damaged file can raise nearly anything, from OSError to struct.error
        raise UndecodableError(f"{type(error).__name__}: {error}") from error


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
