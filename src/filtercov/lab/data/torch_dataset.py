"""A PyTorch dataset as batches that can be produced again from any position."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filtercov.lab.data.loader import seeded_generator

SAMPLED = 256  # items that a checksum reads
_ORDER = 2  # the purpose of a random stream


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
        order = torch.arange(len(self.data))
        if self.shuffle:
            order = torch.randperm(len(self.data), generator=seeded_generator(self.seed, _ORDER, epoch))
        for batch in range(start_batch, len(self)):
            chosen = order[batch * self.batch_size : (batch + 1) * self.batch_size].tolist()
            images, classes = zip(*(self.data[index] for index in chosen), strict=True)
            yield torch.stack([torch.as_tensor(image) for image in images]), torch.tensor([int(c) for c in classes])

    def digest(self) -> str:
        """A checksum of the length and of up to 256 items, evenly spaced."""
        found = hashlib.sha256(str(len(self.data)).encode())
        for index in range(0, len(self.data), max(1, len(self.data) // SAMPLED)):
            image, label = self.data[index]
            found.update(np.ascontiguousarray(torch.as_tensor(image).numpy()).tobytes() + str(int(label)).encode())
        return found.hexdigest()
