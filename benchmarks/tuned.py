"""Thirty networks of timm's with depthwise layers, tuned by an example: never slower, and by how much faster.

`filtercov.lab.bench` does each, trained and with frozen filters, and it is compared with the better layout of plain
PyTorch; contestants take turns. With `--json FILE` a line is kept for each that is done, and the same command goes on
with the rest. `--roof` tells instead what plain PyTorch's products of matrices, which stay its own, take of its step:
how many times as fast it would be if all else took no time, or half. Results and the machine they come from:
docs/depthwise.md.

    python benchmarks/tuned.py [--threads 1] [--seconds 20] [--batch-size 8] [--json FILE] [--roof] [NAME ...]
"""

import argparse
import copy
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from step_shares import step_shares

from filtercov.filters import freeze_
from filtercov.lab.bench import OURS, bench, describe_machine, plain_network, safely_to_channels_last_
from filtercov.nn.timing import Step, race

NAMES = (
    *("convnext_atto", "convnext_femto", "convnextv2_atto", "inception_next_atto", "mambaout_femto", "convformer_s18"),
    *("mobilenetv2_100", "mobilenetv3_large_100", "mobilenetv3_small_100", "mobilenetv4_conv_small", "mobileone_s0"),
    *("efficientnet_b0", "efficientnet_lite0", "tf_efficientnetv2_b0", "mnasnet_100", "fbnetc_100", "spnasnet_100"),
    *("ghostnet_100", "hardcorenas_a", "lcnet_100", "mixnet_s", "rexnet_100", "tinynet_c", "semnasnet_075"),
    *("edgenext_xx_small", "fastvit_t8", "mobilevitv2_050", "repvit_m0_9", "starnet_s1", "convmixer_768_32"),
)
SIZE, SMALLER = 128, {"convmixer_768_32": 64}


def measure(name: str, *, frozen: bool, seconds: float, batch: int) -> dict[str, Any]:
    """Return how many times as fast a network is tuned as in the better layout of plain PyTorch, and its times."""
    found = bench(name, batch_size=batch, image_size=SMALLER.get(name, SIZE), frozen=frozen, seconds=seconds)
    best = {name: min(times) for name, times in found.times.items()}
    better = min(best.keys() - {OURS}, key=best.__getitem__)
    return {
        "name": name,
        "frozen": frozen,
        "batch": batch,
        "milliseconds": {name: 1e3 * seconds for name, seconds in best.items()},
        "faster": found.ratio(better)._asdict(),
        "best": best[better] / best[OURS],
        "kept": found.tuning.kept,
    }


def row(one: dict[str, Any]) -> str:
    """Return a line of the table."""
    times = " | ".join(f"{milliseconds:.0f}" for milliseconds in one["milliseconds"].values())
    faster = one["faster"]
    spread = f"{faster['median']:.2f}× ({faster['low']:.2f} to {faster['high']:.2f})"
    filters = "frozen" if one["frozen"] else "trained"
    which = f"{one['name']}, {one['batch']} images | {filters}"
    return f"| {which} | {times} | {spread} | {one['best']:.2f}× | {one['kept']} |"


def products(name: str, *, frozen: bool, batch: int) -> float:
    """Return the share of the products of matrices in a step of plain PyTorch, in its better layout."""
    torch.manual_seed(0)
    network, size = plain_network(name), SMALLER.get(name, SIZE)
    if frozen:
        freeze_(network)
    images, moved = torch.randn(batch, 3, size, size), copy.deepcopy(network)
    safely_to_channels_last_(moved)
    steps = {"plain": Step(network, images), "channels_last": Step(moved, images)}
    times = race(steps, seconds=5, turns=5)
    better = min(times, key=lambda layout: min(times[layout]))
    return step_shares(steps[better])["matrix products"]


def print_roofs(names: Sequence[str], batch: int) -> None:
    """Print what the products leave to gain, network by network."""
    print("| network | filters | products | all else in no time | in half the time |\n|---|---|---|---|---|")
    bounds = []
    for name in names:
        for frozen in (False, True):
            share = products(name, frozen=frozen, batch=batch)
            bounds.append((1 / share, 2 / (1 + share)))
            filters = "frozen" if frozen else "trained"
            nothing, half = bounds[-1]
            print(f"| {name} | {filters} | {share:.0%} | {nothing:.2f}× | {half:.2f}× |", flush=True)
    nothing, half = (geometric_mean(column) for column in zip(*bounds, strict=True))
    print(f"geometric means {nothing:.2f}× and {half:.2f}×")


def print_ratios(names: Sequence[str], *, seconds: float, batch: int, kept: Path | None) -> None:
    """Measure what is asked for and not yet done, and print all of it."""
    lines = kept.read_text(encoding="utf-8").splitlines() if kept and kept.exists() else []
    done = [json.loads(line) for line in lines]
    print("| network | filters | ours, ms | NCHW | channels_last | turn by turn | best turns | kept |")
    print("|" + "---|" * 8, *map(row, done), sep="\n", flush=True)
    for name in names:
        for frozen in (False, True):
            if (name, frozen, batch) not in [(one["name"], one["frozen"], one["batch"]) for one in done]:
                done.append(measure(name, frozen=frozen, seconds=seconds, batch=batch))
                print(row(done[-1]), flush=True)
                if kept:
                    with kept.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(done[-1]) + "\n")
    ratios = [one["faster"]["median"] for one in done]
    print(f"least {min(ratios):.2f}×, geometric mean {geometric_mean(ratios):.2f}× of {len(ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=20.0, help="to tune each network, and to compare it")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--json", type=Path, help="file with a line for each that is done")
    parser.add_argument("--roof", action="store_true", help="what products leave to gain, instead")
    parser.add_argument("names", nargs="*", default=NAMES)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(describe_machine())
    if given.roof:
        print_roofs(given.names, given.batch_size)
    else:
        print_ratios(given.names, seconds=given.seconds, batch=given.batch_size, kept=given.json)


if __name__ == "__main__":
    main()
