"""A training step of networks others use: `accelerate_` without an example, beside plain PyTorch in both layouts.

Contestants take turns, in processes of their own; ratios are medians over the turns, with quartiles, and the best turn
of each is shown. Above 1 means filtercov is faster. Two blocks stand for fields of their own: a Conformer's (speech)
and a MedNeXt's (volumes). Results and the machine they come from: docs/depthwise.md.

    python benchmarks/networks.py [--threads 2] [--seconds 60] [NAME ...]
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional

from filtercov.lab.bench import (
    CHANNELS_LAST,
    OURS,
    PLAIN,
    TURNS,
    Subject,
    describe_machine,
    gemm_rate,
    plain_network,
    race_of,
    rivals_of,
)
from filtercov.nn import accelerate_
from filtercov.nn.timing import ratio

SHAPES = {
    "convnext_atto": (16, 3, 128, 128),
    "convnext_tiny": (4, 3, 224, 224),
    "convnext_atto_p2": (128, 3, 32, 32),
    "conformer block, d = 256, k = 31": (8, 256, 400),
    "mednext block, 32 channels, k = 5": (2, 32, 32, 32, 32),
}


class FeedForward(nn.Sequential):
    """Half a step of a Conformer's perceptron, on (N, L, C)."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return x and half of what the layers make of it."""
        return x + 0.5 * super().forward(x)


class Conformer(nn.Module):
    """A block of Gulati et al., 2020 (arXiv 2005.08100): perceptron, attention, convolution, perceptron."""

    def __init__(self, width: int, kernel_size: int) -> None:
        super().__init__()
        self.first, self.second = FeedForward(width), FeedForward(width)
        self.before, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm, self.gate = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel_size, padding=kernel_size // 2, groups=width)
        self.after, self.mix, self.last = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, L) to the same shape."""
        x = self.first(x.transpose(1, 2))
        seen = self.before(x)
        x = x + self.attention(seen, seen, seen, need_weights=False)[0]
        convolved = self.depthwise(functional.glu(self.gate(self.norm(x).transpose(1, 2)), dim=1))
        x = x + self.mix(functional.silu(self.after(convolved))).transpose(1, 2)
        return self.last(self.second(x)).transpose(1, 2)  # type: ignore[no-any-return]


class MedNeXt(nn.Module):
    """A block of Roy et al., 2023 (arXiv 2303.09975): depthwise, GroupNorm, twice as many channels and back."""

    def __init__(self, width: int, kernel_size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(width, width, kernel_size, padding=kernel_size // 2, groups=width),
            nn.GroupNorm(width, width),
            nn.Conv3d(width, 2 * width, 1),
            nn.GELU(),
            nn.Conv3d(2 * width, width, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, D, H, W) to the same shape."""
        return x + self.layers(x)


def build(name: str) -> nn.Module:
    """Return a network or block, all PyTorch's."""
    if name.startswith("conformer"):
        return Conformer(256, 31)
    return MedNeXt(32, 5) if name.startswith("mednext") else plain_network(name)


def subject(way: str, name: str) -> Subject:
    """Return a network that takes steps in one of the ways that are compared."""
    torch.manual_seed(0)
    return Subject(build(name), torch.randn(SHAPES[name]), way, lambda network, _x: accelerate_(network))


def measure(name: str, seconds: float) -> None:
    """Print the row of a network."""
    with rivals_of(subject, {way: (way, name) for way in (PLAIN, CHANNELS_LAST, OURS)}) as rivals:
        times = race_of(rivals, seconds=seconds, turns=TURNS)
    best = {way: min(turns) for way, turns in times.items()}
    better = min((PLAIN, CHANNELS_LAST), key=best.__getitem__)
    shown = " | ".join(f"{1e3 * seconds:.1f}" for seconds in best.values())
    shape = " × ".join(map(str, SHAPES[name]))
    print(f"| {name} | {shape} | {shown} | {ratio(times[better], times[OURS])} |", flush=True)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=60.0, help="time for each network, at most")
    parser.add_argument("names", nargs="*", default=list(SHAPES), help=f"of {', '.join(SHAPES)}")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{describe_machine()}; GEMM {gemm_rate() / 1e9:.0f} GFLOP/s")
    print("| network | input | NCHW, ms | channels_last | ours | faster than the better |\n|---|---|---|---|---|---|")
    for name in arguments.names:
        measure(name, arguments.seconds)


if __name__ == "__main__":
    main()
