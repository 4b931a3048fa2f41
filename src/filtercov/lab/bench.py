"""A training step of any network on this machine: tuned by `accelerate_`, beside plain PyTorch in both its layouts.

The three take turns, each in a process of its own, on the CPU or on a GPU: what a step frees, and whether the system or
the next step gets it, depends on everything its process did before.
"""

from __future__ import annotations

import multiprocessing
import platform
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from filtercov.errors import ConfigError, FiltercovError
from filtercov.filters import freeze_
from filtercov.lab.models.lookup import create
from filtercov.nn import Acceleration, accelerate_, gpu, native_status, restore_
from filtercov.nn.layout import to_channels_last_
from filtercov.nn.swap import SAFE, toggles
from filtercov.nn.timing import Clock, Ratio, Step, race, ratio, usual_clock
from filtercov.nn.tune import SECONDS, Tuning
from filtercov.printable import counted

OURS, PLAIN, CHANNELS_LAST = "ours", "PyTorch", "PyTorch, channels_last"
MODEL, BATCH, OUR_SIZE = "convmixer_256_8_k9_p2", 16, 32
TURNS = 15


@dataclass(frozen=True)
class Bench:
    """The measurement of one network; `times` are the seconds of each contestant's turns, ours first."""

    machine: str
    gemm: float  # FLOP/s of a large matrix product
    model: str
    batch_size: int
    image_size: int
    frozen: bool
    times: dict[str, list[float]]
    tuning: Tuning

    def ratio(self, contestant: str) -> Ratio:
        """Our speed as a multiple of a contestant's."""
        return ratio(self.times[contestant], self.times[OURS])

    @property
    def setting(self) -> str:
        """The machine and the result, in three lines."""
        filters = f"{'frozen' if self.frozen else 'trained'} depthwise filters"
        early = ", which was too short to try all" if self.tuning.ended_early else ""
        return (
            f"{self.machine}; GEMM 2048x2048x2048 {self.gemm / 1e9:.0f} GFLOP/s\n"
            f"{self.model}, {filters}, {self.batch_size} x 3 x {self.image_size} x {self.image_size}\n"
            f"ours is: {self.tuning.kept}, after {self.tuning.seconds:.0f} s of tuning{early}"
        )

    @property
    def table(self) -> list[list[str]]:
        """A row for each contestant with its shortest turn, the heading first."""
        rows = [["training step", "ms", "ours is faster, median (quartiles)"]]
        for name, seconds in self.times.items():
            rows.append([name, f"{min(seconds) * 1e3:.1f}", "" if name == OURS else str(self.ratio(name))])
        return rows


def bench(
    model: str = MODEL,
    *,
    batch_size: int = BATCH,
    image_size: int | None = None,
    frozen: bool = False,
    seconds: float = SECONDS,
    device: str = "cpu",
) -> Bench:
    """Tune a network by name for this machine and compare it with plain PyTorch, in about twice `seconds`."""
    count = torch.cuda.device_count()
    if device not in ("cpu", *["cuda"] * bool(count), *(f"cuda:{i}" for i in range(count))):
        raise ConfigError(
            f"--device must be cpu or a GPU, of which PyTorch {torch.__version__} finds {count} here, got {device}; "
            "use a machine with a GPU and a GPU build of torch, or --device cpu"
        )
    size = image_size or _own_size(model)
    names, shape = (OURS, PLAIN, CHANNELS_LAST), (batch_size, 3, size, size)
    with rivals_of(_subject, {name: (name, model, shape, frozen, seconds, device) for name in names}) as rivals:
        times = race_of(rivals, seconds=seconds, turns=TURNS)
        tuning = rivals[OURS]("tuned")
    return Bench(describe_machine(device), gemm_rate(device), model, batch_size, size, frozen, times, tuning)


class Subject:
    """A network, or a block of one, that takes training steps in one of the ways that are compared."""

    def __init__(
        self, plain: nn.Module, x: Tensor, way: str, tune: Callable[[nn.Module, Tensor], Acceleration]
    ) -> None:
        self.report = tune(plain, x) if way == OURS else None
        if way == CHANNELS_LAST:
            safely_to_channels_last_(plain)
        self.step, self.clock = Step(plain, x), _clock(x.device)

    def turn(self) -> float:
        """Take a step; its seconds."""
        began = self.clock()
        self.step()
        return self.clock() - began

    def tuned(self) -> Tuning | None:
        """The timings that chose between layers, if there were any."""
        return None if self.report is None else self.report.tuning


def _subject(way: str, model: str, shape: tuple[int, ...], frozen: bool, seconds: float, device: str) -> Subject:
    torch.manual_seed(0)
    plain = plain_network(model).to(device)
    if frozen:
        freeze_(plain)
    x = torch.randn(shape).to(device)
    return Subject(plain, x, way, lambda network, x: accelerate_(network, example_input=x, seconds=seconds))


def safely_to_channels_last_(plain: nn.Module) -> None:
    """Move a network of PyTorch's to channels_last, on the CPU out of the way of its fault there."""
    accelerate_(plain, keep_memory=False)
    for toggle in toggles(plain):
        if toggle.swap is not SAFE:
            toggle.set_(None)
    to_channels_last_(plain)


def plain_network(model: str) -> nn.Module:
    """A network by name without any of our layers."""
    network = create(model, num_classes=10).train()
    restore_(network)
    return network


def _own_size(name: str) -> int:
    settings: Any = getattr(plain_network(name), "default_cfg", None)  # which timm's networks have
    return int(settings["input_size"][-1]) if settings else OUR_SIZE


def gemm_rate(device: str = "cpu") -> float:
    """The FLOP/s of a 2048 x 2048 x 2048 matrix product."""
    a, b = (torch.randn(2048, 2048, device=device) for _ in range(2))
    return 2 * 2048**3 / min(race({"gemm": lambda: a @ b}, seconds=5, turns=30, clock=_clock(a.device))["gemm"])


def _clock(device: torch.device) -> Clock:
    if device.type != "cuda":
        return usual_clock()
    torch.cuda.set_device(device)
    return gpu.cuda_clock()


def describe_machine(device: str = "cpu") -> str:
    """The processor or GPU, and what of it is used."""
    if device != "cpu":
        triton = f"triton {version('triton')}" if find_spec("triton") else "no triton"
        name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
        return f"{name}, torch {torch.__version__}, {triton}"
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, {counted(torch.get_num_threads(), 'thread')}, torch {torch.__version__}, {native_status()}"


# --- Contestants in processes of their own ---

Rival = Callable[[str], Any]  # what a method of the contestant returns; `turn` takes a turn and returns its seconds
_contestant: Any = None  # of such a process


def _call(threads: int, build: Callable[..., Any], arguments: tuple[Any, ...], method: str) -> Any:
    global _contestant
    if _contestant is None:
        torch.set_num_threads(threads)
        _contestant = build(*arguments)
    return getattr(_contestant, method)()


def _ask(process: ProcessPoolExecutor, *call: Any) -> Any:
    try:
        return process.submit(_call, *call).result()
    except BrokenProcessPool:
        raise FiltercovError("the process that was measured died; is there memory enough?") from None


@contextmanager
def rivals_of(build: Callable[..., Any], arguments: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Rival]]:
    """Make `build(*given)` for each of several arguments in a process of its own; yield how to call their methods.

    Each is built when it is first called. The processes have as many threads as this one, and end with the context.
    `build` and its arguments have to be picklable. What is raised there is raised here.
    """
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if forks else "spawn")
    if forks:  # so that these are imported once; the last by PyTorch's optimisers at their first step
        context.set_forkserver_preload([__name__, "torch._dynamo"])
    with ExitStack() as stack:
        rivals: dict[str, Rival] = {}
        for name, given in arguments.items():
            # Whoever presses Ctrl-C hears of it from the process that asks.
            process = stack.enter_context(
                ProcessPoolExecutor(1, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))
            )
            rivals[name] = partial(_ask, process, torch.get_num_threads(), build, given)
        yield rivals


def race_of(rivals: Mapping[str, Rival], *, seconds: float, turns: int) -> dict[str, list[float]]:
    """The seconds of each rival's turns, by `filtercov.nn.timing.race`; only one runs at a time."""
    spent = 0.0

    def turn(rival: Rival) -> None:
        nonlocal spent
        spent += rival("turn")

    contestants = {name: partial(turn, rival) for name, rival in rivals.items()}
    return race(contestants, seconds=seconds, turns=turns, clock=lambda: spent)
