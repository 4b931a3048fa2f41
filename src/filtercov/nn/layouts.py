"""Remember how the parameters and buffers of a model lie in memory, and lay them out so again."""

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


class Layout(NamedTuple):
    """A tensor's shape, and how many elements apart its neighbours lie along each dimension."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


Layouts = dict[str, Layout]

# An attribute of the modules themselves, so that a copied, pickled or partly moved model still knows.
_ATTRIBUTE = "_layouts_before_acceleration"


def read_layouts(model: nn.Module) -> dict[nn.Module, Layouts]:
    """Return the layout of every parameter and buffer that has one.

    >>> layer = nn.Conv2d(3, 8, 2)
    >>> read_layouts(layer)[layer]["weight"].strides
    (12, 4, 2, 1)
    """
    return {
        module: {name: Layout(tuple(tensor.shape), tensor.stride()) for name, tensor in _tensors(module)}
        for module in model.modules()
    }


def remember_changed_layouts_(model: nn.Module, before: dict[nn.Module, Layouts]) -> None:
    """Note, on the modules, the layouts of what has been laid out anew since `before` was read."""
    for module, now in read_layouts(model).items():
        changed = {name: layout for name, layout in before[module].items() if now.get(name) != layout}
        if changed:
            # What an earlier call noted is older, and stays.
            setattr(module, _ATTRIBUTE, {**changed, **getattr(module, _ATTRIBUTE, {})})


def restore_layouts_(model: nn.Module) -> None:
    """Lay out every parameter and buffer, and its gradient, as it was before `remember_changed_layouts_`; forget."""
    for module in model.modules():
        noted: Layouts = module.__dict__.pop(_ATTRIBUTE, {})
        for name, tensor in _tensors(module):
            if name in noted:
                tensor.data = _laid_out(tensor.data, noted[name])
                if tensor.grad is not None:
                    tensor.grad.data = _laid_out(tensor.grad.data, noted[name])


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    tensors = chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))
    return ((name, t) for name, t in tensors if not is_lazy(t) and t.layout is torch.strided)


def _laid_out(tensor: Tensor, layout: Layout) -> Tensor:
    if tensor.shape != layout.shape or not _apart(layout):
        return tensor.contiguous()  # replaced since by another, or expanded from fewer elements
    empty = torch.empty_strided(layout.shape, layout.strides, dtype=tensor.dtype, device=tensor.device)
    return empty.copy_(tensor)


def _apart(layout: Layout) -> bool:
    """Return whether every element has a place of its own."""
    reach = 0  # the furthest that the dimensions seen so far lead
    for stride, size in sorted(zip(layout.strides, layout.shape, strict=True)):
        if size > 1 and stride <= reach:
            return False
        reach += stride * (size - 1)
    return True
