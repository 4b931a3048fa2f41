"""What every set of labelled images offers, in memory or streamed."""

from collections.abc import Iterable, Iterator
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from filtercov.lab.data.plan import Fetched, Plan


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
