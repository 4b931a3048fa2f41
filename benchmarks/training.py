"""Images per second of a ConvMixer, by default 256/8, 9×9 filters, 2×2 patches, batch 64: how much training costs.

`fit` is what `filtercov train` does: loading, augmentation (the CIFAR recipe's), forward, backward, AdamW, metrics, and
a look at the loss after every step. `bare` is the same network's forward, backward and AdamW on a batch that is already
there. `plain` is the bare step of the same network as PyTorch users write it: nn.Conv2d, GELU, BatchNorm2d, NCHW.
`products` is the roof: forward and backward of its 1×1 convolutions, patches and classifier alone. All take turns in
one process; the table gives the best round of each, and ratios of those. On a machine that others use, `--cpu-time
--threads 1` counts seconds of the processor instead of the clock's.

Run: python benchmarks/training.py [--model NAME] [--batch-size 64] [--rounds 3] [--steps 6] [--threads 2] [--cpu-time]
Results: docs/training.md, docs/depthwise.md
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
from filtercov.lab.training import Progress, TrainConfig, fit
from filtercov.lab.training.progress import Snapshot
from filtercov.nn import DepthwiseConv2d, accelerate_, keep_freed_memory, native_status, restore_


class Stopwatch(Progress):
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


def products_of(model: nn.Module, images: Tensor) -> Callable[[], None]:
    """Return forward and backward of the model's products of matrices, on what reaches them with these images."""
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear) and not isinstance(m, DepthwiseConv2d)]
    inputs: list[Tensor] = []
    hooks = [m.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach())) for m in layers]
    model(images)
    for hook in hooks:
        hook.remove()
    first, *others = inputs
    reached = [first, *(x.requires_grad_() for x in others)]
    grads = [torch.randn_like(layer(x)) for layer, x in zip(layers, reached, strict=True)]

    def run() -> None:
        for layer, x, grad in zip(layers, reached, grads, strict=True):
            torch.autograd.grad(layer(x), [*([x] if x.requires_grad else []), *layer.parameters()], grad)

    return run


def stepper(model: nn.Module, images: Tensor, targets: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)

    def step() -> None:
        loss = F.cross_entropy(model(images), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def rate_of(step: Callable[[], None], batch: int, steps: int, clock: Callable[[], float]) -> float:
    step()
    start = clock()
    for _ in range(steps):
        step()
    return steps * batch / (clock() - start)


def rate_of_fit(
    model: nn.Module, loader: BatchLoader, test: BatchLoader, steps: int, clock: Callable[[], float]
) -> float:
    watch = Stopwatch(clock)
    config = TrainConfig(epochs=1, batch_size=loader.batch_size)
    with tempfile.TemporaryDirectory() as folder:
        fit(model, FirstBatches(loader, steps + 1), test, config, folder, progress=watch, log_interval=1)
    return steps * loader.batch_size / (watch.times[-1] - watch.times[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="convmixer_256_8_k9_p2")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    keep_freed_memory()  # as `filtercov train` does
    batch, steps = options.batch_size, options.steps

    rng = np.random.default_rng(0)
    arrays = ImageArrays(rng.integers(0, 256, (2048, 32, 32, 3), np.uint8), rng.integers(0, 10, 2048), ("class",) * 10)
    common = {"batch_size": batch, "seed": 0, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    loader = BatchLoader(arrays, augment=Augment.preset("cifar"), shuffle=True, drop_last=True, **common)
    test = BatchLoader(arrays.subset(np.arange(batch)), **common)
    images, targets = next(loader.epoch(0))

    ours, plain = (models.create(options.model, num_classes=10) for _ in range(2))
    accelerate_(ours)
    restore_(plain)
    bare, products = stepper(ours, images, targets), products_of(ours, images)
    as_written = stepper(plain, images.contiguous(), targets)
    contestants = {
        "fit": lambda: rate_of_fit(ours, loader, test, steps, clock),
        "bare": lambda: rate_of(bare, batch, steps, clock),
        "plain": lambda: rate_of(as_written, batch, steps, clock),
        "products": lambda: rate_of(products, batch, steps, clock),
    }
    best = dict.fromkeys(contestants, 0.0)
    for _ in range(options.rounds):
        for name, measure in contestants.items():
            best[name] = max(best[name], measure())

    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, torch {torch.__version__}")
    print(f"{options.model}, batch {batch}; {native_status()}; best of {options.rounds} rounds of {steps} steps")
    print(f"images per second of {'the processor' if options.cpu_time else 'the clock'}\n")
    print("| what | images/s | wanted |\n|---|---|---|")
    for name, rate in best.items():
        print(f"| {name} | {rate:.1f} | |")
    print(f"| fit / bare | {best['fit'] / best['bare']:.3f} | at least 0.95 |")
    print(f"| fit / plain | {best['fit'] / best['plain']:.2f} | at least 3 |")
    print(f"| bare / products | {best['bare'] / best['products']:.2f} | at least 0.65 |")


if __name__ == "__main__":
    main()
