"""Thirty networks of timm's with depthwise layers, tuned by an example: never slower, and by how much faster.

`filtercov.lab.bench` does each, trained and with frozen filters, and it is compared with the better layout of plain
PyTorch; contestants take turns. With `--json FILE` a line is kept for each that is done, and the same command goes on
with the rest. Results and the machine they come from: docs/depthwise.md.

    python benchmarks/tuned.py [--threads 1] [--seconds 20] [--batch-size 8] [--json FILE] [NAME ...]
"""

import argparse
import json
from math import exp, log
from pathlib import Path
from typing import Any

import torch

from filtercov.lab.bench import bench, describe_machine

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
    ours, *plain = found.contestants
    better = min(plain, key=lambda contestant: contestant.best)
    return {
        "name": name,
        "frozen": frozen,
        "batch": batch,
        "milliseconds": {contestant.name: 1e3 * contestant.best for contestant in found.contestants},
        "faster": found.ratio(better)._asdict(),
        "best": better.best / ours.best,
        "peak": ours.peak_bytes / better.peak_bytes,
        "kept": found.tuning.kept,
    }


def row(one: dict[str, Any]) -> str:
    """Return a line of the table."""
    times = " | ".join(f"{milliseconds:.0f}" for milliseconds in one["milliseconds"].values())
    faster = one["faster"]
    spread = f"{faster['median']:.2f}× ({faster['low']:.2f} to {faster['high']:.2f})"
    filters = "frozen" if one["frozen"] else "trained"
    which = f"{one['name']}, {one['batch']} images | {filters}"
    return f"| {which} | {times} | {spread} | {one['best']:.2f}× | {one['peak']:.2f} | {one['kept']} |"


def main() -> None:
    """Measure what is asked for and not yet done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=20.0, help="to tune each network, and to compare it")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--json", type=Path, help="file with a line for each that is done")
    parser.add_argument("names", nargs="*", default=NAMES)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    kept = arguments.json.read_text(encoding="utf-8").splitlines() if arguments.json and arguments.json.exists() else []
    done = [json.loads(line) for line in kept]
    print(describe_machine())
    print("| network | filters | ours, ms | NCHW | channels_last | turn by turn | best turns | peak memory | kept |")
    print("|" + "---|" * 9, *map(row, done), sep="\n", flush=True)
    for name in arguments.names:
        for frozen in (False, True):
            if (name, frozen, arguments.batch_size) not in [(one["name"], one["frozen"], one["batch"]) for one in done]:
                done.append(measure(name, frozen=frozen, seconds=arguments.seconds, batch=arguments.batch_size))
                print(row(done[-1]), flush=True)
                if arguments.json:
                    with arguments.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(done[-1]) + "\n")
    ratios = [one["faster"]["median"] for one in done]
    mean = exp(sum(map(log, ratios)) / len(ratios))
    print(f"least {min(ratios):.2f}×, geometric mean {mean:.2f}× of {len(ratios)}")


if __name__ == "__main__":
    main()
