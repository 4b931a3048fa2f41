"""What every set of labelled images offers, in memory or streamed: what a loader asks it for, and what it gets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Plan:
    """One batch's wish: the images' indices (n,), and their crop draws (n, 22) if they are to be cut at random.

    A source that decodes large images cuts them while it reads; a source of small arrays leaves that to `Augment`.
    NumPy arrays, because plans travel to worker processes.
    """

    indices: NDArray[np.int64]
    crop_draws: NDArray[np.float64] | None = None
    crop_scale: tuple[float, float] = (1.0, 1.0)
    crop_ratio: tuple[float, float] = (1.0, 1.0)
    replace_unreadable: bool = False  # by a neighbour, so that training batches keep their size; else left out


@dataclass(frozen=True)
class Fetched:
    """The images of a plan: uint8 (n, C, H, W), their labels (n,), and which rows of the plan they are, all if None."""

    images: Tensor
    targets: Tensor
    rows: Tensor | None = None


class ImageSource(Protocol):
    """Labelled images that can be fetched batch by batch."""

    cuts_while_reading: bool

    @property
    def labels(self) -> NDArray[np.int64]:
        """The label of each image, (N,)."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels."""

    def __len__(self) -> int: ...

    def subset(self, indices: NDArray[np.int64]) -> Self:
        """Return a source of some of the images, in the order given."""

    def fetch(self, plans: Iterable[Plan]) -> Iterator[Fetched]:
        """Yield the images of each plan, in turn."""
