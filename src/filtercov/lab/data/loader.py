"""`BatchLoader`: batches that are a pure function of (seed, epoch, batch), for one process or a rank of many.

`TorchBatches` makes such batches of a PyTorch dataset.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice, tee
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filtercov.errors import DataError
from filtercov.lab.data.augment import Augment, Draws
from filtercov.lab.data.dataset import ImageSource, Share

_ORDER, _BATCH, _TORCH_ORDER = 0, 1, 2  # what a generator is for


@dataclass(eq=False)
class BatchLoader:
    """Shuffled, augmented, normalised batches of a source of images.

    `batch_size` counts the whole batch; with `world_size` ranks, each gets its contiguous share of the same batch, with
    the draws and mixing partners it would have in one process. Shares of a last, smaller batch may differ by one image,
    and one may be empty; `drop_last` avoids that.

    >>> from filtercov.lab.data import load
    >>> data = load("embedded")
    >>> loader = BatchLoader(data.test, batch_size=64, seed=0, mean=data.mean, std=data.std)
    >>> images, targets = next(loader.epoch(0))
    >>> images.shape, targets.shape, len(loader)
    (torch.Size([64, 1, 28, 28]), torch.Size([64]), 32)
    """

    arrays: ImageSource
    _: KW_ONLY
    batch_size: int
    seed: int
    mean: Sequence[float]
    std: Sequence[float]
    augment: Augment = field(default_factory=Augment)
    shuffle: bool = False
    drop_last: bool = False
    rank: int = 0
    world_size: int = 1
    device: torch.device | str = "cpu"

    def __post_init__(self) -> None:
        if len(self) == 0:
            raise DataError(f"{len(self.arrays)} images do not fill a batch of {self.batch_size}; choose a smaller one")

    def __len__(self) -> int:
        """Batches of an epoch, the same for every rank."""
        return len(self.arrays) // self.batch_size if self.drop_last else -(-len(self.arrays) // self.batch_size)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images, targets) from `start_batch` on: float32 (n, C, H, W) channels_last, and int64 (n,) labels.

        Where the augmentation mixes images, targets are float32 (n, classes). Starting late yields the identical rest.
        """
        augment = self.augment
        if self.arrays.crops_while_reading:
            augment = replace(augment, random_resized_crop=None)
        ahead, shares = tee(self._shares(epoch, start_batch))  # sources fetch in order, and may work ahead
        for images, share in zip(self.arrays.fetch(ahead, self.augment), shares, strict=True):
            targets = torch.from_numpy(self.arrays.labels[share.indices])
            yield augment(
                images.to(self.device, non_blocking=True),
                targets.to(self.device, non_blocking=True),
                share.draws,
                num_classes=len(self.arrays.classes),
                mean=self.mean,
                std=self.std,
                own=share.own,
            )

    def _shares(self, epoch: int, start_batch: int) -> Iterator[Share]:
        """This rank's share of each batch: its own images and their mixing partners."""
        shuffled = seeded_generator(_ORDER, self.seed, epoch) if self.shuffle else None
        batches = _index_batches(len(self.arrays), self.batch_size, shuffled)
        for batch, indices in islice(enumerate(batches), start_batch, len(self)):
            count = len(indices)
            draws = Draws(self.augment, count, seeded_generator(_BATCH, self.seed, epoch, batch))
            own = torch.arange(self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size)
            # Partners come from the other end of the batch, whose order is random already.
            elsewhere = self.augment.mixes and self.world_size > 1
            needed = torch.cat([own, count - 1 - own]) if elsewhere else own
            yield Share(indices[needed].numpy(), draws.take(needed), len(own))


@dataclass(frozen=True, eq=False)
class TorchBatches:
    """Batches of a PyTorch dataset of (image, class), in an order that depends on seed and epoch alone."""

    data: Any
    batch_size: int = 1
    seed: int = 0
    shuffle: bool = False  # for training, which also leaves out a last, smaller batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.data), self.batch_size)
        return whole if self.shuffle else whole + bool(rest)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch from `start_batch` on."""
        shuffled = seeded_generator(self.seed, _TORCH_ORDER, epoch) if self.shuffle else None
        batches = _index_batches(len(self.data), self.batch_size, shuffled)
        for indices in islice(batches, start_batch, len(self)):
            images, classes = zip(*(self.data[index] for index in indices.tolist()), strict=True)
            yield torch.stack([torch.as_tensor(image) for image in images]), torch.tensor([int(c) for c in classes])

    def digest(self) -> str:
        """A checksum of the length and of up to 256 items, evenly spaced."""
        found = hashlib.sha256(str(len(self.data)).encode())
        for index in range(0, len(self.data), max(1, len(self.data) // 256)):
            image, label = self.data[index]
            found.update(np.ascontiguousarray(torch.as_tensor(image).numpy()).tobytes() + str(int(label)).encode())
        return found.hexdigest()


def _index_batches(count: int, size: int, shuffled: torch.Generator | None) -> Sequence[Tensor]:
    order = torch.arange(count) if shuffled is None else torch.randperm(count, generator=shuffled)
    return torch.split(order, size)


def seeded_generator(*key: int) -> torch.Generator:
    """A generator for a tuple of numbers; different tuples are independent."""
    (state,) = np.random.SeedSequence(key).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))
