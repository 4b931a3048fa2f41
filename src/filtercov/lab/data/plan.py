"""What a loader asks a source of images for, and what it gets."""

from dataclasses import dataclass

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
