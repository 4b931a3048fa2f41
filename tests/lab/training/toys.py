"""A network and batches small enough to train many times in a test."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from filtercov.lab.training import TrainConfig, World, fit
from filtercov.lab.training.result import FitResult

CLASSES = 3


class ToyBatches:
    """Images whose class shows in their mean; batch b of epoch e depends on nothing but (seed, e, b)."""

    def __init__(self, *, batches: int = 5, batch_size: int = 8, seed: int = 0, world: World | None = None) -> None:
        self.batches, self.batch_size, self.seed, self.world = batches, batch_size, seed, world or World()

    def __len__(self) -> int:
        return self.batches

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in range(start_batch, self.batches):
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch * 1009 + batch)
            targets = torch.randint(CLASSES, (self.batch_size,), generator=generator)
            images = torch.randn(self.batch_size, 2, 6, 6, generator=generator) + targets.view(-1, 1, 1, 1)
            part = self.batch_size // self.world.size
            mine = slice(self.world.rank * part, (self.world.rank + 1) * part)
            yield images[mine], targets[mine]


def toy_model(*, seed: int = 0, normalisation: bool = True, dropout: float = 0.2) -> nn.Module:
    """A depthwise and a dense layer with BatchNorm and dropout, channels_last: everything resuming must restore."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(2, 4, 1),
            nn.Conv2d(4, 4, 3, padding=1, groups=4),
            nn.BatchNorm2d(4) if normalisation else nn.Identity(),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, CLASSES),
        )
    return model.to(memory_format=torch.channels_last)


def toy_fit(run_dir: Path, config: TrainConfig | None = None, **options: object) -> FitResult:
    """Train a fresh toy model in `run_dir`."""
    config = config or TrainConfig(epochs=3, batch_size=8)
    return fit(toy_model(), ToyBatches(), ToyBatches(seed=1), config, run_dir, **options)
