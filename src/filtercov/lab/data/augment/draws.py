"""All the randomness of one batch, drawn at once and per image, before any image is touched.

The tables are drawn for the whole (global) batch on the CPU and do not depend on which operations are switched on, so
the same seed gives the same draws on any device, for any rank's share of the batch, and for any setting.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

BOX_TRIES = 10
_BOX = 2 * BOX_TRIES + 2  # (area, aspect) per try, then where


@dataclass(frozen=True)
class Draws:
    """Uniform numbers in [0, 1), one row per image; `*_weight` are Beta-distributed.

    >>> draws = Draws.sample(4, torch.Generator().manual_seed(0))
    >>> draws.take(torch.tensor([2])).flip == draws.flip[2]
    tensor([True])
    """

    crop: Tensor  # (B, 22)
    flip: Tensor  # (B,)
    operation: Tensor  # (B, operations): which RandAugment operation
    sign: Tensor  # (B, operations)
    jitter_order: Tensor  # (B, 4)
    jitter: Tensor  # (B, 4)
    erase: Tensor  # (B,)
    erase_box: Tensor  # (B, 22)
    mix: Tensor  # (B,): whether to mix
    mix_kind: Tensor  # (B,): cutmix or mixup
    mix_centre: Tensor  # (B, 2)
    mixup_weight: Tensor  # (B,)
    cutmix_weight: Tensor  # (B,)

    @classmethod
    def sample(
        cls,
        count: int,
        generator: torch.Generator,
        *,
        operations: int = 0,
        mixup_alpha: float = 1.0,
        cutmix_alpha: float = 1.0,
    ) -> "Draws":
        """Draw the tables of `count` images."""
        # torch has no Beta with a generator; NumPy's is seeded from ours.
        rng = np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator)))

        def uniform(*shape: int) -> Tensor:
            return torch.from_numpy(rng.random((count, *shape)))

        def beta(alpha: float) -> Tensor:
            return torch.from_numpy(rng.beta(alpha, alpha, count)) if alpha > 0 else torch.ones(count).double()

        return cls(
            crop=uniform(_BOX),
            flip=uniform(),
            jitter_order=uniform(4),
            jitter=uniform(4),
            erase=uniform(),
            erase_box=uniform(_BOX),
            mix=uniform(),
            mix_kind=uniform(),
            mix_centre=uniform(2),
            operation=uniform(operations),
            sign=uniform(operations),
            mixup_weight=beta(mixup_alpha),
            cutmix_weight=beta(cutmix_alpha),
        )

    def __len__(self) -> int:
        return len(self.flip)

    def take(self, rows: Tensor) -> "Draws":
        """Return the draws of some of the images."""
        return Draws(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})
