"""Trained filters for layers of another size: enlarged by interpolation, or selected from a larger layer.

Two ways in which others carry weights over. MedNeXt's UpKern (Roy et al., MICCAI 2023, arXiv 2303.09975) gives a
network the filters of one trained with smaller kernels, interpolated linearly along each axis. Weight selection (Xu et
al., ICLR 2024, arXiv 2311.18823) gives a small network evenly spaced weights of a larger one's first layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

import filtercov as fc
from filtercov.covariance.forms import show_size
from filtercov.errors import ModelError
from filtercov.filters import copy_weights_
from filtercov.layers.find import plain_values
from filtercov.layers.sample import drawing
from filtercov.plan import InitReport

Weights = Sequence[tuple[str, Tensor]]  # names and depthwise weights (channels, 1, *kernel_size) in forward order
Shape = tuple[int, ...]
_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def interpolate_weights_(model: nn.Module, weights: Weights) -> InitReport:
    """Give each layer of a model the filters at its relative depth, enlarged to its kernel size."""
    chosen = [math.floor(layer.depth * (len(weights) - 1) + 0.5) for layer in fc.depthwise_layers(model)]
    return _adapt_(model, [weights[i] for i in chosen], enlarge)


def select_weights_(model: nn.Module, weights: Weights) -> InitReport:
    """Give a model evenly spaced filters from the first layers of each stage of a larger one."""
    channels = [layer.channels for layer in fc.depthwise_layers(model)]
    chosen = first_of_each_stage(channels, [len(weight) for _, weight in weights])
    return _adapt_(model, [weights[i] for i in chosen], select)


def _adapt_(model: nn.Module, sources: Weights, adapt: Callable[[Tensor, Shape], Tensor]) -> InitReport:
    with drawing():
        adapted = [
            (name, adapt(plain_values(weight, name), tuple(layer.weight.shape)))
            for layer, (name, weight) in zip(fc.depthwise_layers(model), sources, strict=True)
        ]
    return copy_weights_(model, adapted)


def enlarge(weight: Tensor, shape: Shape) -> Tensor:
    """Interpolate filters linearly to a shape (channels, 1, *kernel_size) that is at least as large.

    Pixels are cells whose values lie at their middle: pixel i of k' is read at (i + ½) k/k' - ½ of the k old ones, the
    outermost of which continue outwards. Values are not rescaled, so a larger filter sums to more.

    >>> enlarge(torch.tensor([[[0.0, 3.0, 0.0]]]), (1, 1, 6)).tolist()
    [[[0.0, 0.75, 2.25, 2.25, 0.75, 0.0]]]
    """
    fits = weight.ndim == len(shape) and len(weight) == shape[0]
    if not fits or any(old > new for old, new in zip(weight.shape, shape, strict=True)):
        raise ModelError(
            f"needed {shape[0]} filters of {show_size(shape[2:])} or smaller to enlarge, got {_shown(weight)}; "
            "statistics can be transferred to any width and to smaller filters"
        )
    return interpolate(weight, size=shape[2:], mode=_MODES[len(shape) - 2], align_corners=False)


def select(weight: Tensor, shape: Shape) -> Tensor:
    """Select evenly spaced filters, as many as a shape has: filter ⌊i · there / wanted⌋ for the i-th.

    >>> select(torch.arange(8.0).view(8, 1, 1, 1), (3, 1, 1, 1)).flatten().tolist()
    [0.0, 2.0, 5.0]
    """
    if weight.shape[1:] != shape[1:] or len(weight) < shape[0]:
        raise ModelError(
            f"needed at least {shape[0]} filters of {show_size(shape[2:])} to select from, got {_shown(weight)}; "
            "choose a wider network with filters of that size"
        )
    return weight[torch.arange(shape[0], device=weight.device) * len(weight) // shape[0]]


def first_of_each_stage(wanted: Sequence[int], there: Sequence[int]) -> list[int]:
    """Choose the layers of a network for those of a smaller one: the first ones of each stage.

    Both are given by their numbers of channels; a stage is a run of layers with the same number.

    >>> first_of_each_stage([10, 20, 20], [48, 48, 96, 96, 96])
    [0, 2, 3]
    """
    ours, theirs = ([len(list(group)) for _, group in groupby(widths)] for widths in (wanted, there))
    if len(ours) != len(theirs) or any(few > many for few, many in zip(ours, theirs, strict=True)):
        raise ModelError(
            f"needed a network with stages of at least {ours} depthwise layers to select from, got stages of {theirs}; "
            "choose a larger one of the same family"
        )
    starts = [sum(theirs[:stage]) for stage in range(len(theirs))]
    return [start + layer for start, count in zip(starts, ours, strict=True) for layer in range(count)]


def _shown(weight: Tensor) -> str:
    return f"{len(weight)} of {show_size(tuple(weight.shape[2:]))}"
