"""What test processes do, sweep the tiny table; and how to run some to their end."""

import io
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import torch

from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.execute import Machine
from filtercov.lab.experiments.sweep import sweep
from tests.lab.experiments.tiny import table

CONTEXT = multiprocessing.get_context("forkserver")


def run_children(target: Callable[[Path], None], root: Path, *, count: int = 1) -> None:
    """Run so many processes of it at once; all must succeed."""
    children = [CONTEXT.Process(target=target, args=(root,)) for _ in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join(300)
        assert child.exitcode == 0


def sweep_tiny(root: Path) -> None:
    torch.set_num_threads(1)
    outcomes = sweep(table().runs, root, stream=io.StringIO(), machine=Machine(recovery_interval=1))
    assert {outcome.status for outcome in outcomes.values()} == {"done"}


def sweep_tiny_with_workers(root: Path) -> None:
    sweep(table().runs, root, stream=io.StringIO(), engine=Engine(workers=2))
