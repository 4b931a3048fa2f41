"""How long a training step takes with frozen and with thawed filters: the paper's speed figure, on this machine."""

import datetime
import json
import statistics
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

import torch
from torch import nn

import filtercov as fc
from filtercov.lab import models
from filtercov.lab.bench import describe_machine
from filtercov.lab.costs.machine_speed import MachineSpeed
from filtercov.lab.experiments.planning import YARDSTICK
from filtercov.lab.experiments.timings import SpeedRecord, Timings
from filtercov.lab.training.storage import write_atomic
from filtercov.nn import accelerate_
from filtercov.nn.timing import race

IMAGE_SIZE = 32
BATCH = 64
# A share that is saved scatters by 8 points from turn to turn where a machine is shared; so many turns tell 5 from zero
# in nine of ten measurements.
TURNS = 36


def measure_speeds(
    names: Sequence[str], *, batch_size: int = BATCH, turns: int = TURNS, device: str = "cpu"
) -> Timings:
    """Time a step (forward, backward, AdamW) of each network, thawed and frozen; the median of `turns`.

    All take turns in one race, so that shares saved by different networks in one turn can be compared.
    """
    steps = {
        (name, frozen): _step(name, batch_size, frozen=frozen, device=device)
        for name in names
        for frozen in (False, True)
    }
    for step in steps.values():  # the first one of an optimiser allocates its memory
        step()
    times = race(steps, seconds=inf, turns=turns, clock=None if device == "cpu" else time.perf_counter)
    return Timings(described(device), tuple(_speed(name, times[name, False], times[name, True]) for name in names))


def described(device: str) -> str:
    """Return what steps on a device are timed on: those of another description are no guide to it.

    >>> described("cpu") == describe_machine(), described("mps").startswith("mps, ")
    (True, True)
    """
    if device == "cpu":
        return describe_machine()
    return f"{torch.cuda.get_device_name(device) if device.startswith('cuda') else device}, {describe_machine()}"


def measure_machine(*, rounds: int = 3) -> MachineSpeed:
    """Time a few steps of the yardstick on this machine's CPU, which takes seconds."""
    step = _step(YARDSTICK, BATCH, frozen=False, device="cpu")
    times = race({YARDSTICK: step}, seconds=inf, turns=rounds, clock=time.perf_counter)[YARDSTICK]
    today = datetime.date.today().isoformat()
    return MachineSpeed(round(BATCH / statistics.median(times), 1), torch.get_num_threads(), today)


def write_speeds(path: Path, timings: Timings) -> None:
    """Keep timings for the report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(timings.as_dict(), indent=2).encode() + b"\n")


def _speed(name: str, thawed: Sequence[float], frozen: Sequence[float]) -> SpeedRecord:
    saved = tuple(100 * (1 - f / t) for t, f in zip(thawed, frozen, strict=True))
    medians = statistics.median(thawed), statistics.median(frozen)
    return SpeedRecord(name, models.parse(name).kernel_size, *medians, saved)


def _step(name: str, batch_size: int, *, frozen: bool, device: str) -> Callable[[], None]:
    model = models.create(name, num_classes=10)
    if frozen:
        fc.freeze_(model)
    model.to(device)
    accelerate_(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    images = torch.randn(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch_size,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if device != "cpu":
            torch.cuda.synchronize()

    return step
