"""How long `filtercov.init_` takes, beside `torch.nn.init.trunc_normal_` and the paper's way of sampling.

    python benchmarks/init.py
    OMP_NUM_THREADS=1 python benchmarks/init.py --cpu-time    on a machine that others are using too

Contestants alternate in one process and the best of several rounds counts; filtercov keeps no factors between calls, so
every round is a first call.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial
from math import inf

import numpy as np
import torch
from torch import nn

import filtercov as fc
from filtercov.nn.timing import race

# Depthwise layers as (channels, kernel size), in forward order.
NETWORKS: dict[str, list[tuple[int, int]]] = {
    "ConvNeXt-Tiny": [(96, 7)] * 3 + [(192, 7)] * 3 + [(384, 7)] * 9 + [(768, 7)] * 3,
    "ConvMixer-1536/20": [(1536, 9)] * 20,
    "RepLKNet-31B": [(128, 31)] * 2 + [(256, 29)] * 2 + [(512, 27)] * 18 + [(1024, 13)] * 2,
    "51x51": [(96, 51)] * 3 + [(192, 51)] * 3 + [(384, 51)] * 9 + [(768, 51)] * 3,
}


def network(name: str) -> nn.Sequential:
    with torch.device("meta"):
        layers = [nn.Conv2d(c, c, k, groups=c, bias=False) for c, k in NETWORKS[name]]
    return nn.Sequential(*layers).to_empty(device="cpu")


def best_of(contestants: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    times = race(contestants, seconds=inf, turns=rounds, clock=clock)
    return {name: min(turns) for name, turns in times.items()}


def trunc_normal(net: nn.Sequential) -> None:
    for layer in net:
        nn.init.trunc_normal_(layer.weight, std=0.02)  # type: ignore[arg-type]


def papers_way(weight: torch.Tensor, sigma: float) -> None:
    """Fill a weight as the paper's code does: entry by entry over `np.ndindex`, then NumPy's multivariate normal."""
    channels, _, k, _ = weight.shape

    def wrapped_gaussian(row: int, column: int) -> np.ndarray:
        block = np.empty((k, k))
        for i, j in np.ndindex(k, k):
            dy, dx = (i - row + k // 2) % k - k // 2, (j - column + k // 2) % k - k // 2
            block[i, j] = np.exp(-(dy * dy + dx * dx) / (2 * sigma))
        return block

    z = wrapped_gaussian(k // 2, k // 2)
    cov = np.empty((k * k, k * k))
    for i, j in np.ndindex(k, k):
        shifted = wrapped_gaussian(i, j)
        cov[k * i + j] = (0.5 * (z[i, j] * (shifted - z) + shifted * z)).ravel()
    np.random.seed(0)
    filters = np.random.multivariate_normal(np.zeros(k * k), cov, size=channels, check_valid="ignore")
    with torch.no_grad():
        weight.copy_(torch.from_numpy(filters.reshape(weight.shape)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cpu-time", action="store_true", help="count the time it ran, not the time that passed")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, numpy {np.__version__}")
    print(f"{'network':18} {'weights':>9} {'trunc_normal_':>13} {'init_':>9} {'ratio':>6}")
    for name in NETWORKS:
        net = network(name)
        contestants = {"torch": partial(trunc_normal, net), "ours": partial(fc.init_, net)}
        times = best_of(contestants, arguments.rounds, clock)
        weights = sum(p.numel() * p.element_size() for p in net.parameters()) / 2**20
        ratio = times["ours"] / times["torch"]
        print(f"{name:18} {weights:6.1f}MiB {times['torch'] * 1e3:11.2f}ms {times['ours'] * 1e3:7.2f}ms {ratio:6.2f}")
    for k in (9, 15, 31):
        layer = nn.Conv2d(256, 256, k, groups=256, bias=False)
        ours = best_of({"init_": partial(fc.init_, layer)}, arguments.rounds, clock)["init_"]
        papers_rounds = 1 if k > 15 else 3
        papers = best_of({"paper": partial(papers_way, layer.weight, 0.15)}, papers_rounds, clock)["paper"]
        print(f"256 filters of {k}x{k}: the paper's way {papers:7.3f}s, init_ {ours * 1e3:.2f}ms, {papers / ours:.0f}x")


if __name__ == "__main__":
    main()
