"""What the processes do that tests start, kill and let fail; importable, so that a fork server can run it."""

import os
import signal
import sys
from pathlib import Path

import torch

from filtercov.errors import DataError
from filtercov.lab.training import TrainConfig, fit, process_group
from tests.lab.training.toys import ToyBatches, interrupt_at, toy_model

CONFIG = TrainConfig(epochs=4, batch_size=8, ema_decay=0.9)
INTERVAL = 3
TOGETHER = TrainConfig(epochs=3, batch_size=12, ema_decay=0.9, lr=0.03)


def train(run_dir: Path, started=None) -> None:
    """Train to the end."""
    torch.set_num_threads(1)

    def announce(_batch: int) -> None:
        if started is not None:
            started.set()

    train, test = ToyBatches(batches=8, before=announce), ToyBatches(seed=1)
    fit(toy_model(), train, test, CONFIG, run_dir, recovery_interval=INTERVAL, log_interval=2, watch_interval=5)


def train_until(run_dir: Path, point: str, number: int, after: bool) -> None:
    """Train, and die by SIGKILL before or after a system call: the n-th that begins with `point`."""
    remaining = number

    def dying(name, function):
        def wrapped(*args, **kwargs):
            nonlocal remaining
            target = Path(args[-1]).name if name in ("replace", "unlink") else ""
            remaining -= f"{name} {target}".startswith(point)
            if remaining == 0 and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            value = function(*args, **kwargs)
            if remaining == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return value

        return wrapped

    for name in ("fsync", "replace", "write", "ftruncate", "open", "unlink"):
        setattr(os, name, dying(name, getattr(os, name)))
    train(run_dir)
    raise SystemExit(4)  # the run has fewer such calls


def train_together(rank: int, size: int, port: int, run_dir: Path, where: str, who: tuple[int, ...]) -> None:
    """Train as `rank` of `size` gloo processes; at the place `where` the ranks in `who` fail. Prints how it ended."""
    names = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in names.items()} | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    sys.stdout = (run_dir.parent / f"{run_dir.name}-{rank}.txt").open("w", buffering=1)
    mine = rank in who

    def before(batch: int) -> None:
        if where == "batch" and mine and batch == 7:
            raise DataError(f"rank {rank} cannot read its images")
        if where == "checkpoint" and mine and batch == 0:
            (run_dir / "state.safetensors").mkdir()  # no file can take a directory's place
        if where == "stop" and mine:
            interrupt_at(6)(batch)
            interrupt_at(6)(batch)  # as Ctrl-C comes from the terminal, and once more from torchrun, which gets it too

    def on_finish(_model, _run_dir):
        if where == "finish" and mine:
            raise ZeroDivisionError(f"a defect of rank {rank}")
        return {}

    torch.set_num_threads(1)
    try:
        with process_group("cpu") as (world, _device):
            aligned = torch.nn.BatchNorm1d(1, momentum=None)
            aligned.running_mean.fill_(rank)
            world.align_(aligned)
            assert aligned.running_mean == 0, "buffers are rank 0's"
            if where == "open" and mine:
                run_dir.write_text("not a directory")
            train = ToyBatches(world=world, batch_size=12, before=before)
            test = ToyBatches(seed=1, world=world, batch_size=12)
            model = toy_model(normalisation=False, dropout=0.0)
            identity = {"data": f"content {int(where == 'identity' and mine)}"}
            fit(model, train, test, TOGETHER, run_dir, identity=identity, on_finish=on_finish, log_interval=1)
        print("finished")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
