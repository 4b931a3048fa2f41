"""Memory layouts: of images, (N, C, *size) with one to three axes of size, and of all tensors of a model."""

from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor, nn


def is_channels_last(x: Tensor) -> bool:
    """Whether an image is stored as (N, *size, C), perhaps with gaps.

    Where strides cannot tell (one channel, or one pixel) the answer is no: the two layouts are then the same memory.

    >>> is_channels_last(torch.zeros(8, 400, 256).mT)
    True
    """
    return x.shape[1] > 1 and x.stride(1) == 1 and not x.is_contiguous()


def dense(x: Tensor, *, channels_last: bool) -> Tensor:
    """An image dense in the layout asked for; itself, if it is."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1) if channels_last else x.contiguous()


def readable(x: Tensor) -> Tensor:
    """An image as the kernels can read it: with stride 1 along the channels or along the last axis."""
    return x if x.stride(1) == 1 or x.stride(-1) == 1 else x.contiguous()


def empty_image(shape: Sequence[int], *, channels_last: bool) -> Tensor:
    """A dense float32 image on the CPU, uninitialised."""
    if not channels_last:
        return torch.empty(shape, dtype=torch.float32, device="cpu")
    if len(shape) == 4:
        return torch.empty(shape, dtype=torch.float32, device="cpu", memory_format=torch.channels_last)
    batch, channels, *size = shape
    return torch.empty((batch, *size, channels), dtype=torch.float32, device="cpu").movedim(-1, 1)


def as_channels_last(x: Tensor) -> Tensor:
    """An (N, C, H, W) image dense in channels_last, with the strides that PyTorch gives it; itself, if it is."""
    return x.contiguous(memory_format=torch.channels_last)


def as_empty_image(x: Tensor) -> Tensor:
    """An uninitialised image like x, dense in channels_last."""
    return torch.empty_like(x, memory_format=torch.channels_last)


# The names of a module's tensors that `to_channels_last_` moved. It is an attribute of the module, so that a copied,
# pickled or partly moved model still has it.
_MOVED = "_moved_to_channels_last"


def to_channels_last_(model: nn.Module) -> None:
    """Move the images and filters of a model, and their gradients, to channels_last; note which were elsewhere."""
    before = {module: {name: t.stride() for name, t in tensors_in(module)} for module in model.modules()}
    # Not model.to(memory_format=...), which would refuse the five axes of a Conv3d's weight.
    model._apply(as_channels_last_image)  # type: ignore[no-untyped-call]
    for module, strides in before.items():
        if moved := {name for name, t in tensors_in(module) if t.stride() != strides[name]}:
            setattr(module, _MOVED, moved | getattr(module, _MOVED, set()))


def restore_layouts_(model: nn.Module) -> None:
    """Undo `to_channels_last_`, also for gradients: what it moved becomes contiguous."""
    for module in model.modules():
        moved = module.__dict__.pop(_MOVED, ())
        for tensor in (tensor for name, tensor in tensors_in(module) if name in moved):
            for part in (tensor, tensor.grad):
                if part is not None:  # cloned: contiguous tensors may spell strides of axes of size 1 otherwise
                    part.data = part.data.clone(memory_format=torch.contiguous_format)


def tensors_in(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers of a module itself that have strides, by name."""
    tensors = chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))
    return ((name, t) for name, t in tensors if t.layout is torch.strided)


def as_channels_last_image(tensor: Tensor) -> Tensor:
    """A tensor in channels_last if it is an image or a filter of one; else itself."""
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
