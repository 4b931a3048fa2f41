"""A dataset: sources of labelled images for training and testing, and a checksum of their content."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from filtercov.errors import DataError
from filtercov.lab.data.augment import Augment, Draws


class Share(NamedTuple):
    """A rank's part of a batch: which images, their draws, and how many are its own; partners to mix with follow."""

    indices: NDArray[np.int64]
    draws: Draws
    own: int


class ImageSource(Protocol):
    """Labelled images that can be fetched batch by batch."""

    labels: NDArray[np.int64]  # of each image, (N,)
    classes: tuple[str, ...]  # the names of the labels
    crops_while_reading: bool  # as `random_resized_crop` says; else `Augment` does it

    def __len__(self) -> int: ...

    def subset(self, indices: NDArray[np.int64]) -> Self:
        """Some of the images, in the order given."""

    def fetch(self, shares: Iterable[Share], augment: Augment) -> Iterator[Tensor]:
        """Yield the images of each share, in turn: uint8 (n, C, H, W)."""

    def digest(self) -> str:
        """A checksum of the images."""


@dataclass(eq=False)
class ImageArrays:
    """Images of one size in memory or in a memory map: uint8 (N, H, W, C), labels int64 (N,), names of the classes.

    >>> arrays = ImageArrays(np.zeros((2, 4, 4, 1), np.uint8), np.array([0, 1]), ("cat", "dog"))
    >>> len(arrays), arrays.subset(np.array([1])).labels.tolist()
    (2, [1])
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    crops_while_reading = False

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
            raise DataError(f"needed uint8 images (N, H, W, 1 or 3), got {images.dtype} {images.shape}; convert them")
        if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
            got = f"got {labels.dtype} {labels.shape}; give one for each image"
            raise DataError(f"needed int64 labels ({len(images)},), {got}")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
            got = f"got {labels.min()} to {labels.max()}; number the classes from 0 and name all"
            raise DataError(f"needed labels from 0 to {len(self.classes) - 1}, the classes that have names, {got}")

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: NDArray[np.int64]) -> "ImageArrays":
        """A copy of some of the images, in the order given."""
        return ImageArrays(self.images[indices], self.labels[indices], self.classes)

    def fetch(self, shares: Iterable[Share], augment: Augment) -> Iterator[Tensor]:  # noqa: ARG002
        """Yield the images of each share as uint8 (n, C, H, W)."""
        for share in shares:
            yield torch.from_numpy(self.images[share.indices]).permute(0, 3, 1, 2)

    def digest(self) -> str:
        """SHA-256 of the shape and the pixels."""
        digest = hashlib.sha256(repr(self.images.shape).encode())
        digest.update(np.ascontiguousarray(self.images).data)
        return digest.hexdigest()

    def mean_and_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Each channel's mean and standard deviation as fractions of 255, from at most 20,000 evenly spaced images."""
        values = self.images[:: max(1, len(self) // 10_000)]
        means, deviations = [], []
        for channel in np.moveaxis(values, 3, 0):
            counts, levels = np.bincount(channel.ravel(), minlength=256), np.arange(256)
            # Exact integers: these bits are part of a run's identity, and rounded sums differ between processors.
            number, total, squares = (int((counts * levels**power).sum()) for power in (0, 1, 2))
            means.append(total / (255 * number))
            deviations.append(math.sqrt(number * squares - total**2) / (255 * number) or 1.0)  # 1 for constant ones
        return tuple(means), tuple(deviations)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images with what a model and a loader need to know of them.

    `validation` images are for choosing settings: neither trained on nor part of a reported accuracy.
    """

    name: str
    train: ImageSource
    test: ImageSource
    in_channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    validation: ImageSource | None = None

    @property
    def num_classes(self) -> int:  # noqa: D102
        return len(self.train.classes)

    @cached_property
    def content_digest(self) -> str:
        """SHA-256 of all images, labels, classes and the normalisation, but not the name: the data's identity in a run.

        Other images under an old name are noticed by it.
        """
        digest = hashlib.sha256()
        for source in filter(None, (self.train, self.validation, self.test)):
            digest.update(repr(source.classes).encode())
            digest.update(source.labels.tobytes())
            digest.update(source.digest().encode())
        digest.update(repr((self.in_channels, self.image_size, self.mean, self.std)).encode())
        return digest.hexdigest()

    def reduced(self, *, limit: int | None, hold_out_validation: bool) -> "Dataset":
        """Keep `limit` training images, the classes in proportion, and if asked hold out validation images.

        Those are the last tenth of each class, but never its only image, in the order that the limit counts from: so a
        limit that does not reach them picks the same training images either way.
        """
        validation, labels = self.validation, self.train.labels
        order = stratified_order(labels)
        if hold_out_validation:
            place, size = _place_in_class(labels[order])
            held_out = place >= size - np.where(size > 1, -(-size // 10), 0)
            if not held_out.any():
                raise DataError(f"{self.name} has one image of each class, none to validate with; add more or val/")
            validation, order = self.train.subset(np.sort(order[held_out])), order[~held_out]
        train = self.train.subset(np.sort(order) if limit is None else order[:limit])
        return replace(self, train=train, validation=validation)


def stratified_order(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """An order of the images in which every prefix holds the classes in proportion, shuffled within each class."""
    shuffled = np.random.default_rng(0).permutation(len(labels))
    place, size = _place_in_class(labels[shuffled])
    # Fractions, not places, keep unequal classes in proportion.
    return shuffled[np.lexsort((labels[shuffled], (place + 0.5) / size))].astype(np.int64)


def _place_in_class(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each label, how many equal ones come before it and how many there are."""
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    place = np.empty(len(labels), np.int64)
    place[np.argsort(classes, kind="stable")] = np.concatenate([np.arange(count) for count in counts])
    return place, counts[classes]
