"""Remember how the parameters and buffers of a model lie in memory, and lay them out so again."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from filtercov.nn.routing import is_strided


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


def to_channels_last_(model: nn.Module) -> None:
    """Lay out the images and filters of a model, and their gradients, channels last; note how they lay before."""
    before = read_layouts(model)
    with _as_trainable(model):
        try:
            # Not model.to(memory_format=...), which would refuse the five axes of a Conv3d's weight.
            model._apply(_channels_last)  # type: ignore[no-untyped-call]
        except BaseException:
            _lay_out_(before)
            raise
    remember_changed_layouts_(model, before)


def is_moved(model: nn.Module) -> bool:
    """Return whether `to_channels_last_` was called, and not undone since."""
    return any(_ATTRIBUTE in vars(module) for module in model.modules())


class BothLayouts:
    """The four-dimensional tensors of a model as they lie and channels last, to change between the two at no cost.

    For as long as nobody writes to them.
    """

    def __init__(self, model: nn.Module) -> None:
        tensors = {id(t): t for module in model.modules() for _, t in _tensors(module) if t.dim() == 4}
        self._own = [(tensor, tensor.data) for tensor in tensors.values()]
        self._last = [(tensor, _channels_last(data)) for tensor, data in self._own]

    @property
    def differ(self) -> bool:
        """Whether there is anything to change."""
        return any(own.stride() != last.stride() for (_, own), (_, last) in zip(self._own, self._last, strict=True))

    def lay_out_(self, *, channels_last: bool) -> None:
        """Give every tensor its data in the layout asked for."""
        for tensor, data in self._last if channels_last else self._own:
            tensor.data = data


def restore_layouts_(model: nn.Module) -> None:
    """Lay out every parameter and buffer, and its gradient, as it was before `remember_changed_layouts_`; forget."""
    with _as_trainable(model):
        _lay_out_({module: module.__dict__.pop(_ATTRIBUTE, {}) for module in model.modules()})


def _lay_out_(wanted: dict[nn.Module, Layouts]) -> None:
    """Lay out parameters and buffers, and their gradients, where they lie otherwise than is wanted."""
    for module, layouts in wanted.items():
        for name, tensor in _tensors(module):
            if name in layouts and tensor.stride() != layouts[name].strides:
                tensor.data = _laid_out(tensor.data, layouts[name])
                if tensor.grad is not None:
                    tensor.grad.data = _laid_out(tensor.grad.data, layouts[name])


def _as_trainable(model: nn.Module) -> AbstractContextManager[object]:
    """Return a context in which what is made of tensors that can be trained can be, also in inference mode."""
    for_inference = any(tensor.is_inference() for module in model.modules() for _, tensor in _tensors(module))
    return nullcontext() if for_inference else torch.inference_mode(mode=False)


def _channels_last(tensor: Tensor) -> Tensor:
    image = tensor.dim() == 4 and is_strided(tensor) and not tensor.is_quantized
    return tensor.to(memory_format=torch.channels_last) if image else tensor


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    tensors = chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))
    return ((name, t) for name, t in tensors if not is_lazy(t) and is_strided(t))


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
