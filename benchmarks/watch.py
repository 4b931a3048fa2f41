"""What watching costs: a moment of ConvMixer-256/8 (9×9 filters, 2×2 patches) beside its training step of 64 images.

A step is forward, backward and AdamW of the accelerated network on a batch that is already there, the fastest that we
have. A moment measures all eight layers and waits until they are on the disk, in a temporary directory. Calls between
moments count and return. The two take turns in one process; medians of each. The share is what `every=100` adds to a
step.

Run: python benchmarks/watch.py [--rounds 7] [--threads 1] [--cpu-time]
Results: docs/watch.md
"""

import argparse
import platform
import statistics
import tempfile
import time

import torch
from torch.nn import functional as F  # noqa: N812 - the name PyTorch's users know

import filtercov
from filtercov.lab import models
from filtercov.nn import accelerate_, native_status

MODEL, BATCH, EVERY = "convmixer_256_8_k9_p2", 64, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    model = models.create(MODEL, num_classes=10)
    accelerate_(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    images = torch.randn(BATCH, 3, 32, 32).to(memory_format=torch.channels_last)
    targets = torch.randint(10, (BATCH,))
    taken: dict[str, list[float]] = {"step": [], "moment": [], "call between": []}

    def timed(what: str, action) -> None:
        start = clock()
        action()
        taken[what].append(clock() - start)

    def step() -> None:
        loss = F.cross_entropy(model(images), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    step()
    with tempfile.TemporaryDirectory() as folder:
        watch = filtercov.watch(model, f"{folder}/plain", every=EVERY)
        for number in range(1, options.rounds + 1):
            timed("step", step)
            timed("moment", lambda number=number: watch(number * EVERY))
            timed("call between", lambda number=number: watch(number * EVERY + 1))
    middle = {what: statistics.median(times) for what, times in taken.items()}

    print(f"{platform.processor() or platform.machine()}, {options.threads} threads, torch {torch.__version__}")
    unit = "the processor" if options.cpu_time else "the clock"
    print(f"{native_status()}; median of {options.rounds}; time of {unit}\n")
    print(f"| what | ms | of a step, every {EVERY} | wanted |\n|---|---|---|---|")
    for what, seconds in middle.items():
        times = EVERY - 1 if what == "call between" else 1
        share = "" if what == "step" else f"{times * seconds / EVERY / middle['step']:.4%}"
        print(f"| {what} | {1000 * seconds:.3f} | {share} | {'at most 1 %' if what == 'moment' else ''} |")


if __name__ == "__main__":
    main()
