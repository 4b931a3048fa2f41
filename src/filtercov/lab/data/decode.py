"""From an image file's bytes to pixels, and the tally of files that could not be decoded. Files may be hostile."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from filtercov.errors import DataError
from filtercov.lab.data.tree import Tree
from filtercov.printable import printable

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_LOG = logging.getLogger("filtercov.lab.data")
_GREY_MODES = ("1", "L", "LA")
_ORIENTATION = 0x0112  # Exif's
_METADATA = frozenset(("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"))  # where Pillow finds Exif
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
    """A file that cannot be read as an image; the message says why."""


@dataclass
class BadFiles:
    """The bad files met so far, with reasons; each is logged once, and one more than `limit` is an error."""

    limit: int
    found: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, reason: str) -> None:
        """Note a bad file, once however often it is met."""
        if path in self.found:
            return
        self.found[path] = reason
        _LOG.warning("cannot use %s", printable(f"{path}: {reason}"))
        if len(self.found) > self.limit:
            named = [printable(f"{path}: {reason}") for path, reason in self.found.items()][:10]
            raise DataError(
                f"more than {self.limit} images cannot be read ({'; '.join(named)}); repair or remove them, or allow "
                "more with load(…, bad_limit=N)"
            )


def read_image(tree: Tree, path: str, *, channels: int) -> Image.Image:
    """Return the decoded RGB (3 channels) or grey (1) image of a tree's file, upright, 8 bits per channel.

    Of an animation it is the first picture; transparency is dropped.
    """
    with _decoding():
        return _load(tree.read(path)).convert("RGB" if channels == 3 else "L")


def read_shape(tree: Tree, path: str) -> tuple[int, int, int]:
    """Return the (height, width, channels) of a file's image: one channel if it is stored grey, else three."""
    with _decoding():
        image = _load(tree.read(path))
    return image.height, image.width, 1 if image.mode in _GREY_MODES else 3


@contextmanager
def _decoding() -> Iterator[None]:
    """Turn whatever reading and decoding raise into an `UndecodableError` with the reason."""
    try:
        with warnings.catch_warnings():
            # Pillow warns of what it repairs or doubts (damaged metadata, a picture so large that it may be meant to
            # exhaust memory). Only the last is a reason to stop.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except UndecodableError:
        raise
    except UnidentifiedImageError:
        raise UndecodableError(f"not an image of a known format ({', '.join(FORMATS)})") from None
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
    """Return the image with bytes as pixels: of deeper grey the high byte, which is what Pillow keeps of deeper RGB.

    `convert` would clip such values at 255 and leave a white image.
    """
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise UndecodableError("its pixels are floats or 32-bit integers, of unknown range; store it with 8 or 16 bits")
    if not image.mode.startswith("I"):
        return image
    tags = getattr(image, "tag_v2", {})  # of a TIFF, where scanners store 12 bits
    bits = int(tags.get(_BITS_PER_SAMPLE, (16,))[0])
    return Image.fromarray((np.asarray(image) >> (bits - 8)).astype(np.uint8))


def _turn(image: Image.Image) -> Image.Transpose | None:
    """How to turn the image upright: cameras store what the sensor saw, and note in Exif how it was held."""
    if _METADATA.isdisjoint(image.info):  # as in most files of a dataset, and reading Exif takes a while
        return None
    try:
        return _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata can raise nearly anything, and the pixels are sound
        return None


def pixels(image: Image.Image) -> NDArray[np.uint8]:
    """Return the image as uint8 (H, W, C)."""
    array = np.asarray(image)
    return array if array.ndim == 3 else array[..., None]


def fit_square(image: Image.Image, size: int, *, crop_share: float = 1.0) -> Image.Image:
    """Return the central square, `crop_share` of the shorter side, scaled to size × size.

    >>> fit_square(Image.new("RGB", (40, 20)), 10).size
    (10, 10)
    """
    if image.size == (size, size) and crop_share == 1.0:
        return image
    side = max(1, round(min(image.size) * crop_share))
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return crop_and_resize(image, (left, top, left + side, top + side), size)


def crop_and_resize(image: Image.Image, box: tuple[int, int, int, int], size: int) -> Image.Image:
    """Return the box (left, top, right, bottom), scaled to size × size, bilinear.

    Cropped first: with resize's own `box` the filter would see beyond it, as torchvision's does not.
    """
    return image.crop(box).resize((size, size), Image.Resampling.BILINEAR)
