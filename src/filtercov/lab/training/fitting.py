"""`fit`: train any module on any batches, in a directory, however often it is interrupted."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from filtercov.errors import ConfigError
from filtercov.lab.training.batches import Batches
from filtercov.lab.training.config import FORMAT, TrainConfig
from filtercov.lab.training.distributed import World, current_world
from filtercov.lab.training.loop import Loop
from filtercov.lab.training.metrics import MetricsLog
from filtercov.lab.training.progress import Progress, Silent
from filtercov.lab.training.result import FitResult, read_result
from filtercov.lab.training.rundir import RunDirectory, differences
from filtercov.lab.training.signals import StopRequest
from filtercov.lab.training.state import TrainingState, load_exactly_
from filtercov.lab.training.state_file import load_checkpoint
from filtercov.lab.training.validate import whole
from filtercov.statistics.watch import watch

OnCheckpoint = Callable[[Path], None]
OnFinish = Callable[[nn.Module, Path], Mapping[str, Any]]


def fit(
    model: nn.Module,
    train_batches: Batches,
    test_batches: Batches,
    config: TrainConfig,
    run_dir: Path | str,
    *,
    identity: Mapping[str, Any] | None = None,
    on_finish: OnFinish | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    progress: Progress | None = None,
    log_interval: int = 50,
    recovery_interval: int | None = None,
    tensorboard: bool = False,
    watch_interval: int | None = None,
) -> FitResult:
    """Train `model` in place and return the final numbers; a run that was interrupted continues, a finished one loads.

    `identity` is whatever else decides the outcome (model, data, initialisation), ready for JSON: a directory belongs
    to one configuration and identity. A checkpoint is written after every epoch and, if given, every
    `recovery_interval` steps; `on_checkpoint(run_dir)` runs when its files are complete. `on_finish(model, run_dir)`
    runs before the run counts as done; what it returns is kept in the result's `extra`. Every `watch_interval` steps,
    if given, the depthwise filters are measured for `filters.watched`, as `filtercov.watch` does.

    Raises `TrainingInterrupted` after SIGTERM or Ctrl-C, `DivergedError` when a number is no longer finite,
    `RunDirectoryError` when the directory is busy, full, read-only or another run's.
    """
    world = current_world()
    world.together(lambda: _check(model, train_batches, test_batches, config, world))
    whole("log_interval", log_interval, least=1, most=2**31)
    if recovery_interval is not None:
        whole("recovery_interval", recovery_interval, least=1, most=2**31)
    if watch_interval is not None:
        whole("watch_interval", watch_interval, least=1, most=2**31)
    run = RunDirectory(run_dir)
    described = {"format": FORMAT, "train": config.to_dict(), **(identity or {})}
    first = world.agree(lambda: described)
    world.together(lambda: _check_alike(described, first))
    with ExitStack() as stack:
        progress = progress or Silent()
        stack.callback(progress.close)
        if world.agree(lambda: _open(run, described, stack)):
            if watch_interval is not None and not run.watched.exists():
                progress.note("the run is finished and was not watched; to watch it, train in another run directory")
            return world.together(lambda: _load_finished(model, run))
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        stack.enter_context(torch.random.fork_rng(devices))  # training seeds it at every step
        state = TrainingState.create(model, config)
        metrics_size = world.together(lambda: _resume_(state, run))
        if config.compile:
            model.compile()
        loop = Loop(
            state=state,
            train_batches=train_batches,
            test_batches=test_batches,
            config=config,
            run_dir=run,
            metrics=None,
            world=world,
            stop=stack.enter_context(StopRequest(patient=world.size > 1)),
            progress=progress,
            log_interval=log_interval,
            recovery_interval=recovery_interval,
            on_checkpoint=on_checkpoint,
        )
        if world.main:
            board = run.tensorboard if tensorboard else None
            loop.metrics = stack.enter_context(
                MetricsLog(run.metrics, size=metrics_size, tensorboard=board, step=loop.step)
            )
        if loop.step:
            progress.note(f"resuming at step {loop.step} of {loop.steps}")
        if watch_interval is not None:
            loop.watch = watch(model, run.watched, every=watch_interval, step=loop.step)
        loop.run()
        return world.agree(lambda: _finish(loop, on_finish))


def _check(model: nn.Module, train_batches: Batches, test_batches: Batches, config: TrainConfig, world: World) -> None:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ConfigError("the model has no parameter to train; thaw some before calling fit")
    if len(train_batches) == 0 or len(test_batches) == 0:
        raise ConfigError(
            f"training needs at least one training and one test batch, got {len(train_batches)} and "
            f"{len(test_batches)}; use a smaller batch_size or more images"
        )
    if config.batch_size % world.size:
        raise ConfigError(f"batch_size {config.batch_size} does not divide among {world.size} processes")
    if config.amp == "float16" and trained[0].device.type == "cpu":
        raise ConfigError("amp='float16' needs a GPU; on a CPU use amp='bfloat16' or 'none'")


def _check_alike(mine: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Refuse to train with a process that was told, or reads, something else."""
    if mine != first:
        raise ConfigError(
            f"this process and rank 0 do not train the same run ({'; '.join(differences(first, mine))}); start all "
            "with the same command and the same files"
        )


def _open(run: RunDirectory, described: Mapping[str, Any], stack: ExitStack) -> bool:
    """Take the directory, unless its run is finished, which needs no lock to read; return whether it is."""
    if not run.done:
        stack.enter_context(run)
        run.claim(described)
    if run.done:
        run.check(described)
        with suppress(OSError):  # the run may be on a read-only disk by now
            run.state.unlink(missing_ok=True)  # left by a process that died between its last two steps
    return run.done


def _resume_(state: TrainingState, run: RunDirectory) -> int:
    """Continue from the run's last checkpoint, if any; return how much of its metrics the checkpoint had seen."""
    if not run.state.exists():
        return 0
    tensors, values = load_checkpoint(run.state)
    state.restore_(tensors, values)
    return int(values["metrics_size"])


def _load_finished(model: nn.Module, run: RunDirectory) -> FitResult:
    result = read_result(run.path)
    assert result is not None  # the caller saw that the run is done
    load_exactly_(model, load_checkpoint(run.checkpoint)[0])
    return result


def _finish(loop: Loop, on_finish: OnFinish | None) -> FitResult:
    """Turn a run whose last epoch is done into a finished run."""
    state, run, last = loop.state, loop.run_dir, loop.state.last_epoch
    result = FitResult(
        epochs=loop.config.epochs,
        steps=loop.steps,
        train_loss=last["train_loss"],
        train_accuracy=last["train_accuracy"],
        test_loss=last["test_loss"],
        test_accuracy=last["test_accuracy"],
        ema_test_accuracy=last.get("ema_test_accuracy"),
        seconds=state.seconds,
        weights_sha256=loop.save_weights(),
        extra=dict(on_finish(state.model, run.path)) if on_finish else {},
    )
    result.write(run.result)
    run.state.unlink(missing_ok=True)
    return result
