"""Images held as bytes in one array, and the description of a dataset."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from filtercov.errors import DataError
from filtercov.lab.data.source import Fetched, ImageSource, Plan


@dataclass(frozen=True, eq=False)
class ImageArrays:
    """Images of one size in memory or in a memory map: uint8 (N, H, W, C), labels int64 (N,), names of the classes.

    >>> arrays = ImageArrays(np.zeros((2, 4, 4, 1), np.uint8), np.array([0, 1]), ("cat", "dog"))
    >>> len(arrays), arrays.subset(np.array([1])).labels.tolist()
    (2, [1])
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    cuts_while_reading = False

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[3] not in (1, 3):
            raise DataError(
                f"images must be uint8 (N, H, W, 1 or 3), got {self.images.dtype} {self.images.shape}; convert them"
            )
        if self.labels.dtype != np.int64 or self.labels.shape != self.images.shape[:1]:
            raise DataError(
                f"{len(self.images)} images need as many int64 labels, got {self.labels.dtype} {self.labels.shape}"
            )
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise DataError(
                f"labels must lie in 0..{len(self.classes) - 1} for {len(self.classes)} classes, "
                f"got {self.labels.min()}..{self.labels.max()}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: NDArray[np.int64]) -> "ImageArrays":
        """Return a copy of some of the images, in the order given."""
        return ImageArrays(self.images[indices], self.labels[indices], self.classes)

    def fetch(self, plans: Iterable[Plan]) -> Iterator[Fetched]:
        """Yield the images each plan asks for, as uint8 (n, C, H, W) and labels (n,)."""
        for plan in plans:
            images = torch.from_numpy(self.images[plan.indices]).permute(0, 3, 1, 2)
            yield Fetched(images, torch.from_numpy(self.labels[plan.indices]))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test set with what a model and a loader need to know of them.

    `validation` are images to choose settings with, which are neither trained on nor part of a reported accuracy.
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
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.train.classes)


def stratified_order(labels: NDArray[np.int64], *, seed: int = 0) -> NDArray[np.int64]:
    """Return an order of the images whose every beginning holds the classes about equally, shuffled within each.

    >>> labels = np.array([0, 0, 0, 1, 1, 1])
    >>> sorted(labels[stratified_order(labels)[:4]].tolist())
    [0, 0, 1, 1]
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    _, starts, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    place = np.arange(len(labels)) - np.repeat(starts, counts)  # 0, 1, 2, … within each class
    # Fractions, not places, keep unequal classes in proportion.
    fraction = (place + 0.5) / np.repeat(counts, counts)
    return by_class[np.argsort(fraction, kind="stable")].astype(np.int64)


def hold_out(order: NDArray[np.int64], labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return an order without the last tenth of each class, and that tenth; a class of one image keeps it.

    >>> [part.tolist() for part in hold_out(np.array([3, 1, 2, 0, 4]), np.array([0, 1, 0, 1, 2]))]
    [[3, 2, 4], [1, 0]]
    """
    _, classes, counts = np.unique(labels[order], return_inverse=True, return_counts=True)
    by_class = np.argsort(classes, kind="stable")
    place = np.empty_like(order)
    place[by_class] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    tenth = np.where(counts > 1, -(-counts // 10), 0)
    aside = place >= (counts - tenth)[classes]
    return order[~aside], order[aside]


def mean_and_std(arrays: ImageArrays) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the channels' mean and standard deviation, in units of 255, from at most 10,000 evenly spaced images.

    >>> mean_and_std(ImageArrays(np.array([[[[0], [255]]]], np.uint8), np.array([0]), ("a",)))
    ((0.5,), (0.5,))
    """
    step = max(1, len(arrays) // 10_000)
    values = arrays.images[::step]
    levels = np.arange(256) / 255
    means, stds = [], []
    for channel in range(values.shape[3]):
        weights = np.bincount(values[..., channel].ravel(), minlength=256) / values[..., channel].size
        mean = float(weights @ levels)
        means.append(mean)
        # A constant channel has nothing to scale.
        stds.append(float(np.sqrt(weights @ (levels - mean) ** 2)) or 1.0)
    return tuple(means), tuple(stds)
