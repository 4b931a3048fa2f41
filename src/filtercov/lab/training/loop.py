"""The training loop: steps, epochs, and the places between them where a run may stop and continue."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name PyTorch's users know

from filtercov.errors import ConfigError, DivergedError, TrainingInterrupted
from filtercov.lab.training.batches import Batches, autocast, count_correct, evaluate
from filtercov.lab.training.config import TrainConfig
from filtercov.lab.training.distributed import World
from filtercov.lab.training.metrics import MetricsLog, finite_or_none
from filtercov.lab.training.optimizer import learning_rate
from filtercov.lab.training.progress import Progress, Snapshot
from filtercov.lab.training.rundir import RunDirectory
from filtercov.lab.training.signals import StopRequest
from filtercov.lab.training.state import Totals, TrainingState
from filtercov.lab.training.state_file import save_checkpoint
from filtercov.statistics.watch import Watch


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return the seed of everything random inside one step's forward pass on one process."""
    return int(np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)[0])


@dataclass
class Loop:
    """Trains `state` to the end of its configuration, leaving checkpoints and metrics behind."""

    state: TrainingState
    train_batches: Batches
    test_batches: Batches
    config: TrainConfig
    run_dir: RunDirectory
    metrics: MetricsLog | None  # only the process that writes has one
    world: World
    stop: StopRequest
    progress: Progress
    log_interval: int
    recovery_interval: int | None
    on_checkpoint: Callable[[Path], None] | None = None
    watch: Watch | None = None

    def __post_init__(self) -> None:
        self._device = next(self.state.model.parameters()).device
        self._started = time.monotonic() - self.state.seconds
        self._session_start = (time.monotonic(), self.step)
        self._weights_sha256: dict[int, str] = {}  # by the step they are of; only the last is kept
        self._rate: float | None = None  # training images per second in this epoch, as far as it was trained here
        self._module = self.world.wrap(self.state.model)

    @property
    def steps(self) -> int:
        """How many steps the whole run has."""
        return self.config.epochs * len(self.train_batches)

    @property
    def step(self) -> int:
        """How many of them are done."""
        return self.state.epoch * len(self.train_batches) + self.state.batch

    def run(self) -> None:
        """Train until the configured number of epochs is done."""
        while self.state.epoch < self.config.epochs:
            self._train_epoch()
            self._finish_epoch()
            self._checkpoint()
        if self.watch:
            self.watch.close()

    def _train_epoch(self) -> None:
        state, total = self.state, len(self.train_batches)
        if state.batch == total:  # stopped during the evaluation that follows
            return
        self._module.train()
        epoch_start, images_before = time.monotonic(), state.totals.images
        window = self._new_window()
        for images, targets in self.train_batches.epoch(state.epoch, state.batch):
            window += self._train_step(images, targets)
            state.batch += 1
            if self.watch:
                self.watch(self.step)
            if not self._due_for_a_look():
                continue
            loss = self._look(window)
            window = self._new_window()
            self._rate = (state.totals.images - images_before) / (time.monotonic() - epoch_start)
            self.progress.update(self._snapshot(loss))
            if self.recovery_interval and self.step % self.recovery_interval == 0 and state.batch < total:
                self._checkpoint()
        if state.batch != total:
            raise ConfigError(f"train_batches has length {total} but an epoch gave {state.batch} batches")

    def _train_step(self, images: Tensor, targets: Tensor) -> Tensor:
        """Do one step; return (summed loss, correct, images, 0) of this process's part of the batch."""
        state, config = self.state, self.config
        images, targets = images.to(self._device, non_blocking=True), targets.to(self._device, non_blocking=True)
        rate = learning_rate(config, (self.step + 1) / self.steps)
        for group in state.optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]
        torch.manual_seed(step_seed(config.seed, self.step, self.world.rank))
        with autocast(self._device, config.amp):
            logits = self._logits(images)
            loss = F.cross_entropy(logits.float(), targets, label_smoothing=config.smoothing)
        state.optimizer.zero_grad(set_to_none=True)
        state.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if config.clip_grad is not None:
            state.scaler.unscale_(state.optimizer)
            nn.utils.clip_grad_norm_(state.model.parameters(), config.clip_grad)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        if state.ema:
            state.ema.update_(state.model)
        count = torch.tensor(float(len(images)), device=self._device)
        return torch.stack([loss.detach() * count, count_correct(logits.detach(), targets), count, count * 0.0])

    def _logits(self, images: Tensor) -> Tensor:
        try:
            logits: Tensor = self._module(images)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise ConfigError(
                f"the model's batch normalisation needs several values of each channel, and a step with {len(images)} "
                "image has one; choose a larger batch size or larger images"
            ) from error
        return logits

    def _new_window(self) -> Tensor:
        kind = torch.float64 if self._device.type != "mps" else torch.float32
        return torch.zeros(4, dtype=kind, device=self._device)

    def _due_for_a_look(self) -> bool:
        """Whether to wait for the device: always on a CPU, where it costs nothing, seldom on a GPU."""
        return (
            self._device.type == "cpu"
            or self.step % self.log_interval == 0
            or self.state.batch == len(self.train_batches)
            or (self.recovery_interval is not None and self.step % self.recovery_interval == 0)
            or (self.stop.requested and self.world.size == 1)  # several processes must look at the same step
        )

    def _look(self, window: Tensor) -> float:
        """Gather the batches since the last look from all processes; stop if asked to or if the loss is not finite."""
        window[3] = float(self.stop.requested)
        loss, correct, images, stopped = self.world.sum_(window).tolist()
        mean = float(loss / images)
        if not math.isfinite(mean):
            raise self._diverged(f"the loss became {mean}")
        for totals in (self.state.totals, self.state.interval):
            totals.add(loss, correct, images)
        if self.step % self.log_interval == 0:
            logged = self.state.interval.mean_loss
            if self.metrics:
                self.metrics.append({"event": "step", "step": self.step, "loss": logged, "lr": self._lr()})
            self.state.interval = Totals()
        if stopped:
            self._stop_here()
        return mean

    def _finish_epoch(self) -> None:
        """Evaluate, record the epoch and move to the next."""
        state, world, amp = self.state, self.world, self.config.amp
        world.align_(state.model)
        test = evaluate(state.model, self.test_batches, world=world, stop=self.stop, amp=amp)
        average = None
        if state.ema and test:
            world.align_(state.ema.model)
            average = evaluate(state.ema.model, self.test_batches, world=world, stop=self.stop, amp=amp)
        if test is None or (state.ema and average is None):
            self._stop_here()
            return
        record = {
            "event": "epoch",
            "epoch": state.epoch + 1,
            "step": self.step,
            "lr": self._lr(),
            "train_loss": state.totals.mean_loss,
            "train_accuracy": state.totals.accuracy,
            "test_loss": finite_or_none(test.mean_loss),
            "test_accuracy": test.accuracy,
            **({"ema_test_accuracy": average.accuracy} if average else {}),
        }
        self.progress.update(self._snapshot(state.totals.mean_loss, test.accuracy))
        if self.metrics:
            timing = {"seconds": time.monotonic() - self._started, "images_per_second": self._rate}
            self.metrics.append({**record, **timing})
        state.last_epoch = record
        state.epoch, state.batch, state.totals = state.epoch + 1, 0, Totals()

    def _checkpoint(self) -> None:
        """Save the state; it must be finite, so that the last checkpoint always is."""
        state = self.state
        state.seconds = time.monotonic() - self._started
        self.world.together(self._refuse_what_is_not_finite)
        self.world.agree(self._save)

    def _refuse_what_is_not_finite(self) -> None:
        if not self.state.finite():
            raise self._diverged("a weight or optimiser state became infinite or not a number")

    def _save(self) -> None:
        state, metrics = self.state, self.metrics
        assert metrics is not None  # this is the process that writes
        metrics.sync()
        save_checkpoint(self.run_dir.state, state.tensors(), {**state.values(), "metrics_size": metrics.size})
        self.save_weights()
        if self.on_checkpoint:
            self.on_checkpoint(self.run_dir.path)

    def save_weights(self) -> str:
        """Write the weights under the model's own names, for others to read, once per step; return their checksum."""
        state, place = self.state, {"epoch": self.state.epoch, "step": self.step}
        if self.step not in self._weights_sha256:
            if state.ema:
                save_checkpoint(self.run_dir.ema, state.ema.model.state_dict(), place)
            digest = save_checkpoint(self.run_dir.checkpoint, state.model.state_dict(), place)
            self._weights_sha256 = {self.step: digest}
        return self._weights_sha256[self.step]

    def _stop_here(self) -> None:
        self._checkpoint()
        self.world.wait()  # a launcher ends all processes as soon as one is gone, the one that writes included
        raise TrainingInterrupted(
            f"stopped on request after step {self.step} of {self.steps}; a checkpoint is in {self.run_dir.path}, run "
            "the same command again to continue"
        )

    def _diverged(self, what: str) -> DivergedError:
        return DivergedError(
            f"{what} by step {self.step} of {self.steps}; the last finite checkpoint, if one was due, is kept in "
            f"{self.run_dir.path}; try a lower lr or clip_grad in another run directory"
        )

    def _lr(self) -> float:
        return learning_rate(self.config, self.step / self.steps)

    def _snapshot(self, loss: float, test_accuracy: float | None = None) -> Snapshot:
        since, first = self._session_start
        per_step = (time.monotonic() - since) / max(self.step - first, 1)
        return Snapshot(
            step=self.step,
            steps=self.steps,
            epoch=self.state.epoch + 1,
            epochs=self.config.epochs,
            loss=loss,
            accuracy=self.state.totals.accuracy,
            images_per_second=self._rate,
            seconds_left=per_step * (self.steps - self.step),
            test_accuracy=test_accuracy,
        )
