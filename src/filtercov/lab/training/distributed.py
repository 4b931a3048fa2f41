"""Training in several processes: torchrun starts them, DistributedDataParallel averages their gradients.

Every process enters `process_group()`. The run directory, which all must see, is written by rank 0 alone. An error in
one process ends all of them.
"""

import gc
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from filtercov.errors import ConfigError, FiltercovError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process's place among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def main(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def from_main(self, action: Callable[[], T]) -> T:
        """Run `action` on rank 0 and return its result in every process."""
        if self.size == 1:
            return action()
        result = [action() if self.main else None]
        dist.broadcast_object_list(result, src=0)
        return result[0]  # type: ignore[return-value]

    def align_(self, model: nn.Module) -> None:
        """Give every process rank 0's buffers: BatchNorm's running statistics differ between them."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in training, which averages gradients over all processes."""
        if self.size == 1:
            return model
        device = next(model.parameters()).device
        return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)


def current_world() -> World:
    """This process's place in its process group, if it is in one."""
    joined = dist.is_available() and dist.is_initialized()
    return World(dist.get_rank(), dist.get_world_size()) if joined else World()


@contextmanager
def process_group(device: str = "auto") -> Iterator[tuple[World, torch.device]]:
    """Join the process group that torchrun describes, if any; yield our place in it and the device to train on.

    An error that leaves the block in one process ends all of them, the others with a sentence that repeats it.
    """
    chosen = usable_device(device)
    if os.environ.get("WORLD_SIZE", "1") == "1" or dist.is_initialized():
        yield current_world(), chosen
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    world = current_world()
    try:
        yield world, chosen
    except Exception as error:
        traceback.clear_frames(error.__traceback__)
        if cause := _error_elsewhere(error):
            raise cause from error
        raise
    finally:
        # DistributedDataParallel must not outlive the group: freeing it would then wait for the group's threads, which
        # wait for the interpreter that it holds.
        gc.collect()
        dist.destroy_process_group()


def usable_device(name: str) -> torch.device:
    """The device of this name, `auto` being a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if name == "cuda" else torch.device(name)
        torch.zeros(1, device=device).item()  # fails on devices without numbers, such as meta
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"device {name!r} cannot be used here ({reason}); choose cpu or auto") from None
    return device


def _error_elsewhere(error: Exception) -> FiltercovError | None:
    """The first error of any process, unless that is `error`, this one's.

    A process that fails puts its error into the group's store before it leaves. The others wait for it inside an
    exchange of tensors, which its end breaks off with an error that says nothing; this one takes its place.
    """
    mine = f"{type(error).__name__}: {error}"
    try:
        first = dist.distributed_c10d._get_default_store().compare_set("filtercov/error", "", mine).decode()
    except RuntimeError:  # the store ended with the process that kept it
        return None
    return None if first == mine else FiltercovError(f"another process failed ({first})")
