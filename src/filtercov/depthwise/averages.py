"""Averages of a network's weights over training, known by the names that trainers give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from filtercov.depthwise.definition import Shaped, has_depthwise_shape
from filtercov.layer_names import HOLDERS

AVERAGES = {"ema", "swa", "avg", "average", "averaged", "polyak", "shadow"}

T = TypeVar("T", bound=Shaped)


def names_average(name: str) -> bool:
    """Tell whether one of the words in a name is one for an average.

    >>> names_average("state_dict_ema"), names_average("schema")
    (True, False)
    """
    return bool(AVERAGES & set(_words(name)))


def without_averaged_twins(tensors: Mapping[str, T]) -> tuple[dict[str, T], list[str]]:
    """Return the tensors without averages of others among them, and a note, if any is due, on which that left out.

    Twins have the same shape, and the same name but for words for an average in its first part, or lie in what trainers
    keep a network under. So `avg_branch` is no average of `max_branch`.

    >>> import torch
    >>> names = "model.dw.weight", "model_ema.module.dw.weight", "avg_branch.dw.weight", "max_branch.dw.weight"
    >>> kept, note = without_averaged_twins({name: torch.zeros(8, 1, 3, 3) for name in names})
    >>> list(kept), note
    (['model.dw.weight', 'avg_branch.dw.weight', 'max_branch.dw.weight'],
     ['left out model_ema.module.dw, averages of weights that are there themselves'])
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    averages = [name for name in tensors if names_average(name.partition(".")[0])]
    others = shapes.keys() - set(averages)
    themselves = {(*place, shapes[name]) for name in others for place in (_averaged(name), ("", name))}
    twins = {name for name in averages if (*_averaged(name), shapes[name]) in themselves}
    kept = {name: tensor for name, tensor in tensors.items() if name not in twins}
    dropped = [
        name.rpartition(".")[0] for name in tensors if name in twins and has_depthwise_shape(name, tensors[name])
    ]
    if not dropped:
        return kept, []
    more = f" and {len(dropped) - 3} more" if len(dropped) > 3 else ""
    return kept, [f"left out {', '.join(dropped[:3])}{more}, averages of weights that are there themselves"]


def _averaged(name: str) -> tuple[str, str]:
    """Return what a tensor is an average of, if it is one: in which part of a network, and its name there."""
    first, _, rest = name.partition(".")
    words = [word for word in _words(first) if word not in AVERAGES]
    part = "" if set(words) & set(HOLDERS) else "_".join(words)
    while (holder := rest.partition(".")[0]) == "module" or (names_average(holder) and _holds_network(holder)):
        rest = rest.partition(".")[2]
    return part, rest


def _holds_network(name: str) -> bool:
    """Tell whether a name says nothing but that a network, or an average of one, is in it."""
    return set(_words(name)) <= {*AVERAGES, *HOLDERS}


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", name.lower())
