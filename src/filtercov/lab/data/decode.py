"""From an image file to an upright picture of 8 bits per channel, cropped and scaled."""

import io
import warnings
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")


class UnreadableError(Exception):
    """A file that cannot be read as an image; the message names it and says why."""


def read_image(read: Callable[[str], bytes], path: str, *, channels: int | None = None) -> Image.Image:
    """The RGB (3 channels) or grey (1) image of a file, upright, 8 bits per channel; None: grey if stored so.

    `read` gives the file's content. Of an animation it is the first picture; transparency is dropped.
    """
    try:
        with warnings.catch_warnings():
            # Pillow warns of what it repairs or doubts (damaged metadata, a picture so large that it may be meant to
            # exhaust memory). Only the last is a reason to stop.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = _decode(read(path))
            grey = channels == 1 or (channels is None and image.mode in ("1", "L", "LA"))
            return image.convert("L" if grey else "RGB")
    except UnidentifiedImageError:
        raise UnreadableError(f"{path}: not an image of a known format ({', '.join(FORMATS)})") from None
    except Exception as error:  # a damaged file can raise nearly anything, from OSError to struct.error
        raise UnreadableError(f"{path}: {type(error).__name__}: {error}") from error


def _decode(content: bytes) -> Image.Image:
    image: Image.Image = Image.open(io.BytesIO(content), formats=FORMATS)
    image.load()
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise ValueError("its pixels are floats or 32-bit integers, of unknown range; store it with 8 or 16 bits")
    with suppress(Exception):  # damaged metadata can raise nearly anything, and the pixels are sound
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        # Of 16 bits the high byte, which is what Pillow keeps of deeper RGB; `convert` would clip at 255.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def fit_square(image: Image.Image, size: int, *, crop_share: float = 1.0) -> Image.Image:
    """The central square, `crop_share` of the shorter side, scaled to size × size.

    >>> fit_square(Image.new("RGB", (40, 20)), 10).size
    (10, 10)
    """
    if image.size == (size, size) and crop_share == 1.0:
        return image
    side = max(1, round(min(image.size) * crop_share))
    return crop_and_resize(image, ((image.height - side) // 2, (image.width - side) // 2, side, side), size)


def crop_and_resize(image: Image.Image, box: tuple[int, int, int, int], size: int) -> Image.Image:
    """The box (top, left, height, width) of an image, scaled to size × size, antialiased bilinear."""
    top, left, height, width = box
    # Cropped first: with resize's own `box` the filter would see beyond it, as torchvision's does not.
    return image.crop((left, top, left + width, top + height)).resize((size, size), Image.Resampling.BILINEAR)
