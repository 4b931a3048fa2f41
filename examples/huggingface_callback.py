"""A callback for Hugging Face's Trainer that watches a model's depthwise filters while it trains.

Run `python examples/huggingface_callback.py`; it needs `pip install filtercov transformers accelerate`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn
from transformers import (
    ConvNextConfig,
    ConvNextForImageClassification,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

import filtercov


class WatchFilters(TrainerCallback):
    """Keep what becomes of a model's depthwise filters in a directory, which `Watched.load(path)` reads.

    `options` are those of `filtercov.watch`. A run that the trainer continues from a checkpoint continues it.
    """

    def __init__(self, path: str, **options: Any) -> None:
        self.path, self.options = path, options
        self.watch: Any = None

    def on_train_begin(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, *, model: nn.Module, **_: Any
    ) -> None:
        """Begin, or continue, when a checkpoint has been restored."""
        self.watch = filtercov.watch(model, self.path, step=state.global_step, **self.options)

    def on_optimizer_step(
        self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any
    ) -> None:
        """Look, if the step is due: the optimiser has made it, it is not counted yet."""
        self.watch(state.global_step + 1)

    def on_train_end(self, _args: TrainingArguments, _state: TrainerState, _control: TrainerControl, **_: Any) -> None:
        """Look at what training ended with; when it failed, this is not called."""
        self.watch.close()


def network() -> nn.Module:
    """Return a small ConvNeXt."""
    torch.manual_seed(0)
    sizes = {"num_stages": 2, "depths": [1, 2], "hidden_sizes": [16, 32]}
    return ConvNextForImageClassification(ConvNextConfig(image_size=32, patch_size=2, num_labels=10, **sizes))


def train(model: nn.Module, callback: TrainerCallback, *, steps: int, directory: str, resume: bool = False) -> None:
    """Train on random images for a few steps, from the last checkpoint if asked."""
    generator = torch.Generator().manual_seed(0)
    images = [{"pixel_values": torch.randn(3, 32, 32, generator=generator), "labels": i % 10} for i in range(64)]
    settings = TrainingArguments(
        output_dir=directory,
        max_steps=steps,
        per_device_train_batch_size=16,
        save_steps=3,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=settings, train_dataset=images, callbacks=[callback])
    trainer.train(resume_from_checkpoint=resume)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    train(network(), WatchFilters("filters.watched", every=2), steps=options.steps, directory="trained")
    print(filtercov.Watched.load("filters.watched"))
