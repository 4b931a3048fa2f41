"""Networks in evaluation: accelerated without an example beside plain PyTorch in both layouts, without gradients.

Contestants take turns in one process, which keeps the memory it frees for all of them, and the best time of each
counts; above 1 means that the accelerated network is faster than the better layout. Results and the machine they come
from: docs/depthwise.md.

    python benchmarks/evaluation.py [--threads 1] [--seconds 10]
"""

import copy
from functools import partial

import timm
import torch
from depthwise import begin, best_times
from torch import Tensor, nn

from filtercov.lab import models
from filtercov.nn import accelerate_, restore_

CONVMIXERS = ["convmixer_64_8_k9_p2", "convmixer_256_8_k9_p2", "convmixer_256_8_k15_p2"]  # 32 images of 32 pixels
OF_TIMM = ["convnext_atto", "inception_next_atto", "mobilenetv3_large_100", "efficientnet_b0"]  # 8 images of 128


def evaluate(net: nn.Module, x: Tensor) -> None:
    """Compute the outputs of x, and nothing for a gradient."""
    with torch.no_grad():
        net(x)


def compare(name: str, net: nn.Module, x: Tensor, seconds: float) -> None:
    """Print a row of a table: milliseconds of all three, and how many times as fast ours is."""
    plain, ours = net.eval(), copy.deepcopy(net).eval()
    restore_(plain)  # our networks have our depthwise layers
    last = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    accelerate_(ours)
    contestants = {
        "first": partial(evaluate, plain, x),
        "last": partial(evaluate, last, x.to(memory_format=torch.channels_last)),
        "ours": partial(evaluate, ours, x),
    }
    best = best_times(contestants, seconds=seconds, rounds=1000)
    cells = " | ".join(f"{best[one] * 1e3:.1f}" for one in contestants)
    print(f"| {name} | {cells} | {min(best['first'], best['last']) / best['ours']:.2f}× |", flush=True)


def main() -> None:
    seconds = begin(__doc__)
    print("| network | NCHW, ms | channels_last | accelerated | faster |\n|---|---|---|---|---|", flush=True)
    for name in CONVMIXERS:
        compare(name, models.create(name, num_classes=10), torch.randn(32, 3, 32, 32), seconds)
    for name in OF_TIMM:
        compare(name, timm.create_model(name, num_classes=10), torch.randn(8, 3, 128, 128), seconds)


if __name__ == "__main__":
    main()
