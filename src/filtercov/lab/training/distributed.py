"""One process or many: what training needs to know and do about the others.

Under `torchrun` every process enters `process_group()`; gradients are averaged by PyTorch's DistributedDataParallel,
and the run directory, which all must see, is written by rank 0 alone.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from filtercov.errors import ConfigError
from filtercov.lab.training.failures import FailTogether, portable

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process's place among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        """Return when every process has come here."""
        if self.size > 1:
            dist.barrier()

    def align_(self, model: nn.Module) -> None:
        """Give every process rank 0's buffers: BatchNorm's running statistics differ between them."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the module to call in training, which averages gradients over all processes."""
        if self.size == 1:
            return model
        device = next(model.parameters()).device
        return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)

    def agree(self, action: Callable[[], T]) -> T:
        """Run `action` on rank 0 and give its result, or its error, to every process."""
        if self.size == 1:
            return action()
        outcome: list[T | _Failed | None] = [_outcome(action) if self.main else None]
        dist.broadcast_object_list(outcome, src=0)
        if isinstance(outcome[0], _Failed):
            raise outcome[0].error
        return outcome[0]  # type: ignore[return-value]

    def together(self, action: Callable[[], T]) -> T:
        """Run `action` on every process; if it fails on some, all raise the error of the lowest rank of those."""
        if self.size == 1:
            return action()
        mine = _outcome(action)
        failed: list[_Failed | None] = [None] * self.size
        dist.all_gather_object(failed, mine if isinstance(mine, _Failed) else None)
        for outcome in failed:
            if outcome is not None:
                raise outcome.error
        assert not isinstance(mine, _Failed)
        return mine


@dataclass(frozen=True)
class _Failed:
    error: Exception


def _outcome(action: Callable[[], T]) -> T | _Failed:
    """Return what came of an action, ready for another process."""
    try:
        return action()
    except Exception as error:  # a defect too: the others would wait for ever
        return _Failed(portable(error))


def current_world() -> World:
    """Return this process's place in the process group it is in, if any.

    >>> current_world()
    World(rank=0, size=1)
    """
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    return World()


@contextmanager
def process_group(device: str = "auto") -> Iterator[tuple[World, torch.device]]:
    """Join the process group torchrun describes, if it started us; yield our place and the device to train on.

    An exception that leaves it in one process leaves it in all of them.
    """
    chosen = usable_device(device)
    if os.environ.get("WORLD_SIZE", "1") == "1" or dist.is_initialized():
        yield current_world(), chosen
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    try:
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    except ValueError as error:  # of the environment, which nobody but a launcher sets up whole
        raise ConfigError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']!r}, but there is no group of processes to join ({error}); start "
            "it with torchrun, or unset WORLD_SIZE"
        ) from error
    world = current_world()
    try:
        with FailTogether(dist.distributed_c10d._get_default_store(), world.size):
            yield world, chosen
    finally:
        dist.destroy_process_group()


def usable_device(name: str) -> torch.device:
    """Return the device of a name, `auto` being a GPU where there is one; what cannot be used here is refused.

    >>> usable_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if name == "cuda" else torch.device(name)
        torch.zeros(1, device=device).item()  # which a device that holds no numbers, as meta, cannot
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"device {name!r} cannot be used here ({reason}); choose cpu, or auto for what is") from None
    return device
