"""timm's parts, put together as its training script does, from the checkpoint that `filtercov init` writes.

    filtercov init convnext_atto --num-classes 10 --preset imagenet-thawed --out start.safetensors
    python examples/timm_training.py DATA --model convnext_atto --num-classes 10 --initial-checkpoint start.safetensors

DATA has train/CLASS/*.png. That script itself, train.py, is in timm's repository and not in its package; flags here
have its names. It needs `pip install '.[lab,timm]'`.
"""

from __future__ import annotations

import argparse
import logging

import torch
from timm.data import create_dataset, create_loader, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.models import create_model
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from torch import nn


def train(data_dir: str, *, model: str, initial_checkpoint: str, num_classes: int, epochs: int, size: int) -> nn.Module:
    """Return the model after training from the checkpoint; the loss of every epoch is logged."""
    torch.manual_seed(42)
    network = create_model(model, num_classes=num_classes, checkpoint_path=initial_checkpoint)
    config = resolve_data_config({"input_size": (3, size, size)}, model=network)
    dataset = create_dataset("", root=data_dir, split="train", is_training=True)
    loader = create_loader(
        dataset,
        input_size=config["input_size"],
        batch_size=16,
        is_training=True,
        mean=config["mean"],
        std=config["std"],
        num_workers=0,
        persistent_workers=False,
        use_prefetcher=False,
        device=torch.device("cpu"),
    )
    optimizer = create_optimizer_v2(network, opt="adamw", lr=1e-3, weight_decay=0.05)
    scheduler, epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=epochs, warmup_epochs=0)
    loss_fn = LabelSmoothingCrossEntropy(0.1)
    for epoch in range(epochs):
        network.train()
        total = 0.0
        for images, labels in loader:
            loss = loss_fn(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step(epoch + 1)
        logging.info("epoch %d: loss %.3f", epoch + 1, total / len(loader))
    return network


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir")
    parser.add_argument("--model", required=True)
    parser.add_argument("--initial-checkpoint", required=True)
    parser.add_argument("--num-classes", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--size", type=int, default=64, help="pixels of a side")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    train(**vars(parser.parse_args()))
