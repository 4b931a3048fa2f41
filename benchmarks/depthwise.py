"""Depthwise convolution and training steps: filtercov beside PyTorch, as ratios measured in one process.

Contestants take turns and the best time of each counts, so that a busy machine slows all of them alike. Above 1 means
filtercov is faster. `--cpu-time` runs on one thread and counts the time it ran instead of the time that passed: for a
machine that others are using too. Results and the machine they come from: docs/depthwise.md.

    python benchmarks/depthwise.py passes     each pass of the convolution, over the grid of shapes and kernels
    python benchmarks/depthwise.py steps      training steps of a ConvMixer-256/8, and where their time goes
    python benchmarks/depthwise.py memory     peak memory of a step, each contestant in a process of its own
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from step_shares import KINDS, step_shares
from torch import Tensor, nn
from torch.nn import functional

from filtercov.lab.bench import describe_machine, gemm_rate
from filtercov.nn import accelerate_, depthwise_conv2d, keep_freed_memory
from filtercov.nn.conv_operators import depthwise_conv_input_grad, depthwise_conv_weight_grad
from filtercov.nn.timing import race

SHAPES = [(64, 256, 16), (64, 96, 32), (32, 384, 14), (64, 64, 8), (16, 128, 56)]
KERNELS = [5, 7, 9, 15, 31]
Contestants = dict[str, Callable[[], object]]
clock = time.perf_counter


def best_times(contestants: Contestants, *, seconds: float, rounds: int) -> dict[str, float]:
    """Return each contestant's best time; they alternate for `rounds` rounds or until `seconds` have passed."""
    times = race(contestants, seconds=seconds, turns=rounds, laggard=4, clock=clock)
    return {name: min(turns) for name, turns in times.items()}


def begin(description: str | None) -> float:
    """Read `--threads` and `--seconds`, set this process up, name the machine; return the seconds of a comparison."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=1.0, help="time limit of one comparison")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    keep_freed_memory()
    print(f"{describe_machine()}\n")
    return float(arguments.seconds)


def backward(grad_y: Tensor, x: Tensor, weight: Tensor, mask: list[bool]) -> object:
    pad = weight.shape[-1] // 2
    return torch.ops.aten.convolution_backward(
        grad_y, x, weight, None, [1, 1], [pad, pad], [1, 1], False, [0, 0], weight.shape[0], mask
    )


def pass_contestants(batch: int, channels: int, size: int, kernel: int) -> dict[str, Contestants]:
    """Return, for each pass, filtercov and PyTorch in both layouts."""
    weight = torch.randn(channels, 1, kernel, kernel)
    pad, image, taps = kernel // 2, (size, size), (kernel, kernel)
    how = (pad, pad, pad, pad), (1, 1), (1, 1)
    nchw = torch.randn(batch, channels, size, size), torch.randn(batch, channels, size, size)
    x, grad_y = (t.to(memory_format=torch.channels_last) for t in nchw)

    def torchs(run: Callable[[Tensor, Tensor], object]) -> Contestants:
        return {"nchw": lambda: run(*nchw), "channels_last": lambda: run(x, grad_y)}

    return {
        # The same call under two names: how far from 1 a ratio can be and mean nothing.
        "PyTorch against itself": {
            "ours": lambda: functional.conv2d(x, weight, None, padding=pad, groups=channels),
            "again": lambda: functional.conv2d(x, weight, None, padding=pad, groups=channels),
        },
        "forward": {
            "ours": lambda: depthwise_conv2d(x, weight, None, padding=pad),
            **torchs(lambda x, _: functional.conv2d(x, weight, None, padding=pad, groups=channels)),
        },
        "input gradient": {
            "ours": lambda: depthwise_conv_input_grad(grad_y, weight, *how, image, True),
            **torchs(lambda x, g: backward(g, x, weight, [True, False, False])),
        },
        "weight gradient": {
            "ours": lambda: depthwise_conv_weight_grad(grad_y, x, *how, taps),
            **torchs(lambda x, g: backward(g, x, weight, [False, True, False])),
        },
    }


def compare_passes(kernels: list[int], seconds: float, rounds: int) -> None:
    roof = gemm_rate()
    print(f"{describe_machine()}; GEMM 2048³ {roof / 1e9:.0f} GFLOP/s\n")
    print(
        "| shape | k | PyTorch against itself | forward | input gradient | weight gradient | ms | GFLOP/s | of GEMM |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for batch, channels, size in SHAPES:
        for kernel in kernels:
            ratios = []
            for contestants in pass_contestants(batch, channels, size, kernel).values():
                times = best_times(contestants, seconds=seconds, rounds=rounds)
                ours = times.pop("ours")
                ratios.append(f"{min(times.values()) / ours:.2f}×")
            rate = 2 * batch * channels * size**2 * kernel**2 / ours
            share = f"{ours * 1e3:.2f} | {rate / 1e9:.0f} | {rate / roof:.0%}"
            print(f"| {batch}, {channels}, {size}×{size} | {kernel} | {' | '.join(ratios)} | {share} |", flush=True)


class Residual(nn.Module):
    """Add a branch to its input."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        """Return x + branch(x)."""
        return x + self.branch(x)


def convmixer(width: int, depth: int, kernel: int, *, frozen: bool) -> nn.Sequential:
    """Return a ConvMixer with 2×2 patches in PyTorch's own modules."""

    def activated(convolution: nn.Conv2d) -> list[nn.Module]:
        return [convolution, nn.GELU(), nn.BatchNorm2d(width)]

    blocks: list[nn.Module] = []
    for _ in range(depth):
        spatial = nn.Conv2d(width, width, kernel, groups=width, padding="same")
        spatial.weight.requires_grad_(not frozen)
        blocks += [Residual(nn.Sequential(*activated(spatial))), *activated(nn.Conv2d(width, width, 1))]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return nn.Sequential(*activated(nn.Conv2d(3, width, 2, stride=2)), *blocks, *head)


def training_step(net: nn.Module, *, channels_last: bool) -> Callable[[], object]:
    x, target = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))
    if channels_last:
        x = x.to(memory_format=torch.channels_last)

    def step() -> None:
        net.zero_grad(set_to_none=True)
        functional.cross_entropy(net(x), target).backward()

    return step


def step_contestants(kernel: int, *, frozen: bool) -> Contestants:
    nets = [convmixer(256, 8, kernel, frozen=frozen) for _ in range(3)]
    accelerate_(nets[0])
    nets[2].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return {
        "ours": training_step(nets[0], channels_last=True),
        "nchw": training_step(nets[1], channels_last=False),
        "channels_last": training_step(nets[2], channels_last=True),
    }


def compare_steps(seconds: float, rounds: int) -> None:
    print(f"{describe_machine()}\n")
    print("| filters | k | ours, ms | nn.Conv2d, ms | channels_last, ms | against nn.Conv2d | against channels_last |")
    print("|---|---|---|---|---|---|---|", flush=True)
    breakdowns = []
    for frozen in (False, True):
        for kernel in (9, 15):
            contestants = step_contestants(kernel, frozen=frozen)
            times = best_times(contestants, seconds=seconds, rounds=rounds)
            ours, plain, last = times["ours"], times["nchw"], times["channels_last"]
            label = "frozen" if frozen else "trained"
            milliseconds = " | ".join(f"{t * 1e3:.0f}" for t in (ours, plain, last))
            print(f"| {label} | {kernel} | {milliseconds} | {plain / ours:.2f}× | {last / ours:.2f}× |", flush=True)
            for name in ("ours", "channels_last"):
                breakdowns.append((f"{label}, k = {kernel}, {name}", step_shares(contestants[name]).values()))
    print(f"\n| step | {' | '.join(KINDS)} |")
    print("|---|---|---|---|---|")
    for label, shares in breakdowns:
        print(f"| {label} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")


def peak_of_one_step(name: str, kernel: int, *, frozen: bool) -> None:
    """Print the peak resident memory, in MiB, that two steps of one contestant add to this process (POSIX)."""
    import resource

    net = convmixer(256, 8, kernel, frozen=frozen)
    if name == "ours":
        accelerate_(net)
    elif name == "channels_last":
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    step = training_step(net, channels_last=name != "nchw")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    step()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)


def compare_memory() -> None:
    print("| filters | k | ours, MiB | nn.Conv2d, MiB | channels_last, MiB |")
    print("|---|---|---|---|---|", flush=True)
    for filters in ("trained", "frozen"):
        for kernel in ("9", "15"):
            peaks = []
            for name in ("ours", "nchw", "channels_last"):
                command = [sys.executable, __file__, "peak", "--contestant", name, "--kernel", kernel]
                command += ["--frozen"] if filters == "frozen" else []
                peaks.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
            print(f"| {filters} | {kernel} | {' | '.join(peaks)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["passes", "steps", "memory", "peak"])
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of one comparison")
    parser.add_argument("--rounds", type=int, default=300, help="most turns of each contestant")
    parser.add_argument("--kernels", type=int, nargs="+", default=KERNELS, help="for passes")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, counting only the time it ran")
    parser.add_argument("--contestant", default="ours", help="for peak")
    parser.add_argument("--kernel", type=int, default=9, help="for peak")
    parser.add_argument("--frozen", action="store_true", help="for peak")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.cpu_time:
        global clock
        clock = time.thread_time
        torch.set_num_threads(1)
    if arguments.what == "passes":
        keep_freed_memory()  # or whoever gets fresh pages pays for them, up to twice the time of a short pass
        with torch.no_grad():
            compare_passes(arguments.kernels, arguments.seconds, arguments.rounds)
    elif arguments.what == "steps":
        compare_steps(arguments.seconds, arguments.rounds)
    elif arguments.what == "memory":
        compare_memory()
    else:
        peak_of_one_step(arguments.contestant, arguments.kernel, frozen=arguments.frozen)


if __name__ == "__main__":
    main()
