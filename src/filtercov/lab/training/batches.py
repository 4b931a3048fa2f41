"""What training asks of data, and the pass over it that only measures."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name PyTorch's users know

from filtercov.errors import DataError
from filtercov.lab.training.distributed import World
from filtercov.lab.training.signals import StopRequest
from filtercov.lab.training.state import Totals
from filtercov.layers.running import evaluating
from filtercov.printable import counted


class Batches(Protocol):
    """Batches of (images, targets) that can be produced again from any position.

    Targets are class indices (N,) or class weights (N, classes). With several processes each gets its own part of
    every batch; parts may be empty in evaluation.
    """

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch from `start_batch` on, the same ones however often it is asked."""
        ...

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        ...


def count_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """Return how many rows have their largest logit at the (heaviest) target class.

    >>> count_correct(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([1, 1])).item()
    1
    """
    classes = targets if targets.dim() == 1 else targets.argmax(dim=1)
    return (logits.argmax(dim=1) == classes).sum()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Batches,
    *,
    world: World | None = None,
    stop: StopRequest | None = None,
    amp: str = "none",
) -> Totals | None:
    """Return the summed loss and correct answers of all processes, or None if a stop was requested meanwhile.

    An accuracy of no images would be a number that means nothing: `DataError`.
    """
    device = next(model.parameters()).device
    sums = torch.zeros(4, dtype=torch.float64 if device.type != "mps" else torch.float32, device=device)
    with evaluating(model):
        for images, targets in batches.epoch(0):
            if stop and stop.requested:
                sums[3] = 1.0
                break
            if len(images) == 0:
                continue
            images, targets = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            with autocast(device, amp):
                logits = model(images)
            sums[0] += F.cross_entropy(logits.float(), targets, reduction="sum")
            sums[1] += count_correct(logits, targets)
            sums[2] += len(images)
    loss, correct, images_seen, stopped = (world or World()).sum_(sums).tolist()
    if stopped:
        return None
    if not images_seen:
        raise DataError(
            f"needed an image to measure accuracy with, got none in {counted(len(batches), 'batch', 'batches')}; where "
            "they are a folder's, `filtercov scan` says why they cannot be read"
        )
    return Totals(loss, correct, images_seen)


def autocast(device: torch.device, amp: str) -> torch.autocast:
    """Return the context in which a forward pass runs at the precision `amp` names."""
    dtype = torch.float16 if amp == "float16" else torch.bfloat16
    return torch.autocast(device.type, dtype=dtype, enabled=amp != "none")
