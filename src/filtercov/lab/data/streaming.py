"""From image files to pixels: decoding, the tally of bad files, and large images, decoded while the model trains."""

import hashlib
import io
import logging
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch.utils.data import DataLoader

from filtercov.errors import DataError
from filtercov.files import atomic_write, cache_directory
from filtercov.lab.data.augment.geometry import crop_boxes
from filtercov.lab.data.dataset import Fetched, Plan
from filtercov.lab.data.tree import ImageFile, Tree
from filtercov.printable import printable

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
CENTRE_SHARE = 0.95  # of the shorter side, for images that are not randomly cropped: the evaluation crop of A1
NEIGHBOURS = 10  # images tried, itself included, in place of one that cannot be read
_LOG = logging.getLogger("filtercov.lab.data")


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
            grey = channels == 1 or (channels is None and image.mode in ("1", "L", "LA"))
            return image.convert("L" if grey else "RGB")
    except UnidentifiedImageError:
        raise UndecodableError(f"not an image of a known format ({', '.join(FORMATS)})") from None
    except Exception as error:  # a damaged file can raise nearly anything, from OSError to struct.error
        raise UndecodableError(f"{type(error).__name__}: {error}") from error


def _load(data: bytes) -> Image.Image:
    image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
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
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return _crop_and_resize(image, (left, top, left + side, top + side), size)


def _crop_and_resize(image: Image.Image, box: tuple[int, int, int, int], size: int) -> Image.Image:
    # Cropped first: with resize's own `box` the filter would see beyond it, as torchvision's does not.
    return image.crop(box).resize((size, size), Image.Resampling.BILINEAR)


@dataclass(frozen=True, eq=False)
class StreamedImages:
    """Files of a tree, read when a batch needs them."""

    tree: Tree
    files: Sequence[ImageFile]
    size: int
    channels: int
    workers: int
    bad: BadFiles
    crops_while_reading = True

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels."""
        return self.tree.classes

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The label of each image, (N,)."""
        return self.tree.labels(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def subset(self, indices: NDArray[np.int64]) -> "StreamedImages":
        """A stream of some of the files, in the order given."""
        return replace(self, files=[self.files[index] for index in indices])

    def fetch(self, plans: Iterable[Plan]) -> Iterator[Fetched]:
        """Yield the images of each plan as uint8 (n, C, size, size); a worker decodes a whole batch."""
        batches = DataLoader(
            cast(Any, self),
            sampler=plans,  # what is "sampled" is a whole batch
            batch_size=None,
            num_workers=self.workers,
            generator=torch.Generator(),  # else it draws from torch's own, which a resumed run must find unmoved
        )
        for fetched, bad in batches:
            for path, reason in bad.items():
                self.bad.add(path, reason)
            yield fetched

    def __getitem__(self, plan: Plan) -> tuple[Fetched, dict[str, str]]:
        """What a worker process does: the images of a plan, and the bad files with reasons."""
        bad: dict[str, str] = {}
        images, targets, rows = [], [], []
        for row, index in enumerate(plan.indices.tolist()):
            for step in range(NEIGHBOURS if plan.replace_unreadable else 1):
                file = self.files[(index + step) % len(self)]
                try:
                    image = self._read(file.path, plan, row)
                except UndecodableError as error:
                    bad[file.path] = str(error)
                    continue
                images.append(image)
                targets.append(self.tree.numbers[file.label])
                rows.append(row)
                break
        pixels = np.array(images, dtype=np.uint8).reshape(-1, self.size, self.size, self.channels)
        fetched = Fetched(
            torch.from_numpy(pixels).permute(0, 3, 1, 2),
            torch.tensor(targets, dtype=torch.int64),
            None if len(rows) == len(plan.indices) else torch.tensor(rows, dtype=torch.int64),
        )
        return fetched, bad

    def _read(self, path: str, plan: Plan, row: int) -> NDArray[np.uint8]:
        """Decode an image, cropped at random by the draws of a row of the plan or to its centre."""
        image = read_image(self.tree, path, channels=self.channels)
        if plan.crop_draws is None:
            return np.asarray(fit_square(image, self.size, crop_share=CENTRE_SHARE))
        draws = torch.from_numpy(plan.crop_draws[row : row + 1])
        boxes = crop_boxes(draws, image.height, image.width, scale=plan.crop_scale, ratio=plan.crop_ratio)
        top, left, height, width = boxes[0].tolist()
        return np.asarray(_crop_and_resize(image, (left, top, left + width, top + height), self.size))

    def digest(self) -> str:
        """A checksum of every file's name, size and CRC, and of the crop that evaluation takes.

        A zip lists the CRCs. A directory has to be read for them, once: the result is kept until the size, times or
        inode of a file change.
        """
        return f"{self._files_digest()} centre {CENTRE_SHARE}"

    def _files_digest(self) -> str:
        stamped = _sha256(f"{file.path}\0{file.stamp}" for file in self.files)
        if self.tree.zipped:
            return stamped.hexdigest()
        stamped.update(str(self.tree.path.absolute()).encode(errors="replace"))
        kept = cache_directory() / "contents" / stamped.hexdigest()
        with suppress(OSError):
            return kept.read_text(encoding="utf-8")
        found = _sha256(f"{file.path}\0{self._size_and_crc(file.path)}" for file in self.files).hexdigest()
        with suppress(OSError):  # a cache that cannot be written costs time, not correctness
            kept.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(kept) as temporary:
                temporary.write_text(found, encoding="utf-8")
        return found

    def _size_and_crc(self, path: str) -> str:
        try:
            content = self.tree.read(path)
        except OSError:
            return "unreadable"
        return f"{len(content)} {zlib.crc32(content)}"


def _sha256(lines: Iterable[str]) -> "hashlib._Hash":
    return hashlib.sha256("\n".join(lines).encode(errors="replace"))
