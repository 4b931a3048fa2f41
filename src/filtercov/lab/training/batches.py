"""The batches that training asks for, and the evaluation of a model on them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name PyTorch's users know

from filtercov.errors import DataError
from filtercov.lab.training.distributed import World
from filtercov.lab.training.progress import StopRequest
from filtercov.layers.running import evaluating


class Batches(Protocol):
    """Batches of (images, targets) that can be produced again from any position.

    Targets are class indices (N,) or class weights (N, classes). With several processes each gets its own part of
    every batch; parts may be empty in evaluation.
    """

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of an epoch from `start_batch` on, the same ones at every call."""

    def __len__(self) -> int:
        """Batches in an epoch."""


@dataclass(frozen=True)
class Totals:
    """Sums over images."""

    loss: float = 0.0
    correct: float = 0.0
    images: float = 0.0

    def __add__(self, more: "Totals") -> "Totals":
        return Totals(self.loss + more.loss, self.correct + more.correct, self.images + more.images)

    @property
    def mean_loss(self) -> float:
        """Mean loss per image."""
        return self._each(self.loss)

    @property
    def accuracy(self) -> float:
        """Share of images classified correctly, in percent."""
        return self._each(100.0 * self.correct)

    def _each(self, total: float) -> float:
        if not self.images:
            raise DataError("needed batches with at least one image in all, got none; add images or choose others")
        return total / self.images


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Batches,
    *,
    world: World | None = None,
    stop: StopRequest | None = None,
    amp: str = "none",
) -> Totals | None:
    """Return the summed loss and correct answers over all processes, or None if a stop was requested meanwhile."""
    device = next(model.parameters()).device
    sums = new_sums(device)
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
            sums += tally(F.cross_entropy(logits.float(), targets, reduction="sum"), logits, targets)
    loss, correct, seen, stopped = (world or World()).sum_(sums).tolist()
    return None if stopped else Totals(loss, correct, seen)


def new_sums(device: torch.device) -> Tensor:
    """Zeros to sum up (loss, correct, images, requests to stop), of all processes at once."""
    return torch.zeros(4, dtype=torch.float64 if device.type != "mps" else torch.float32, device=device)


def tally(loss: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
    """What a batch adds to such sums; right is a row whose largest logit is at the (heaviest) target class.

    >>> tally(torch.tensor(3.5), torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([1, 1]))
    tensor([3.5000, 1.0000, 2.0000, 0.0000])
    """
    classes = targets if targets.dim() == 1 else targets.argmax(dim=1)
    correct = (logits.argmax(dim=1) == classes).sum()
    return torch.stack([loss, correct, loss.new_full((), len(logits)), loss.new_zeros(())])


def autocast(device: torch.device, amp: str) -> torch.autocast:
    """The context for a forward pass at the precision `amp` names."""
    dtype = torch.float16 if amp == "float16" else torch.bfloat16
    return torch.autocast(device.type, dtype=dtype, enabled=amp != "none")
