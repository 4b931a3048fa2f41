"""Weights shaped like depthwise ones that belong to other layers, told by what lies around them in a state dict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile

from torch import Tensor

from filtercov.depthwise.definition import is_depthwise_shape
from filtercov.layer_names import without_numbers

STEM = re.compile(r"stem|patch_?embed|^conv_?1\.")
TRANSPOSED = re.compile(r"deconv|transpose")
UPWARD = re.compile(r"(^|\.)up(_|\d|\.|conv|samp|scal)")
PARAMETRISED = re.compile(r"\.?(parametrizations\.weight\.original1?|weight_orig|weight_v)$")


def lookalikes(tensors: Mapping[str, Tensor], shaped: Sequence[str]) -> dict[str, str]:
    """Return those of the `shaped` weights that are not depthwise, with what they are instead.

    `tensors` is the whole state dict, in the model's order. Where the reason is empty, there is no doubt.
    """
    found = {}
    axes = max((tensors[name].ndim for name in shaped), default=0)
    for name in shaped:
        bias = tensors.get(name.removesuffix("weight") + "bias")
        if bias is not None and bias.shape == tensors[name].shape:
            found[name] = ""  # a norm: a convolution's bias has one axis
        elif _one_pixel(tensors[name]) and tensors[name].ndim < axes:
            found[name] = "a norm or a scale, one number for each channel"
        elif bias is not None and bias.ndim == 1 and len(bias) != len(tensors[name]):
            found[name] = ""  # a transposed convolution to one channel: its bias has one number, its weight many
        elif len(tensors[name]) == 1:
            found[name] = "dense, one channel to one, as attention modules have them"
        elif TRANSPOSED.search(name.lower()) or (UPWARD.search(name.lower()) and _even(tensors[name])):
            found[name] = "transposed, for its name says so"
    stem = _image_stem(tensors, [name for name in shaped if name not in found])
    return found | dict.fromkeys(stem, "dense, of one-channel images, for it comes first")


def parametrised_names(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the layers that seem depthwise, but of whose weight only the parameters behind it are stored."""
    names = []
    for name, tensor in tensors.items():
        behind = PARAMETRISED.search(name)
        if behind and is_depthwise_shape(tensor) and len(tensor) > 1:
            names.append(name[: behind.start()])
    return names


def _image_stem(tensors: Mapping[str, Tensor], shaped: Sequence[str]) -> list[str]:
    """Return the weights that read the images, if those have one channel.

    Depthwise layers follow layers that made their channels. One that nothing dense precedes, though dense layers
    follow, is taken for a stem if its name says so, or if it is the first and none of its kernel size is built like it.
    """
    leading = _leading(tensors)
    if not any(_reads(tensor) > 1 for name, tensor in tensors.items() if name.endswith("weight")):
        return []

    def alone(name: str) -> bool:
        kin = [
            other
            for other in shaped
            if without_numbers(other) == without_numbers(name) and tensors[other].shape[2:] == tensors[name].shape[2:]
        ]
        return len(kin) == 1

    return [name for name in leading if name in shaped and (STEM.search(name) or (name == leading[0] and alone(name)))]


def may_read_images(tensors: Mapping[str, Tensor], chosen: Sequence[str]) -> bool:
    """Tell whether the first of the `chosen` weights comes first of all and has a kernel size that no other has."""
    first, *others = chosen
    alone = tensors[first].shape[2:] not in {tensors[name].shape[2:] for name in others}
    return bool(others) and alone and _leading(tensors)[:1] == [first]


def may_be_transposed(tensors: Mapping[str, Tensor], chosen: Sequence[str]) -> list[str]:
    """Return those of the `chosen` weights whose kernels have even and equal sides, in two dimensions or three.

    Even kernels in one dimension are mostly causal, as state space models have them.
    """
    even = [name for name in chosen if tensors[name].ndim > 3 and _even(tensors[name])]
    return [name for name in even if len(set(tensors[name].shape[2:])) == 1]


def _leading(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the weights that come before all dense ones; none if a convolution reads three channels, as of images."""
    weights = {name: _reads(tensor) for name, tensor in tensors.items() if name.endswith("weight") and tensor.ndim > 1}
    if any(channels == 3 and tensors[name].ndim > 2 for name, channels in weights.items()):
        return []
    return list(takewhile(lambda name: weights[name] == 1, weights))


def _reads(weight: Tensor) -> int:
    """Return how many channels one output is made of."""
    return weight.shape[1] if weight.ndim > 1 else 1


def _one_pixel(weight: Tensor) -> bool:
    return all(side == 1 for side in weight.shape[2:])


def _even(weight: Tensor) -> bool:
    """Tell whether all sides of a kernel are even, as those that enlarge a map by a whole factor are."""
    return all(side % 2 == 0 for side in weight.shape[2:])
