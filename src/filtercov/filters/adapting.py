"""Trained filters for layers of another size: enlarged by interpolation, or a part of a larger layer's.

Two ways that others carry weights over, for depthwise filters. MedNeXt's UpKern (Roy et al., MICCAI 2023, arXiv
2303.09975) gives a network the filters of one trained with smaller kernels, interpolated linearly along each axis.
Weight selection (Xu et al., ICLR 2024, arXiv 2311.18823) gives a small network evenly spaced weights of a larger one's
first layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from filtercov.covariance.forms import show_size
from filtercov.errors import ModelError

Shape = tuple[int, ...]  # of a depthwise weight: (channels, 1, *kernel_size)
_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def enlarged(weight: Tensor, shape: Shape) -> Tensor:
    """Return filters of a shape (channels, 1, *kernel_size) interpolated linearly from as many smaller ones.

    Pixels are cells whose values lie at their middle: pixel i of k' is read at (i + ½) k/k' - ½ of the k old ones, the
    outermost of which continue outwards. Values are not rescaled, so that a larger filter sums to more.

    >>> enlarged(torch.tensor([[[0.0, 3.0, 0.0]]]), (1, 1, 6)).tolist()
    [[[0.0, 0.75, 2.25, 2.25, 0.75, 0.0]]]
    """
    if (
        weight.ndim != len(shape)
        or len(weight) != shape[0]
        or any(old > new for old, new in zip(weight.shape, shape, strict=True))
    ):
        raise ModelError(
            f"needed {shape[0]} filters of {show_size(shape[2:])} or smaller to enlarge, got {_shown(weight)}; "
            "statistics can be transferred to any width and to smaller filters"
        )
    return interpolate(weight, size=shape[2:], mode=_MODES[len(shape) - 2], align_corners=False)


def selected(weight: Tensor, shape: Shape) -> Tensor:
    """Return evenly spaced filters of a weight, as many as a shape has: filter ⌊i · there / wanted⌋ for the i-th.

    >>> selected(torch.arange(8.0).view(8, 1, 1, 1), (3, 1, 1, 1)).flatten().tolist()
    [0.0, 2.0, 5.0]
    """
    if weight.shape[1:] != shape[1:] or len(weight) < shape[0]:
        raise ModelError(
            f"needed at least {shape[0]} filters of {show_size(shape[2:])} to select from, got {_shown(weight)}; "
            "choose a wider network with filters of that size"
        )
    return weight[torch.arange(shape[0], device=weight.device) * len(weight) // shape[0]]


def first_of_each_stage(wanted: Sequence[int], there: Sequence[int]) -> list[int]:
    """Return which of the layers of a network to take for those of a smaller one: the first ones of each stage.

    Both are given by their numbers of channels; a stage is what follows one another with the same number.

    >>> first_of_each_stage([10, 20, 20], [48, 48, 96, 96, 96])
    [0, 2, 3]
    """
    ours, theirs = ([len(list(group)) for _, group in groupby(widths)] for widths in (wanted, there))
    if len(ours) != len(theirs) or any(few > many for few, many in zip(ours, theirs, strict=True)):
        raise ModelError(
            f"needed a network with stages of at least {_listed(ours)} depthwise layers to select from, got stages of "
            f"{_listed(theirs)}; choose a larger one of the same family"
        )
    starts = [sum(theirs[:stage]) for stage in range(len(theirs))]
    return [start + layer for start, count in zip(starts, ours, strict=True) for layer in range(count)]


def _shown(weight: Tensor) -> str:
    return f"{len(weight)} of {show_size(tuple(weight.shape[2:]))}"


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
