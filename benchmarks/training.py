"""Images per second of ConvMixer-256/8, 9×9 filters, 2×2 patches, batch 64, 32×32 images: how much training costs.

`fit` is what `filtercov train` does: loading, augmentation (the CIFAR recipe's), forward, backward, AdamW, metrics, and
a look at the loss after every step. `bare` is the same network's forward, backward and AdamW on a batch that is already
there. `plain` is the bare step of the same network as PyTorch users write it: nn.Conv2d, GELU, BatchNorm2d, NCHW.
The three take turns in one process; the table gives the best round of each, and ratios of those. On a machine that
others use, `--cpu-time --threads 1` counts seconds of the processor instead of the clock's.

Run: python benchmarks/training.py [--rounds 3] [--steps 6] [--threads 2] [--cpu-time]
Results: docs/training.md
"""

import argparse
import platform
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name PyTorch's users know

from filtercov.lab import models
from filtercov.lab.data import Augment, BatchLoader, ImageArrays
from filtercov.lab.training import Silent, TrainConfig, fit
from filtercov.lab.training.progress import Snapshot
from filtercov.nn import accelerate_, native_status

MODEL, BATCH = "convmixer_256_8_k9_p2", 64


class Stopwatch(Silent):
    """Remembers when each step ended."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.times: list[float] = []

    def update(self, snapshot: Snapshot) -> None:
        """Note the time of a step, not of an epoch's end."""
        if snapshot.test_accuracy is None:
            self.times.append(self.clock())


class FirstBatches:
    """The first few batches of each epoch of a loader."""

    def __init__(self, loader: BatchLoader, count: int) -> None:
        self.loader, self.count = loader, count

    def __len__(self) -> int:
        return self.count

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield them."""
        batches = self.loader.epoch(epoch, start_batch)
        return (next(batches) for _ in range(start_batch, self.count))


def plain_network() -> nn.Module:
    """Return the network as nn modules in PyTorch's default layout."""

    class Residual(nn.Module):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x) + x

    def block() -> nn.Module:
        spatial = Residual(nn.Conv2d(256, 256, 9, groups=256, padding="same"), nn.GELU(), nn.BatchNorm2d(256))
        return nn.Sequential(spatial, nn.Conv2d(256, 256, 1), nn.GELU(), nn.BatchNorm2d(256))

    stem = (nn.Conv2d(3, 256, 2, stride=2), nn.GELU(), nn.BatchNorm2d(256))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
    return nn.Sequential(*stem, *(block() for _ in range(8)), *head)


def stepper(model: nn.Module, images: Tensor, targets: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)

    def step() -> None:
        loss = F.cross_entropy(model(images), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def rate_of(step: Callable[[], None], steps: int, clock: Callable[[], float]) -> float:
    step()
    start = clock()
    for _ in range(steps):
        step()
    return steps * BATCH / (clock() - start)


def rate_of_fit(
    model: nn.Module, loader: BatchLoader, test: BatchLoader, steps: int, clock: Callable[[], float]
) -> float:
    watch = Stopwatch(clock)
    config = TrainConfig(epochs=1, batch_size=BATCH)
    with tempfile.TemporaryDirectory() as folder:
        fit(model, FirstBatches(loader, steps + 1), test, config, folder, progress=watch, log_interval=1)
    return steps * BATCH / (watch.times[-1] - watch.times[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    rng = np.random.default_rng(0)
    arrays = ImageArrays(rng.integers(0, 256, (2048, 32, 32, 3), np.uint8), rng.integers(0, 10, 2048), ("class",) * 10)
    common = {"batch_size": BATCH, "seed": 0, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    loader = BatchLoader(arrays, augment=Augment.preset("cifar"), shuffle=True, drop_last=True, **common)
    test = BatchLoader(arrays.subset(np.arange(BATCH)), **common)
    images, targets = next(loader.epoch(0))

    ours = models.create(MODEL, num_classes=10)
    accelerate_(ours)
    bare = stepper(ours, images, targets)
    plain = stepper(plain_network(), images.contiguous(), targets)
    contestants = {
        "fit": lambda: rate_of_fit(ours, loader, test, options.steps, clock),
        "bare": lambda: rate_of(bare, options.steps, clock),
        "plain": lambda: rate_of(plain, options.steps, clock),
    }
    best = dict.fromkeys(contestants, 0.0)
    for _ in range(options.rounds):
        for name, measure in contestants.items():
            best[name] = max(best[name], measure())

    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, torch {torch.__version__}")
    print(f"{native_status()}; best of {options.rounds} rounds of {options.steps} steps")
    print(f"images per second of {'the processor' if options.cpu_time else 'the clock'}\n")
    print("| what | images/s | wanted |\n|---|---|---|")
    for name, rate in best.items():
        print(f"| {name} | {rate:.1f} | |")
    print(f"| fit / bare | {best['fit'] / best['bare']:.3f} | at least 0.95 |")
    print(f"| fit / plain | {best['fit'] / best['plain']:.2f} | at least 3 |")


if __name__ == "__main__":
    main()
