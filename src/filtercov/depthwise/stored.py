"""Where tensors lie in a file of PyTorch's: records that are checked before anything is allocated for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from filtercov.errors import CheckpointError

MOST_AXES = 16  # of a tensor; PyTorch's own limit is 64


@dataclass(frozen=True)
class Storage:
    """A run of numbers beside a pickle: `count` of them, from number `start` of the storage `key`."""

    key: str
    dtype: torch.dtype
    start: int
    count: int


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that its file describes: it lies within the numbers of its storage, if the file has as many."""

    storage: Storage
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    conjugated: bool = False
    negated: bool = False

    def is_floating_point(self) -> bool:
        """Tell whether the numbers are floating-point, as `torch.Tensor` does."""
        return self.dtype.is_floating_point

    def numel(self) -> int:
        """Return how many numbers the tensor shows."""
        return math.prod(self.shape)

    @property
    def expanded(self) -> bool:
        """Whether it shows more numbers than are stored for it, which strides of zero can."""
        return self.numel() > 0 and self.numel() > self.end - self.first

    @property
    def first(self) -> int:
        """The position of its first number in the storage."""
        return self.storage.start + self.offset

    @property
    def end(self) -> int:
        """One more than the position of its last number in the storage."""
        return self.first + sum((side - 1) * step for side, step in zip(self.shape, self.stride, strict=True)) + 1


def stored_tensor(storage: Storage, dtype: torch.dtype, layout: Sequence[Any], marks: Any = None) -> StoredTensor:
    """Return the record of a tensor with the layout (offset, shape, stride); refuse one beyond its storage.

    In `marks` PyTorch says by "conj" and "neg" that the tensor shows its numbers conjugated or negated.
    """
    match layout:
        case (int(offset), tuple(shape), tuple(stride), *_) if len(shape) == len(stride) <= MOST_AXES:
            if all(type(number) is int and 0 <= number < 2**62 for number in (offset, *shape, *stride)):
                conjugated, negated = (isinstance(marks, dict) and marks.get(mark) is True for mark in ("conj", "neg"))
                tensor = StoredTensor(storage, dtype, offset, shape, stride, conjugated, negated)
                room = storage.count * storage.dtype.itemsize // dtype.itemsize
                if 0 in shape or tensor.end - storage.start <= room:
                    return tensor
                sides = "x".join(map(str, shape))
                raise CheckpointError(f"is damaged: a {sides} tensor in it reaches beyond the {room} numbers it has")
    raise CheckpointError("is damaged: the layout of a tensor in it cannot be read; get it again")
