"""What test processes do: sweep the tiny table, hold a run; and how to run some to their end."""

import io
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import torch

from filtercov.lab.experiments.engines import Engine
from filtercov.lab.experiments.execute import Machine
from filtercov.lab.experiments.runs import Runs
from filtercov.lab.experiments.sweep import sweep
from tests.lab.experiments.tiny import reference, table

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


def hold(root: Path, held) -> None:
    """Claim a run, say so, and keep it until killed."""
    with Runs(root).claim(reference()) as mine:
        assert mine
        held.set()
        time.sleep(600)
