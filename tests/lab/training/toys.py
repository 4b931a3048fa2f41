"""A network and batches small enough to train many times in a test."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from filtercov.lab.training import FitResult, TrainConfig, World, fit, read_metrics

CLASSES = 3
CONFIG = TrainConfig(epochs=3, batch_size=8)


class ToyBatches:
    """Images whose class shows in their mean; batch b of epoch e depends on nothing but (seed, e, b).

    `before(n)` is called before batch number n, counted over all epochs, is delivered.
    """

    def __init__(
        self,
        *,
        batches: int = 5,
        batch_size: int = 8,
        seed: int = 0,
        world: World | None = None,
        before: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.batches, self.batch_size, self.seed = batches, batch_size, seed
        self.world, self.before = world or World(), before

    def __len__(self) -> int:
        return self.batches

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in range(start_batch, self.batches):
            self.before(epoch * self.batches + batch)
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch * 1009 + batch)
            targets = torch.randint(CLASSES, (self.batch_size,), generator=generator)
            images = torch.randn(self.batch_size, 2, 6, 6, generator=generator) + targets.view(-1, 1, 1, 1)
            part = self.batch_size // self.world.size
            mine = slice(self.world.rank * part, (self.world.rank + 1) * part)
            yield images[mine], targets[mine]


def interrupt_at(number: int) -> Callable[[int], None]:
    """For `before`: send this process SIGTERM at batch `number`."""
    return lambda batch: os.kill(os.getpid(), signal.SIGTERM) if batch == number else None


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


def toy_fit(
    run_dir: Path,
    config: TrainConfig = CONFIG,
    *,
    model: nn.Module | None = None,
    before: Callable[[int], object] = lambda _: None,
    **options: object,
) -> FitResult:
    """Train a toy model in `run_dir`."""
    return fit(model or toy_model(), ToyBatches(before=before), ToyBatches(seed=1), config, run_dir, **options)


def untimed(run_dir: Path) -> list[dict[str, object]]:
    """The metrics without what depends on the clock."""
    timing = ("seconds", "images_per_second")
    return [{k: v for k, v in r.items() if k not in timing} for r in read_metrics(run_dir / "metrics.jsonl")]
