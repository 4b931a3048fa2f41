"""What the processes that tests start and kill do; importable, so that a fork server can run it."""

import os
import signal
import time
from pathlib import Path

import torch

from filtercov.errors import TrainingInterrupted
from filtercov.lab.training import RunDirectory, TrainConfig
from tests.lab.training.toys import ToyBatches, toy_model

CONFIG = TrainConfig(epochs=4, batch_size=8, ema_decay=0.9)
INTERVAL = 3


def hold(run_dir: Path, ready, release) -> None:
    """Keep a run directory locked until told to let go."""
    with RunDirectory(run_dir):
        ready.set()
        release.wait()


def train(run_dir: Path, started=None, pause: float = 0.0) -> None:
    """Train to the end, pausing before every batch; exit with 3 if interrupted on request."""
    from filtercov.lab.training import fit

    torch.set_num_threads(1)

    class Announcing(ToyBatches):
        def epoch(self, epoch, start_batch=0):
            if started is not None:
                started.set()
            for batch in super().epoch(epoch, start_batch):
                time.sleep(pause)
                yield batch

    train, test = Announcing(batches=8), ToyBatches(seed=1)
    try:
        fit(toy_model(), train, test, CONFIG, run_dir, recovery_interval=INTERVAL, log_interval=2, watch_interval=5)
    except TrainingInterrupted:
        raise SystemExit(3) from None


def train_until(run_dir: Path, call: int, after: bool) -> None:
    """Train, and die by SIGKILL at the n-th system call that a checkpoint or metric depends on, before or after it."""
    remaining = call

    def dying(function):
        def wrapped(*args, **kwargs):
            nonlocal remaining
            remaining -= 1
            if remaining == 0 and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            value = function(*args, **kwargs)
            if remaining == 0 and after:
                os.kill(os.getpid(), signal.SIGKILL)
            return value

        return wrapped

    for name in ("fsync", "replace", "write", "ftruncate", "open", "unlink"):
        setattr(os, name, dying(getattr(os, name)))
    train(run_dir)
    if remaining > 0:
        raise SystemExit(4)  # the run has fewer calls than that
