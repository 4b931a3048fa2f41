"""The time of a training step with frozen and with thawed filters: the paper's speed figure, on this machine."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

import filtercov as fc
from filtercov.lab import models
from filtercov.lab.bench import describe_machine, race_of, rivals_of
from filtercov.lab.costs import YARDSTICK
from filtercov.lab.training.rundir import write_json
from filtercov.nn import accelerate_
from filtercov.nn.timing import ratio, usual_clock

IMAGE_SIZE = 32
BATCH = 64
REPEATS = 9
TURNS = 4  # of each step in each of them


@dataclass(frozen=True)
class SpeedRecord:
    """The seconds of a training step of one network, medians, and the percent that freezing saved in each repeat."""

    model: str
    kernel_size: int
    thawed: float
    frozen: float
    saved: tuple[float, ...] = ()


@dataclass(frozen=True)
class Timings:
    """Steps that were timed beside one another, several times over."""

    machine: str = ""  # processor, threads and versions
    steps: tuple[SpeedRecord, ...] = ()

    @property
    def repeats(self) -> int:
        """How often every step was measured, 0 without steps."""
        return min((len(step.saved) for step in self.steps), default=0)

    def enough(self, device: str, repeats: int) -> bool:
        """Whether they were taken on this machine, with at least as many repeats."""
        return self.machine == describe_machine(device) and self.repeats >= repeats

    def write(self, path: Path) -> None:
        """Write the timings for the report."""
        write_json(path, asdict(self))

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """The timings in the values of a file."""
        steps = tuple(SpeedRecord(**{**step, "saved": tuple(step["saved"])}) for step in values["steps"])
        return cls(values["machine"], steps)


def measure_speeds(names: Sequence[str], *, repeats: int = REPEATS, device: str = "cpu") -> Timings:
    """Time a step (forward, backward, AdamW) of each network, thawed and frozen, each in a process of its own.

    All take turns beside one another. That is repeated with new processes, because how fast a process is depends on
    where its memory happens to be: a repeat is one measurement, in which different networks can be compared.
    """
    given = {f"{name} {kind}": (name, kind, device) for name in names for kind in ("thawed", "frozen")}
    raced = []
    for _ in range(repeats):
        with rivals_of(_Step, given) as rivals:
            raced.append(race_of(rivals, seconds=inf, turns=TURNS))
    steps = []
    for name in names:
        thawed, frozen = ([times[f"{name} {kind}"] for times in raced] for kind in ("thawed", "frozen"))
        saved = tuple(100 * (1 - ratio(f, t).median) for t, f in zip(thawed, frozen, strict=True))
        usual = [statistics.median(chain(*turns)) for turns in (thawed, frozen)]
        steps.append(SpeedRecord(name, models.parse(name).kernel_size, usual[0], usual[1], saved))
    return Timings(describe_machine(device), tuple(steps))


def images_per_second() -> float:
    """How fast the yardstick trains on this machine's CPU, from a few steps, which take seconds."""
    step = _Step(YARDSTICK, "thawed", "cpu")
    return BATCH / statistics.median(step.turn() for _ in range(3))


class _Step:
    """A training step of a network on random images, which can be taken again and again."""

    def __init__(self, name: str, kind: str, device: str) -> None:
        self._device = device
        self._model = models.create(name, num_classes=10)
        if kind == "frozen":
            fc.freeze_(self._model)
        self._model.to(device)
        accelerate_(self._model)
        self._optimizer = torch.optim.AdamW([p for p in self._model.parameters() if p.requires_grad])
        images = torch.randn(BATCH, 3, IMAGE_SIZE, IMAGE_SIZE, device=device)
        self._images = images.contiguous(memory_format=torch.channels_last)
        self._labels = torch.randint(10, (BATCH,), device=device)
        self.turn()  # the first one of an optimiser allocates its memory

    def turn(self) -> float:
        """Take a step, wait until it is done, and return its seconds."""
        clock = usual_clock() if self._device == "cpu" else time.perf_counter
        started = clock()
        self._optimizer.zero_grad()
        nn.functional.cross_entropy(self._model(self._images), self._labels).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        if self._device != "cpu":
            torch.accelerator.synchronize()
        return clock() - started
