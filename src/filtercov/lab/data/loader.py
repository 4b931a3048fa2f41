"""`BatchLoader`: batches that are a pure function of (seed, epoch, batch), for one process or a rank of many.

`TorchBatches` makes such batches of a PyTorch dataset.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filtercov.errors import DataError
from filtercov.lab.data.augment import Augment, Draws
from filtercov.lab.data.dataset import Fetched, ImageSource, Plan

_ORDER, _BATCH, _TORCH_ORDER = 0, 1, 2  # what a generator is for


@dataclass(frozen=True)
class _Share:
    """A rank's part of a batch: what to fetch, its draws, and where its own images and their partners are in it."""

    plan: Plan
    draws: Draws
    own: Tensor
    partners: Tensor


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
        if self.batch_size < self.world_size or not 0 <= self.rank < self.world_size:
            raise DataError(
                f"needed an image per rank, got batch size {self.batch_size}, rank {self.rank} of {self.world_size}"
            )
        if len(self) == 0:
            raise DataError(
                f"{len(self.arrays)} images do not fill a batch of {self.batch_size}; choose a smaller batch size"
            )

    def __len__(self) -> int:
        """Batches of an epoch, the same for every rank."""
        return len(self.arrays) // self.batch_size if self.drop_last else -(-len(self.arrays) // self.batch_size)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images, targets) from `start_batch` on: float32 (n, C, H, W) channels_last, and int64 (n,) labels.

        Where the augmentation mixes images, targets are float32 (n, classes). Starting late yields the identical rest.
        """
        shares: deque[_Share] = deque()  # sources fetch in order, and may ask for plans ahead

        def plans() -> Iterator[Plan]:
            order = self._order(epoch)
            for batch in range(start_batch, len(self)):
                indices = order[batch * self.batch_size : (batch + 1) * self.batch_size]
                shares.append(self._share(indices, epoch, batch))
                yield shares[-1].plan

        for fetched in self.arrays.fetch(plans()):
            yield self._finish(fetched, shares.popleft())

    def _order(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return torch.arange(len(self.arrays))
        return torch.randperm(len(self.arrays), generator=seeded_generator(_ORDER, self.seed, epoch))

    def _share(self, indices: Tensor, epoch: int, batch: int) -> _Share:
        """What this rank needs of the global batch `indices`: its own images and their mixing partners."""
        count = len(indices)
        draws = self.augment.draw(count, seeded_generator(_BATCH, self.seed, epoch, batch))
        own = torch.arange(self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size)
        # Partners come from the other end of the batch, whose order is random already.
        needed = torch.from_numpy(np.union1d(own, count - 1 - own)) if self.augment.mixes else own
        draws = draws.take(needed)
        scale = self.augment.random_resized_crop
        cut = self.arrays.crops_while_reading and scale is not None
        plan = Plan(
            indices[needed].numpy(),
            crop_draws=draws.crop.numpy() if cut else None,
            crop_scale=scale or (1.0, 1.0),
            crop_ratio=self.augment.crop_ratio,
            replace_unreadable=self.shuffle,
        )
        return _Share(plan, draws, torch.searchsorted(needed, own), torch.searchsorted(needed, count - 1 - own))

    def _finish(self, fetched: Fetched, share: _Share) -> tuple[Tensor, Tensor]:
        draws, own, partners, augment = share.draws, share.own, share.partners, self.augment
        if self.arrays.crops_while_reading:
            augment = replace(augment, random_resized_crop=None)
        if fetched.rows is not None:  # unreadable images were left out
            if share.plan.replace_unreadable:
                raise DataError("an image and the next ones cannot be read, see the log for names; repair them")
            draws = draws.take(fetched.rows)
            own = partners = torch.arange(len(fetched.rows))
        return augment(
            fetched.images.to(self.device, non_blocking=True),
            fetched.targets.to(self.device, non_blocking=True),
            draws,
            num_classes=len(self.arrays.classes),
            mean=self.mean,
            std=self.std,
            own=own,
            partners=partners,
        )


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
            order = torch.randperm(len(self.data), generator=seeded_generator(self.seed, _TORCH_ORDER, epoch))
        for batch in range(start_batch, len(self)):
            chosen = order[batch * self.batch_size : (batch + 1) * self.batch_size].tolist()
            images, classes = zip(*(self.data[index] for index in chosen), strict=True)
            yield torch.stack([torch.as_tensor(image) for image in images]), torch.tensor([int(c) for c in classes])

    def digest(self) -> str:
        """A checksum of the length and of up to 256 items, evenly spaced."""
        found = hashlib.sha256(str(len(self.data)).encode())
        for index in range(0, len(self.data), max(1, len(self.data) // 256)):
            image, label = self.data[index]
            found.update(np.ascontiguousarray(torch.as_tensor(image).numpy()).tobytes() + str(int(label)).encode())
        return found.hexdigest()


def seeded_generator(*key: int) -> torch.Generator:
    """A generator for a tuple of numbers; different tuples are independent."""
    (state,) = np.random.SeedSequence(key).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))
