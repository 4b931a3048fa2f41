"""How long filtercov takes to reach the accuracy that plain PyTorch with uniform filters has after its whole schedule.

Plain is the network as PyTorch's own layers, thawed, its filters uniform, in whichever of the two memory layouts a few
steps are faster. Ours is the same network accelerated, its filters from the closed form, once frozen and once thawed.
Everything else is the same: data, augmentation, order of images, recipe, seeds, the other weights. Each of our points
is a schedule of its own: one epoch, then two, and so on, until a schedule's mean accuracy over the seeds is at least
plain's. Seconds are the clock's, of training with a test after every epoch, means over the seeds; all runs take place
in one process, one after another.

The first schedule that reaches a target may owe that to chance, once in a while; with one seed that is not told from
the rest. Interrupted with --runs, the same command continues.

Run: python benchmarks/time_to_accuracy.py [--model convmixer_256_8_k{k}_p2] [--kernels 9 15] [--epochs 20] [--seeds 1]
         [--data cifar10] [--data-limit N] [--batch-size 512] [--augment cifar] [--threads 1] [--runs DIR] [--json FILE]
Results: docs/training.md
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor, nn

from filtercov.lab.bench import describe_machine
from filtercov.lab.data import BatchLoader, Dataset, load
from filtercov.lab.experiments.execute import build_batches, build_model
from filtercov.lab.experiments.runspec import RunSpec
from filtercov.lab.training import FitResult, fit
from filtercov.nn import accelerate_, restore_
from filtercov.nn.timing import Step, race
from filtercov.printable import counted

LAYOUTS = {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}
TURNS, IMAGES = 3, 64  # of steps on so many images, to choose plain's layout


class InLayout:
    """Batches in a memory layout of their own."""

    def __init__(self, batches: BatchLoader, layout: torch.memory_format) -> None:
        self.batches, self.layout = batches, layout

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield them."""
        for images, targets in self.batches.epoch(epoch, start_batch):
            yield images.contiguous(memory_format=self.layout), targets


def specification(options: argparse.Namespace, kernel: int, epochs: int, seed: int, **fields: object) -> RunSpec:
    train = {"epochs": epochs, "batch_size": options.batch_size, "seed": seed}
    shared = {"data": options.data, "data_limit": options.data_limit, "augment": options.augment}
    return RunSpec.recipe("cifar", model=options.model.format(k=kernel), train=train, **shared, **fields)


def plain_model(spec: RunSpec, data: Dataset, layout: torch.memory_format) -> nn.Module:
    model = build_model(spec, data)
    restore_(model)
    return model.to(memory_format=layout)


def faster_layout(spec: RunSpec, data: Dataset, root: Path) -> str:
    """Return the layout in which plain PyTorch's steps are faster here, or that of the run that is to be continued."""
    for name in LAYOUTS:
        if directory(spec, root, name).exists():
            return name
    images = next(build_batches(data, spec.train, spec.augment)[0].epoch(0))[0][:IMAGES]
    steps = {
        name: Step(plain_model(spec, data, layout), images.contiguous(memory_format=layout))
        for name, layout in LAYOUTS.items()
    }
    times = race(steps, seconds=float("inf"), turns=TURNS)
    return min(times, key=lambda name: min(times[name]))


def directory(spec: RunSpec, root: Path, plain: str | None) -> Path:
    return root / f"{spec.key}-{plain or 'ours'}"


def trained(spec: RunSpec, data: Dataset, root: Path, *, plain: str | None = None) -> FitResult:
    """Return the result of a run, plain in that layout or ours; a finished one is not done again."""
    layout = LAYOUTS[plain or "channels_last"]
    train, test = (InLayout(batches, layout) for batches in build_batches(data, spec.train, spec.augment))
    if plain:
        model = plain_model(spec, data, layout)
    else:
        model = build_model(spec, data)
        accelerate_(model)
    identity = {"run": spec.to_dict(), "plain": plain}
    return fit(model, train, test, spec.train, directory(spec, root, plain), identity=identity)


def measure(options: argparse.Namespace, data: Dataset, kernel: int, root: Path) -> dict[str, object]:
    """Return plain's accuracy and time at a kernel size, and the schedules that ours tried."""
    seeds = range(options.seeds)
    layout = faster_layout(specification(options, kernel, options.epochs, 0), data, root)
    plain = [trained(specification(options, kernel, options.epochs, s), data, root, plain=layout) for s in seeds]
    target, whole = fmean(r.test_accuracy for r in plain), fmean(r.seconds for r in plain)
    print(f"{kernel}x{kernel}: plain ({layout}), {options.epochs} epochs: {target:.2f} % in {whole:.0f} s", flush=True)
    found: dict[str, object] = {"kernel": kernel, "layout": layout, "accuracy": target, "seconds": whole}
    for filters in ("frozen", "thawed"):
        tried = []
        for epochs in range(1, options.epochs + 1):
            fields = {"init": "closed-form", "schedule": "cifar-p2", "freeze_filters": filters == "frozen"}
            runs = [trained(specification(options, kernel, epochs, s, **fields), data, root) for s in seeds]
            accuracy, seconds = fmean(r.test_accuracy for r in runs), fmean(r.seconds for r in runs)
            tried.append({"epochs": epochs, "accuracy": accuracy, "seconds": seconds})
            print(f"  ours, {filters}, {counted(epochs, 'epoch')}: {accuracy:.2f} % in {seconds:.0f} s", flush=True)
            if accuracy >= target:
                break
        found[filters] = {"reached": tried[-1]["accuracy"] >= target, "tried": tried}
    return found


def table(found: list[dict[str, object]], epochs: int) -> str:
    """Return the outcome as Markdown; a share below 1 means that ours is sooner there."""
    rows = ["| filters | plain, all epochs | ours | epochs | ours, s | plain, s | share of plain's time | wanted |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    for one in found:
        for filters in ("frozen", "thawed"):
            last = one[filters]["tried"][-1]
            k, plain = one["kernel"], f"{one['accuracy']:.2f} % in {epochs} epochs"
            share = f"{last['seconds'] / one['seconds']:.2f}" if one[filters]["reached"] else "not reached"
            ours = f"{last['accuracy']:.2f} % | {last['epochs']} | {last['seconds']:.0f} | {one['seconds']:.0f}"
            rows.append(f"| {k}x{k}, {filters} | {plain} | {ours} | {share} | at most 0.17 |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="convmixer_256_8_k{k}_p2", help="a name with {k} for the kernel size")
    parser.add_argument("--kernels", type=int, nargs="+", default=[9, 15])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--data-limit", type=int)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--augment", default="cifar")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--runs", type=Path, help="where runs are kept, to continue after an interruption")
    parser.add_argument("--json", type=Path, help="write everything that was tried there")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = load(options.data, limit=options.data_limit)
    print(f"{describe_machine()}; {options.data}, {len(data.train):,} images, n = {options.seeds}")
    with tempfile.TemporaryDirectory() as folder:
        found = [measure(options, data, kernel, options.runs or Path(folder)) for kernel in options.kernels]
    print(f"\n{table(found, options.epochs)}")
    if options.json:
        settings = {name: value for name, value in vars(options).items() if name not in ("runs", "json")}
        report = {"machine": describe_machine(), "settings": settings, "measured": found}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
