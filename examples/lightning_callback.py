"""Callbacks for Lightning: draw a module's depthwise filters before training, and watch them while it trains.

Run `python examples/lightning_callback.py`; it needs `pip install filtercov lightning`.
"""

from __future__ import annotations

import argparse
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import filtercov


class InitialiseFilters(lightning.Callback):
    """Fill the depthwise filters of a module when fitting is set up, and freeze those it filled.

    That is before the optimiser is made, so `configure_optimizers` sees what is frozen, and before a checkpoint is
    restored, whose filters therefore stay. Every process draws the same filters, from `seed`.
    """

    def __init__(self, source: Any = "imagenet-thawed", *, seed: int = 0, freeze: bool = False) -> None:
        self.source, self.seed, self.freeze = source, seed, freeze
        self.report: Any = None

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:  # noqa: ARG002
        """Draw once, however often the trainer fits."""
        if stage != "fit" or self.report is not None:
            return
        generator = torch.Generator().manual_seed(self.seed)
        self.report = filtercov.init_(pl_module, self.source, generator=generator)
        if self.freeze:
            filtercov.freeze_(pl_module, self.report)


class WatchFilters(lightning.Callback):
    """Keep what becomes of a module's depthwise filters in a directory, which `Watched.load(path)` reads.

    `options` are those of `filtercov.watch`. A run that Lightning continues from a checkpoint continues it.
    """

    def __init__(self, path: str, **options: Any) -> None:
        self.path, self.options = path, options
        self.watch: Any = None

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Begin, or continue, when a checkpoint has been restored."""
        self.watch = filtercov.watch(pl_module, self.path, step=trainer.global_step, **self.options)

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        """Look, if the step is due; batches that only add to the gradient are no steps."""
        self.watch(trainer.global_step)

    def on_train_end(self, *_: Any) -> None:
        """Look at what training ended with; when it failed, this is not called."""
        self.watch.close()


class Classifier(lightning.LightningModule):
    """Three depthwise layers and a linear one."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        blocks = [
            nn.Sequential(
                nn.Conv2d(width, width, 7, padding=3, groups=width),
                nn.BatchNorm2d(width),
                nn.Conv2d(width, width, 1),
                nn.GELU(),
            )
            for _ in range(3)
        ]
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 2, 2), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)
        )

    def training_step(self, batch: tuple[Tensor, Tensor], _batch_idx: int) -> Tensor:
        """Return the loss of a batch of images and labels."""
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimiser of what is to be trained."""
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=0.01)


def fit(
    module: lightning.LightningModule,
    *callbacks: lightning.Callback,
    steps: int,
    directory: str,
    resume: str | None = None,
) -> lightning.Trainer:
    """Train on random images for a few steps, from a checkpoint if one is given."""
    torch.manual_seed(0)
    images = TensorDataset(torch.randn(64, 3, 16, 16), torch.arange(64) % 10)
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        callbacks=list(callbacks),
        default_root_dir=directory,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(images, batch_size=16), ckpt_path=resume)
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    callback = InitialiseFilters("imagenet-frozen", freeze=True)
    watch = WatchFilters("filters.watched", every=2)
    fit(Classifier(), callback, watch, steps=options.steps, directory=".")
    print(callback.report)
    print(filtercov.Watched.load("filters.watched"))
