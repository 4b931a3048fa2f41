"""`folder:PATH`: a directory or zip of train/CLASS/image and test/CLASS/image, with or without val/CLASS/image.

Small images are decoded once into a file of the cache, which is mapped into memory. It appears under its final name
only when it is complete, and that name is a fingerprint of the source, so a changed source is decoded anew. Large
images are streamed: decoded by worker processes while the model trains.
"""

import hashlib
import io
import os
import re
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader

from filtercov.errors import DataError
from filtercov.files import atomic_write, cache_directory
from filtercov.lab.data.augment import Augment
from filtercov.lab.data.dataset import Dataset, ImageArrays, ImageSource, Share
from filtercov.lab.data.geometry import crop_boxes
from filtercov.printable import counted

SMALL = 64  # images up to this side are decoded once and kept; larger ones are streamed
LARGE_SIZE = 224  # what large images are scaled to by default
CENTRE_SHARE = 0.95  # of the shorter side, for large images that are not randomly cropped: the evaluation crop of A1
_NORMALISATION = {  # ImageNet's mean and standard deviation, by channels
    1: ((0.449,), (0.226,)),
    3: ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
_SAMPLED = 64  # training images, to find size and channels of all
_CACHE_VERSION = 6  # of its format and of how images are decoded: part of the fingerprint

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_IMAGES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
# What is above the split nearest to the top, the split, and the class (None for what is directly in the split).
_PLACE = re.compile(r"(|.*?/)(train|val|test)/(?:([^/]+)/)?.*", re.DOTALL)
_CLUTTER = re.compile(r"(^|/)(\.|__MACOSX(/|$)|@eaDir(/|$))")  # hidden, or left by macOS and Synology


def load_folder(path: Path, *, image_size: int | None = None, workers: int | None = None) -> Dataset:
    """Load an image folder; `image_size` scales its images (to at most 64: once, and kept)."""
    tree = Tree(path)
    height, width, channels = _typical_shape(tree)
    size = image_size or (min(height, width) if max(height, width) <= SMALL else LARGE_SIZE)
    sources: Mapping[str, ImageSource]
    if size <= SMALL:
        sources = arrays = _decoded(tree, size=size, channels=channels)
        mean, std = arrays["train"].mean_and_std()
    else:
        workers = min(8, os.cpu_count() or 1) if workers is None else workers
        sources = {
            split: StreamedImages(tree, files, tree.labels(files), tree.classes, size, channels, workers)
            for split, files in tree.splits.items()
        }
        mean, std = _NORMALISATION[channels]
    return Dataset(
        f"folder:{path.name}",
        sources["train"],
        sources["test"],
        in_channels=channels,
        image_size=size,
        mean=mean,
        std=std,
        validation=sources.get("val"),
    )


# --- Which files are images, of which split and class ---


class ImageFile(NamedTuple):
    """An image: its path within the tree, its class, and a stamp that changes when the file does."""

    path: str
    label: str
    stamp: str


class Tree:
    """The images of a directory or zip, by split (train, test, perhaps val), sorted by path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.zipped = path.is_file()
            stamps = dict(_files_of_zip(path) if self.zipped else _files_of_directory(path))
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise DataError(f"{path} cannot be read as a directory or zip ({error}); repair or name another") from error
        self.splits = find_images(stamps, path)
        self.classes = tuple(sorted({file.label for file in self.splits["train"]}))

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return _opened(self, os.getpid()).read(path) if self.zipped else (self.path / path).read_bytes()

    def labels(self, files: Iterable[ImageFile]) -> NDArray[np.int64]:
        """The number of each file's class, (N,)."""
        return np.searchsorted(self.classes, [file.label for file in files]).astype(np.int64)  # classes are sorted


@lru_cache(maxsize=4)
def _opened(tree: Tree, process: int) -> zipfile.ZipFile:  # noqa: ARG001
    """The tree's zip, opened by each process: forked workers would mix up their reads of one file position."""
    return zipfile.ZipFile(tree.path)


def _files_of_zip(path: Path) -> Iterator[tuple[str, str]]:
    """The path of each file and directory in a zip, and its stamp."""
    with zipfile.ZipFile(path) as archive:
        for name, info in archive.NameToInfo.items():
            if not _CLUTTER.search(name):
                yield name, f"{info.file_size} {info.CRC}"


def _files_of_directory(root: Path, above: str = "") -> Iterator[tuple[str, str]]:
    """The path from `root` of each file, with its stamp, and of each directory, which ends in `/`, with none.

    What cannot be listed or is a link to nothing is an error: skipping it could drop a class silently.
    """
    for entry in [*os.scandir(root / above)]:
        path = above + entry.name
        if _CLUTTER.search(entry.name):
            continue
        if entry.is_dir():
            yield f"{path}/", ""
            yield from _files_of_directory(root, f"{path}/")
        else:
            # A copy can keep size and time of what it replaces, but not the inode and its own time.
            file = entry.stat()
            yield path, f"{file.st_size} {file.st_mtime_ns} {file.st_ctime_ns} {file.st_ino}"


def find_images(stamps: Mapping[str, str], source: Path) -> dict[str, list[ImageFile]]:
    """The images among the paths of `source`, by split, sorted; the rule is SPLIT/CLASS/…/image, below any directories.

    The splits nearest to the top count. Where there is `val/` but no `test/`, as in ImageNet, `val/` is the test set. A
    file is an image by its extension; its content decides the format when it is read.

    >>> names = ["cat/0/a.jpg", "dog/b.jpg", "dog/notes.txt"]
    >>> splits = find_images({f"pets/{split}/{name}": "" for split in ("train", "val") for name in names}, Path("pets"))
    >>> [(split, file.label) for split, files in splits.items() for file in files]
    [('train', 'cat'), ('train', 'dog'), ('test', 'cat'), ('test', 'dog')]
    """
    found = [(path, *match.groups()) for path in sorted(stamps) if (match := _PLACE.fullmatch(path))]
    images = [place for place in found if place[0].lower().endswith(_IMAGES)]
    tops = {above for _, above, split, label in images if split == "train" and label}
    if not tops:
        raise DataError(f"{source} holds no train/CLASS/image files; arrange it as train/CLASS/*, test/CLASS/*")
    nearest, *others = sorted(tops, key=lambda above: (above.count("/"), above))
    if others and others[0].count("/") == nearest.count("/"):
        raise DataError(f"{source} holds two datasets, {nearest} and {others[0]}; name the directory of one of them")

    splits: dict[str, list[ImageFile]] = {}
    for path, above, split, label in images:
        if above == nearest:
            if not label:
                raise DataError(f"{source}: {path} is in no class; move it to {split}/CLASS/ or remove it")
            splits.setdefault(split, []).append(ImageFile(path, label, stamps[path]))
    if "test" not in splits and "val" in splits:
        splits["test"] = splits.pop("val")
    if "test" not in splits:
        raise DataError(f"{source} holds no test/CLASS or val/CLASS images; set some apart to measure accuracy with")
    trained = {file.label for file in splits["train"]}
    below = {label for _, above, split, label in found if above == nearest and split == "train" and label}
    if below > trained:
        raise DataError(f"{source}: the class train/{min(below - trained)} holds no images; fill it or remove it")
    if len(trained) < 2:
        raise DataError(f"{source} needs two classes or more, got train/{min(trained)} alone; put others beside it")
    if untrained := sorted({file.label for files in splits.values() for file in files} - trained):
        raise DataError(f"{source} tests classes it does not train: {', '.join(untrained[:5])}; remove them")
    return splits


# --- From a file to an upright picture of 8 bits per channel, cropped and scaled ---


def read_image(read: Callable[[str], bytes], path: str, *, channels: int | None = None) -> Image.Image:
    """The RGB (3 channels) or grey (1) image of a file, upright, 8 bits per channel; None: grey if stored so.

    `read` gives the file's content. Of an animation it is the first picture; transparency is dropped. The error for a
    file that is no image begins with its path.
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
        raise DataError(f"{path}: not an image of a known format ({', '.join(FORMATS)})") from None
    except Exception as error:  # a damaged file can raise nearly anything, from OSError to struct.error
        raise DataError(f"{path}: {type(error).__name__}: {error}") from error


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
    """The central square, `crop_share` of the shorter side, scaled to size × size."""
    side = max(1, round(min(image.size) * crop_share))
    return crop_and_resize(image, ((image.height - side) // 2, (image.width - side) // 2, side, side), size)


def crop_and_resize(image: Image.Image, box: tuple[int, int, int, int], size: int) -> Image.Image:
    """The box (top, left, height, width) of an image, scaled to size × size, antialiased bilinear."""
    top, left, height, width = box
    # Cropped first: with resize's own `box` the filter would see beyond it, as torchvision's does not.
    return image.crop((left, top, left + width, top + height)).resize((size, size), Image.Resampling.BILINEAR)


def _typical_shape(tree: Tree) -> tuple[int, int, int]:
    """The commonest height and width of some training images spread over the folder, and their channels.

    One image in colour is enough for three channels: grey ones lose nothing in them, colour would be lost in one.
    """
    files = tree.splits["train"]
    shapes: Counter[tuple[int, int]] = Counter()
    channels = 1
    for file in files[:: max(1, len(files) // _SAMPLED)]:
        with suppress(DataError):  # an error when it is decoded for use
            image = read_image(tree.read, file.path)
            shapes[image.height, image.width] += 1
            channels = max(channels, len(image.getbands()))
    if not shapes:
        raise DataError(f"{tree.path}: {files[0].path} and all others looked at cannot be read; repair or remove them")
    return *shapes.most_common(1)[0][0], channels


# --- What is kept in the cache ---


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """A file of the cache, made first where it is missing; processes that find it missing at once make it alike."""
    path = cache_directory() / name
    try:
        if not path.exists():  # else nothing is written: the cache may be read-only
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                make(temporary)
    except OSError as error:  # another user's, full, or read-only
        raise DataError(f"cannot make {path}: {error}; repair that or set FILTERCOV_CACHE to another place") from error
    return path


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()


def _stamped(files: Iterable[ImageFile]) -> Iterator[str]:
    return (f"{file.path}\0{file.stamp}" for file in files)


# --- Small images ---


def _decoded(tree: Tree, *, size: int, channels: int) -> dict[str, ImageArrays]:
    """The images of each split, size × size, decoded once and mapped into memory."""
    everything = [file for files in tree.splits.values() for file in files]

    def decode(path: Path) -> None:
        unreadable: list[str] = []
        # Written, not mapped: a full disk is then an error and not a signal that ends the process.
        with path.open("wb") as pixels:
            for file in everything:
                try:
                    image = read_image(tree.read, file.path, channels=channels)
                    pixels.write(fit_square(image, size).tobytes())
                except DataError as error:
                    unreadable.append(str(error))
        if unreadable:
            named = "; ".join(unreadable[:10]) + (f"; and {len(unreadable) - 10} more" if unreadable[10:] else "")
            count = counted(len(unreadable), "image")
            raise DataError(f"{count} of {tree.path} cannot be read ({named}); repair or remove them")

    fingerprint = _sha256([repr((_CACHE_VERSION, size, channels)), *_stamped(everything)])[:24]
    kept = _kept(f"folders/{tree.path.name[:40]}-{fingerprint}", decode)
    pixels = np.memmap(kept, np.uint8, mode="r", shape=(len(everything), size, size, channels))
    ends = np.cumsum([len(files) for files in tree.splits.values()])
    parts = zip(tree.splits.items(), np.split(pixels, ends[:-1]), strict=True)
    return {split: ImageArrays(images, tree.labels(files), tree.classes) for (split, files), images in parts}


# --- Large images ---


@dataclass(eq=False)
class StreamedImages:
    """Files of a tree, decoded when a batch needs them."""

    tree: Tree
    files: Sequence[ImageFile]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    size: int
    channels: int
    workers: int
    crops_while_reading = True

    def __len__(self) -> int:
        return len(self.files)

    def subset(self, indices: NDArray[np.int64]) -> "StreamedImages":
        """A stream of some of the files, in the order given."""
        return replace(self, files=[self.files[index] for index in indices], labels=self.labels[indices])

    def fetch(self, shares: Iterable[Share], augment: Augment) -> Iterator[Tensor]:
        """Yield the images of each share as uint8 (n, C, size, size); a worker decodes a whole batch."""
        batches = DataLoader(
            cast(Any, self),
            # What is "sampled" is a whole batch; NumPy arrays travel to workers, tensors would take a file handle each.
            sampler=((share.indices, share.draws.crop.numpy(), augment) for share in shares),
            batch_size=None,
            num_workers=self.workers,
            generator=torch.Generator(),  # else it draws from torch's own, which a resumed run must find unmoved
        )
        for images in batches:
            if isinstance(images, DataError):
                raise images
            yield images

    def __getitem__(self, share: tuple[NDArray[np.int64], NDArray[np.float64], Augment]) -> Tensor | DataError:
        """What a worker process does: the images of a share, or why there are none.

        An error that a worker raises reaches the caller as text, with a traceback; one that it returns, as it is.
        """
        indices, draws, augment = share
        try:
            images = [self._read(self.files[i].path, augment, row) for i, row in zip(indices, draws, strict=True)]
        except DataError as error:
            return DataError(f"{self.tree.path}: {error}; repair or remove it")
        pixels = np.array(images, dtype=np.uint8).reshape(-1, self.size, self.size, self.channels)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)

    def _read(self, path: str, augment: Augment, draws: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Decode an image, cropped at random by its draws or to its centre."""
        image = read_image(self.tree.read, path, channels=self.channels)
        if augment.random_resized_crop is None:
            return np.asarray(fit_square(image, self.size, crop_share=CENTRE_SHARE))
        scale, ratio = augment.random_resized_crop, augment.crop_ratio
        (box,) = crop_boxes(torch.tensor(draws[None]), image.height, image.width, scale=scale, ratio=ratio).tolist()
        return np.asarray(crop_and_resize(image, box, self.size))

    def digest(self) -> str:
        """A checksum of every file's name, size and CRC, and of the crop that evaluation takes."""
        listed = _sha256(_stamped(self.files))
        if not self.tree.zipped:  # a zip lists sizes and CRCs; a directory's files are read for them, once
            listed = _kept(f"contents/{listed}", self._write_digest).read_text(encoding="utf-8")
        return f"{listed} centre {CENTRE_SHARE}"

    def _write_digest(self, path: Path) -> None:
        contents = ((file.path, self.tree.read(file.path)) for file in self.files)
        found = _sha256(f"{name}\0{len(content)} {zlib.crc32(content)}" for name, content in contents)
        path.write_text(found, encoding="utf-8")
