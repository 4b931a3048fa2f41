"""The time in which filtercov reaches the accuracy that plain PyTorch ends with.

Plain is a ConvMixer-64/8 of PyTorch's own layers with its defaults: uniform filters that train, NCHW. Ours is the same
network with the same other weights, images, augmentation and order of images, but with filters of the closed form,
thawed or frozen, and `accelerate_` by its thresholds, which tunes nothing and so costs no time. Plain trains for one
epoch in batches of 32, which is the scale `small`. Ours trains for shares of that, each a whole schedule of its own. A
seed's answer is the time of its shortest schedule that ends at or above that seed's plain run, over the time of that
run. Times are of training steps with their data, on one thread.

Every run is a line of the log. The same command goes on where an interrupted one stopped, and prints a table of all.

Run: OMP_NUM_THREADS=1 python benchmarks/time_to_accuracy.py --data cifar10 --kernel 9 --seeds 10 --log times.jsonl
Results: docs/evidence.md, from time_to_accuracy.md and its log beside this file
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import filtercov
from filtercov.lab.bench import describe_machine
from filtercov.lab.data import Augment, BatchLoader, Dataset, load
from filtercov.lab.report.results_statistics import CONFIDENCE, t_quantile

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of plain's steps
OURS = ("thawed", "frozen")
LR, DECAY = 0.01, 0.01
Record = dict[str, Any]


class Residual(nn.Sequential):
    """A residual around some layers."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x + layers(x)."""
        return x + super().forward(x)


def convmixer(kernel: int, width: int = 64, depth: int = 8, patch: int = 2) -> nn.Sequential:
    def mixed(conv: nn.Conv2d) -> list[nn.Module]:
        return [conv, nn.GELU(), nn.BatchNorm2d(width)]

    blocks: list[nn.Module] = []
    for _ in range(depth):
        spatial = nn.Conv2d(width, width, kernel, groups=width, padding="same")
        blocks += [Residual(*mixed(spatial)), *mixed(nn.Conv2d(width, width, 1))]
    stem = mixed(nn.Conv2d(3, width, patch, stride=patch))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def triangle(done: float) -> float:
    """The learning rate when a share of all steps is done: up for two fifths, down to a twentieth, then to zero."""
    return LR * float(np.interp(done, (0.0, 0.4, 0.8, 1.0), (0.0, 1.0, 0.05, 0.0)))


def build(contestant: str, kernel: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = convmixer(kernel)
    if contestant == "plain":
        return model
    report = filtercov.init_(model, "cifar-p2", seed=seed)
    if contestant == "frozen":
        filtercov.freeze_(model, report)
    filtercov.nn.accelerate_(model)
    return model


def train(model: nn.Module, batches: BatchLoader, steps: int) -> tuple[float, float]:
    """Train for some steps of an epoch; return seconds by the clock and of the processor."""
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=LR, weight_decay=DECAY)
    model.train()
    clock, processor = time.perf_counter(), time.process_time()
    for step, (images, classes) in enumerate(islice(batches.epoch(0), steps)):
        optimizer.param_groups[0]["lr"] = triangle((step + 1) / steps)
        optimizer.zero_grad()
        cross_entropy(model(images.contiguous()), classes).backward()
        optimizer.step()
    return time.perf_counter() - clock, time.process_time() - processor


@torch.no_grad()
def accuracy(model: nn.Module, batches: BatchLoader) -> float:
    model.eval()
    correct = sum(int((model(images).argmax(1) == classes).sum()) for images, classes in batches.epoch(0))
    return 100 * correct / len(batches.arrays)


def measure(contestant: str, share: float, kernel: int, seed: int, data: Dataset) -> Record:
    shared: dict[str, Any] = {"seed": seed, "mean": data.mean, "std": data.std}
    augment = Augment.preset("light")
    batches = BatchLoader(data.train, batch_size=32, augment=augment, shuffle=True, drop_last=True, **shared)
    test = BatchLoader(data.test, batch_size=256, **shared)
    model = build(contestant, kernel, seed)
    clock, processor = train(model, batches, max(1, round(share * len(batches))))
    known = {"kernel": kernel, "seed": seed, "contestant": contestant, "share": share}
    return known | {"accuracy": accuracy(model, test), "clock": clock, "processor": processor}


def wanted(seeds: int) -> Iterator[tuple[int, str, float]]:
    for seed in range(seeds):
        yield seed, "plain", 1.0
        for contestant in OURS:
            for share in SHARES:
                yield seed, contestant, share


def interval(values: Sequence[float], shown: str) -> str:
    """Mean and Student's interval over seeds."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:{shown}} (one seed)"
    half = t_quantile(CONFIDENCE, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{mean:{shown}} [{mean - half:{shown}}, {mean + half:{shown}}]"


def times(runs: Sequence[Record], plain: Record) -> dict[str, float] | None:
    """The time of the shortest schedule as accurate as plain, over the time of plain; None if there is none."""
    enough = [run for run in runs if run["accuracy"] >= plain["accuracy"]]
    if not enough:
        return None
    first = min(enough, key=lambda run: run["share"])
    return {kind: first[kind] / plain[kind] for kind in ("clock", "processor")}


def row(name: str, seeds: Sequence[tuple[Record, list[Record]]]) -> str:
    """A line of the table: mean accuracy of each schedule, and the time to plain's accuracy."""
    cells = [name]
    for share in SHARES:
        reached = [run["accuracy"] for _, runs in seeds for run in runs if run["share"] == share]
        cells.append(f"{np.mean(reached):.2f}")
    taken = [found for plain, runs in seeds if (found := times(runs, plain))]
    for kind in ("clock", "processor"):
        never = len(seeds) - len(taken)
        cells.append(f"{never} of {len(seeds)} never" if never else interval([t[kind] for t in taken], ".3f"))
    return f"| {' | '.join([*cells, str(len(seeds))])} |"


def table(records: Sequence[Record]) -> str:
    """All complete seeds as Markdown."""
    shares = " | ".join(f"% after {share:g}" for share in SHARES)
    lines = [f"| ours | {shares} | of plain's time | of its processor time | n |", "|---" * (len(SHARES) + 4) + "|"]
    said = []
    for kernel in sorted({r["kernel"] for r in records}):
        found = [r for r in records if r["kernel"] == kernel]
        plain = {r["seed"]: r for r in found if r["contestant"] == "plain"}
        for contestant in OURS:
            runs = {s: [r for r in found if (r["seed"], r["contestant"]) == (s, contestant)] for s in plain}
            seeds = [(plain[s], ours) for s, ours in runs.items() if len(ours) == len(SHARES)]
            lines += [row(f"{contestant}, {kernel}x{kernel}", seeds)] if seeds else []
        accuracies, seconds = ([r[kind] for r in plain.values()] for kind in ("accuracy", "clock"))
        words = f"{interval(accuracies, '.2f')} % in {np.mean(seconds):.0f} s, n = {len(plain)}"
        said.append(f"Plain PyTorch with {kernel}x{kernel} filters ends at {words}.")
    return "\n".join([*said, "", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="cifar10, or folder:PATH of train/CLASS and test/CLASS")
    parser.add_argument("--data-limit", type=int, help="train on so many images, to try the script out")
    parser.add_argument("--kernel", type=int, default=9)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--log", type=Path, default=Path("time_to_accuracy.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = [json.loads(line) for line in options.log.read_text().splitlines()] if options.log.exists() else []
    done = {(r["kernel"], r["seed"], r["contestant"], r["share"]) for r in records}
    data = load(options.data, limit=options.data_limit)
    for seed, contestant, share in wanted(options.seeds):
        if (options.kernel, seed, contestant, share) not in done:
            records.append(measure(contestant, share, options.kernel, seed, data))
            with options.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(records[-1]) + "\n")
    print(f"{describe_machine()}; {data.name}\n\n{table(records)}")


if __name__ == "__main__":
    main()
