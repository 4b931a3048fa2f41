"""From an image file's bytes to pixels, and the tally of files that could not be decoded. Files may be hostile."""

import io
import logging
import warnings
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from filtercov.errors import DataError
from filtercov.lab.data.tree import Tree
from filtercov.printable import printable

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_LOG = logging.getLogger("filtercov.lab.data")
_GREY_MODES = ("1", "L", "LA")
_METADATA = frozenset(("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"))  # where Pillow finds Exif


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
            named = "; ".join(f"{path}: {reason}" for path, reason in [*self.found.items()][:10])
            raise DataError(
                f"more than {self.limit} images cannot be read ({named}); repair or remove them, or allow more with "
                "load(…, bad_limit=N)"
            )


def read_image(tree: Tree, path: str, *, channels: int | None = None) -> Image.Image:
    """The RGB (3 channels) or grey (1) image of a tree's file, upright, 8 bits per channel; None: grey if stored so.

    Of an animation it is the first picture; transparency is dropped.
    """
    try:
        with warnings.catch_warnings():
            # Pillow warns of what it repairs or doubts (damaged metadata, a picture so large that it may be meant to
            # exhaust memory). Only the last is a reason to stop.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = _load(tree.read(path))
            grey = channels == 1 or (channels is None and image.mode in _GREY_MODES)
            return image.convert("L" if grey else "RGB")
    except UndecodableError:
        raise
    except UnidentifiedImageError:
        raise UndecodableError(f"not an image of a known format ({', '.join(FORMATS)})") from None
    except Exception as error:  # a damaged file can raise nearly anything, from OSError to struct.error
        raise UndecodableError(f"{type(error).__name__}: {error}") from error


def _load(data: bytes) -> Image.Image:
    if not data:
        raise UndecodableError("empty file")
    image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
    image.load()
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise UndecodableError("its pixels are floats or 32-bit integers, of unknown range; store it with 8 or 16 bits")
    if not _METADATA.isdisjoint(image.info):  # few files of a dataset have any, and reading it takes a while
        with suppress(Exception):  # damaged metadata can raise nearly anything, and the pixels are sound
            image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        # Of 16 bits the high byte, which is what Pillow keeps of deeper RGB; `convert` would clip at 255.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def pixels(image: Image.Image) -> NDArray[np.uint8]:
    """The image as uint8 (H, W, C)."""
    array = np.asarray(image)
    return array if array.ndim == 3 else array[..., None]


def fit_square(image: Image.Image, size: int, *, crop_share: float = 1.0) -> Image.Image:
    """The central square, `crop_share` of the shorter side, scaled to size × size.

    >>> fit_square(Image.new("RGB", (40, 20)), 10).size
    (10, 10)
    """
    if image.size == (size, size) and crop_share == 1.0:
        return image
    side = max(1, round(min(image.size) * crop_share))
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return crop_and_resize(image, (left, top, left + side, top + side), size)


def crop_and_resize(image: Image.Image, box: tuple[int, int, int, int], size: int) -> Image.Image:
    """The box (left, top, right, bottom), scaled to size × size, bilinear.

    Cropped first: with resize's own `box` the filter would see beyond it, as torchvision's does not.
    """
    return image.crop(box).resize((size, size), Image.Resampling.BILINEAR)
