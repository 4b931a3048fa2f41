"""`fit`: train any module on any batches, in a directory, however often it is interrupted."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name PyTorch's users know

from filtercov.errors import ConfigError, DivergedError, TrainingInterrupted
from filtercov.files import flush
from filtercov.lab.training.batches import Batches, Totals, autocast, evaluate, new_sums, tally
from filtercov.lab.training.config import FORMAT, TrainConfig, learning_rate, whole
from filtercov.lab.training.distributed import World, current_world
from filtercov.lab.training.progress import Progress, Snapshot, StopRequest, duration
from filtercov.lab.training.rundir import FitResult, Record, RunDirectory, storing, write_json
from filtercov.lab.training.state import TrainingState, load_checkpoint, load_weights_, save_checkpoint
from filtercov.statistics.watch import Watch, watch

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
    progress: Progress | None = None,
    log_interval: int = 50,
    recovery_interval: int | None = None,
    watch_interval: int | None = None,
) -> FitResult:
    """Train `model` in place and return the final numbers; an interrupted run continues, a finished one is loaded.

    `identity` is whatever else decides the outcome (model, data, initialisation), ready for JSON: a directory belongs
    to one configuration and identity. A checkpoint is written after every epoch and, if given, every
    `recovery_interval` steps. `on_finish(model, run_dir)` runs before the run counts as done; the result keeps what it
    returns as `extra`. Every `watch_interval` steps, if given, the depthwise filters are measured for
    `filters.watched`, as `filtercov.watch` does.

    Raises `TrainingInterrupted` after SIGTERM or Ctrl-C, `DivergedError` when a number is no longer finite,
    `RunError` when the directory is busy, full, read-only or another run's.
    """
    world = current_world()
    if config.batch_size % world.size:
        raise ConfigError(f"batch_size {config.batch_size} does not divide among {world.size} processes")
    for name, interval in {"log": log_interval, "recovery": recovery_interval, "watch": watch_interval}.items():
        if interval is not None:
            whole(f"{name}_interval", interval, least=1)
    for batches in (train_batches, test_batches):
        if not len(batches):
            raise ConfigError("needed batches to train on and to test with, got a length of 0; choose a smaller batch")
    run, progress = RunDirectory(run_dir), progress or Progress()
    described = {"format": FORMAT, "train": config.to_dict(), **(identity or {})}
    with ExitStack() as stack:
        stack.callback(progress.close)
        done = world.from_main(lambda: _open(run, described, stack))
        run.check(described)  # in every process: all must have been given the same settings and files
        if done:
            load_weights_(model, load_checkpoint(run.checkpoint)[0])
            return run.read_result()
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        stack.enter_context(torch.random.fork_rng(devices))  # training seeds it at every step
        state = TrainingState(model, config, batches=len(train_batches))
        if run.state.exists():
            state.restore_(*load_checkpoint(run.state))
            progress.note(f"resuming at step {state.step} of {config.epochs * len(train_batches)}")
        if config.compile:
            model.compile()
        if world.main:
            run.truncate_metrics(state.metrics_size)
        stop = stack.enter_context(StopRequest(patient=world.size > 1))
        watching = watch(model, run.watched, every=watch_interval, step=state.step) if watch_interval else None
        loop = _Loop(state, train_batches, test_batches, config, run, world, stop, progress, watching)
        loop.train(log_interval, recovery_interval)
        result = world.from_main(lambda: loop.finish(on_finish))
    stop.pass_on()
    return result


def _open(run: RunDirectory, described: Mapping[str, Any], stack: ExitStack) -> bool:
    """Lock the directory, unless its run is finished, which needs no lock to read; return whether it is."""
    if not run.done:
        stack.enter_context(run)
        if not run.config.exists():
            write_json(run.config, described)
    if run.done:
        with suppress(OSError):  # the run may be on a read-only disk by now
            run.state.unlink(missing_ok=True)  # left by a process that was killed just before it did this
    return run.done


@dataclass
class _Loop:
    """Trains `state` to the end of its configuration, leaving checkpoints and metrics behind."""

    state: TrainingState
    train_batches: Batches
    test_batches: Batches
    config: TrainConfig
    run: RunDirectory
    world: World
    stop: StopRequest
    progress: Progress
    watch: Watch | None

    def __post_init__(self) -> None:
        self.steps = self.config.epochs * len(self.train_batches)
        self._device = next(self.state.model.parameters()).device
        self._module = self.world.wrap(self.state.model)
        self._began = time.monotonic() - self.state.seconds  # if the run had never stopped
        self._images_per_second: float | None = None  # in this epoch, as far as it was trained here

    def train(self, log_interval: int, recovery_interval: int | None) -> None:
        """Train until the configured number of epochs is done."""
        while self.state.epoch < self.config.epochs:
            if self.state.batch < len(self.train_batches):  # else it stopped during the evaluation
                self._train_epoch(log_interval, recovery_interval)
            self._finish_epoch()
            self._checkpoint()
        if self.watch:
            self.watch.close()

    def _train_epoch(self, log_interval: int, recovery_interval: int | None) -> None:
        state, total = self.state, len(self.train_batches)
        self._module.train()
        epoch_start, images_before = time.monotonic(), state.totals.images
        sums = new_sums(self._device)
        for images, targets in self.train_batches.epoch(state.epoch, state.batch):
            sums += self._train_step(images, targets)
            state.batch += 1
            if self.watch:
                self.watch(state.step)
            log = state.step % log_interval == 0
            save = recovery_interval is not None and state.step % recovery_interval == 0 and state.batch < total
            if not (self._device.type == "cpu" or log or save or state.batch == total):
                continue  # looking costs nothing on a CPU and waits for a GPU
            loss = self._look(sums, log=log)
            sums = new_sums(self._device)
            self._images_per_second = (state.totals.images - images_before) / (time.monotonic() - epoch_start)
            self._show(loss)
            if save:
                self._checkpoint()
        if state.batch != total:
            raise ConfigError(f"train_batches has length {total} but an epoch gave {state.batch} batches")

    def _train_step(self, images: Tensor, targets: Tensor) -> Tensor:
        """Do one step; return (summed loss, correct, images, 0) of this process's part of the batch."""
        state, config = self.state, self.config
        images, targets = images.to(self._device, non_blocking=True), targets.to(self._device, non_blocking=True)
        rate = learning_rate(config, (state.step + 1) / self.steps)
        for group in state.optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]
        # All that is random in the forward pass depends on this, so that no random state has to be kept.
        (seed,) = np.random.SeedSequence((config.seed, state.step, self.world.rank)).generate_state(1, np.uint64)
        torch.manual_seed(int(seed))
        with autocast(self._device, config.amp):
            logits = self._module(images)
            loss = F.cross_entropy(logits.float(), targets, label_smoothing=config.smoothing)
        state.optimizer.zero_grad(set_to_none=True)
        state.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if config.clip_grad is not None:
            state.scaler.unscale_(state.optimizer)
            nn.utils.clip_grad_norm_(state.model.parameters(), config.clip_grad)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.average_()
        return tally(loss.detach() * len(images), logits.detach(), targets)

    def _look(self, sums: Tensor, *, log: bool) -> float:
        """Return the mean loss since the last look; stop if asked to, or if it is not finite."""
        state = self.state
        sums[3] = float(self.stop.requested)
        loss, correct, images, stopped = self.world.sum_(sums).tolist()
        new = Totals(loss, correct, images)
        mean = new.mean_loss
        if not math.isfinite(mean):
            raise self._diverged(f"the loss became {mean}")
        state.totals, state.interval = state.totals + new, state.interval + new
        if log:
            self._record({"event": "step", "step": state.step, "loss": state.interval.mean_loss, "lr": self._lr()})
            state.interval = Totals()
        if stopped:
            self._stop_here()
        return mean

    def _finish_epoch(self) -> None:
        """Evaluate, record the epoch and move to the next."""
        state, totals = self.state, self.state.totals
        test = self._evaluate(state.model)
        ema = self._evaluate(state.ema) if state.ema is not None else None
        record = {
            "event": "epoch",
            "epoch": state.epoch + 1,
            "step": state.step,
            "lr": self._lr(),
            "train_loss": totals.mean_loss,
            "train_accuracy": totals.accuracy,
            "test_loss": test.mean_loss if math.isfinite(test.mean_loss) else None,
            "test_accuracy": test.accuracy,
            **({"ema_test_accuracy": ema.accuracy} if ema else {}),
        }
        self._show(totals.mean_loss, test.accuracy)
        self._record({**record, "seconds": self._seconds(), "images_per_second": self._images_per_second})
        state.last_epoch = record
        state.epoch, state.batch, state.totals = state.epoch + 1, 0, Totals()

    def _evaluate(self, model: nn.Module) -> Totals:
        self.world.align_(model)
        totals = evaluate(model, self.test_batches, world=self.world, stop=self.stop, amp=self.config.amp)
        return totals if totals is not None else self._stop_here()

    def _checkpoint(self) -> None:
        """Save the state; it must be finite, so that the last checkpoint always is."""
        self.state.seconds = self._seconds()
        broken = torch.tensor(float(not self.state.finite()), device=self._device)
        if self.world.sum_(broken).item():
            raise self._diverged("a weight or optimiser state became infinite or not a number")
        self.world.from_main(self._save)

    def _save(self) -> None:
        """Write what continues the run, then the weights for others to read."""
        metrics = self.run.metrics
        with storing(metrics):
            flush(metrics)  # so that the checkpoint never refers to lines that were lost
            self.state.metrics_size = metrics.stat().st_size
        save_checkpoint(self.run.state, self.state.tensors(), self.state.values())
        self._save_weights()

    def _save_weights(self) -> str:
        """Write the weights under the model's own names; return their checksum."""
        state, place = self.state, {"epoch": self.state.epoch, "step": self.state.step}
        if state.ema is not None:
            save_checkpoint(self.run.ema, state.ema.state_dict(), place)
        return save_checkpoint(self.run.checkpoint, state.model.state_dict(), place)

    def finish(self, on_finish: OnFinish | None) -> FitResult:
        """Write the result of a run whose last epoch is done."""
        state = self.state
        result = FitResult(
            epochs=self.config.epochs,
            steps=self.steps,
            **{name: value for name, value in state.last_epoch.items() if name.endswith(("_loss", "_accuracy"))},
            seconds=state.seconds,
            weights_sha256=self._save_weights(),  # once more: a kill after the last state may have prevented it
            extra=dict(on_finish(state.model, self.run.path)) if on_finish else {},
        )
        write_json(self.run.result, asdict(result))
        self.run.state.unlink(missing_ok=True)
        return result

    def _record(self, record: Record) -> None:
        if self.world.main:
            self.run.append_metrics(record)

    def _show(self, loss: float, test_accuracy: float | None = None) -> None:
        step, accuracy, speed = self.state.step, self.state.totals.accuracy, self._images_per_second
        line = f"epoch {self.state.epoch + 1}/{self.config.epochs}  loss {loss:.4f}  train {accuracy:5.2f} %"
        line += "" if test_accuracy is None else f"  eval {test_accuracy:5.2f} %"
        line += "" if speed is None else f"  {speed:,.0f} images/s"
        line += f"  {duration(self._seconds() / step * (self.steps - step))} left"
        self.progress.update(Snapshot(step, self.steps, line, test_accuracy))

    def _stop_here(self) -> NoReturn:
        self._checkpoint()
        where = f"after step {self.state.step} of {self.steps}, with a checkpoint in {self.run.path}"
        raise TrainingInterrupted(f"stopped on request {where}; run the same command again to continue")

    def _diverged(self, what: str) -> DivergedError:
        kept = f"the last finite checkpoint, if one was due, is in {self.run.path}"
        advice = "try a lower lr or clip_grad in another run directory"
        return DivergedError(f"{what} by step {self.state.step} of {self.steps}; {kept}; {advice}")

    def _lr(self) -> float:
        return learning_rate(self.config, self.state.step / self.steps)

    def _seconds(self) -> float:
        return time.monotonic() - self._began
