"""What a training step waits for memory: plain PyTorch and ours, with freed memory given back and kept.

Contestants take turns, in processes of their own, and say how many pages a step asks the system for, and what their
process held at most. PyTorch's is in channels_last, ours is by `accelerate_` without an example. Results and the
machine they come from: docs/depthwise.md.

    python benchmarks/freed_memory.py [--threads 1] [--seconds 20] [--batch-size 8] [--img-size 128] [NAME ...]
"""

import argparse
import resource
from statistics import median
from typing import Any

import torch

from filtercov.lab.bench import CHANNELS_LAST, OURS, TURNS, Subject, describe_machine, plain_network, race_of, rivals_of
from filtercov.nn import accelerate_, keep_freed_memory

NAMES = ("convnext_atto", "mobilenetv3_large_100", "efficientnet_b0", "spnasnet_100")
CONTESTANTS = [(way, kept) for way in (CHANNELS_LAST, OURS) for kept in (False, True)]


class Faulting(Subject):
    """A network that counts the pages that its steps had to wait for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.faults: list[int] = []

    def turn(self) -> float:
        """Return the seconds of a step."""
        before = _faults()
        seconds = super().turn()
        self.faults.append(_faults() - before)
        return seconds

    def memory(self) -> str:
        """Return the median of the steps' page faults, and the most that the process held."""
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return f"{median(self.faults):.0f} pages, {held:.0f} MiB"


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def subject(name: str, way: str, kept: bool, shape: tuple[int, ...]) -> Faulting:
    """Return one of the contestants."""
    torch.manual_seed(0)
    if kept:
        keep_freed_memory()
    return Faulting(plain_network(name), torch.randn(shape), way, lambda net, _x: accelerate_(net, keep_memory=False))


def measure(name: str, shape: tuple[int, ...], seconds: float) -> None:
    """Print the row of a network."""
    with rivals_of(subject, {f"{way}, {kept}": (name, way, kept, shape) for way, kept in CONTESTANTS}) as rivals:
        times = race_of(rivals, seconds=seconds, turns=TURNS)
        cells = [f"{1e3 * median(times[who]):.0f} ms, {rival('memory')}" for who, rival in rivals.items()]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each network")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--img-size", type=int, default=128)
    parser.add_argument("names", nargs="*", default=NAMES)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"{describe_machine()}\n")
    print("| network | " + " | ".join(f"{way}, {'kept' if kept else 'given back'}" for way, kept in CONTESTANTS) + " |")
    print("|" + "---|" * (1 + len(CONTESTANTS)))
    for name in given.names:
        measure(name, (given.batch_size, 3, given.img_size, given.img_size), given.seconds)


if __name__ == "__main__":
    main()
