"""How images, (N, C, *size) with one to three axes of size, lie in memory: channels first, or last."""

from collections.abc import Sequence

import torch
from torch import Tensor


def is_channels_last(x: Tensor) -> bool:
    """Return whether an image lies as (N, *size, C), perhaps with gaps.

    Where strides cannot tell (one channel, or one pixel) the answer is no: the two orders are then the same memory.

    >>> is_channels_last(torch.zeros(1, 3, 2, 2).to(memory_format=torch.channels_last))
    True
    >>> is_channels_last(torch.zeros(8, 400, 256).mT)
    True
    """
    return x.shape[1] > 1 and x.stride(1) == 1 and not x.is_contiguous()


def laid_out(x: Tensor, *, channels_last: bool) -> Tensor:
    """Return an image dense in the order asked for; itself, if it is."""
    return x.movedim(1, -1).contiguous().movedim(-1, 1) if channels_last else x.contiguous()


def readable(x: Tensor) -> Tensor:
    """Return an image as the kernels can read it: channels, or neighbours along the last axis, lie side by side.

    >>> whole = torch.zeros(2, 30, 12, 12).to(memory_format=torch.channels_last)
    >>> readable(whole[:, 7:27]).data_ptr() == whole[:, 7:27].data_ptr()
    True
    """
    return x if x.stride(1) == 1 or x.stride(-1) == 1 else x.contiguous()


def empty_image(shape: Sequence[int], *, channels_last: bool) -> Tensor:
    """Return a dense float32 image on the CPU, of any content."""
    if not channels_last:
        return torch.empty(shape, dtype=torch.float32, device="cpu")
    if len(shape) == 4:
        return torch.empty(shape, dtype=torch.float32, device="cpu", memory_format=torch.channels_last)
    batch, channels, *size = shape
    return torch.empty((batch, *size, channels), dtype=torch.float32, device="cpu").movedim(-1, 1)


def as_channels_last(x: Tensor) -> Tensor:
    """Return an (N, C, H, W) image dense in channels_last, with the strides that PyTorch gives it; itself, if it is."""
    return x.contiguous(memory_format=torch.channels_last)


def spread(per_channel: Tensor) -> Tensor:
    """Return (C,) numbers so that they meet the channels of an (N, C, H, W) image.

    >>> spread(torch.zeros(3)).shape
    torch.Size([3, 1, 1])
    """
    return per_channel[:, None, None]
