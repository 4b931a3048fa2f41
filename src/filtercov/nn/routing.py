"""Who computes what: the one place where filtercov's kernels are chosen over PyTorch's, or not.

`fits` asks whether a convolution is of the kind the kernels know at all; everything else is handed to `F.conv2d`.
`native_wins` asks, pass by pass, whether they are worth calling: figures behind the numbers are in docs/depthwise.md.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Literal, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from filtercov.nn import library

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

Pass = Literal["forward", "input_grad", "weight_grad"]

# Subclasses (DTensor, quantised tensors, ...) bring their own F.conv2d.
PLAIN_TENSORS = (Tensor, nn.Parameter)

# The least kernel area (height x width) from which a pass is faster than PyTorch's on channels_last tensors ...
LEAST_AREA: dict[Pass, int] = {"forward": 25, "input_grad": 25, "weight_grad": 10}
# ... and on NCHW tensors, where two or three of them are converted first.
LEAST_AREA_NCHW: dict[Pass, int] = {"forward": 225, "input_grad": 225, "weight_grad": 25}
# Below this many channels most lanes of a 16-channel block would be idle.
LEAST_CHANNELS = 5


def fits(x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], dilation: tuple[int, int]) -> bool:
    """Return whether filtercov's operator takes this: plain float32 or float64 on the CPU, stride and dilation 1."""
    return (
        type(x) in PLAIN_TENSORS
        and type(weight) in PLAIN_TENSORS
        and (bias is None or type(bias) in PLAIN_TENSORS)
        and x.dim() in (3, 4)
        and weight.dim() == 4
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and weight.shape[0] == x.shape[-3]
        and stride == (1, 1)
        and dilation == (1, 1)
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()  # vmap, grad, jvp, ... know F.conv2d, not our operator
        and forward_ad._current_level < 0  # as does forward-mode differentiation
    )


def native_wins(which: Pass, image: Tensor, kernel: Sequence[int], *, channels_last: bool) -> bool:
    """Return whether a pass over an (N, C, H, W) image should run natively; float64 and idle lanes never do.

    >>> native_wins("weight_grad", torch.zeros(8, 16, 4, 4, dtype=torch.float64), (9, 9), channels_last=True)
    False
    """
    if image.dtype != torch.float32 or image.shape[1] < LEAST_CHANNELS or not library.available():
        return False
    return kernel[0] * kernel[1] >= (LEAST_AREA if channels_last else LEAST_AREA_NCHW)[which]


def native_sums(image: Tensor) -> bool:
    """Return whether the sums over an (N, C, H, W) image's channels should run natively."""
    return (
        image.dtype == torch.float32
        and image.shape[1] >= LEAST_CHANNELS
        and is_channels_last(image)
        and library.available()
    )


def is_channels_last(x: Tensor) -> bool:
    """Return whether an (N, C, H, W) tensor is laid out as (N, H, W, C).

    Where strides cannot tell (one channel, or one pixel) the answer is no: the two orders are then the same memory.

    >>> is_channels_last(torch.zeros(1, 3, 2, 2).to(memory_format=torch.channels_last))
    True
    """
    return x.shape[1] > 1 and x.stride(1) == 1 and not x.is_contiguous()


def untraced(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Return a function that `torch.jit.trace` does not follow, for decisions about shapes that are taken once.

    While it traces, sizes are tensors: each comparison of them warns, and none can be handed on as an integer.

    >>> @untraced
    ... def channels(x: torch.Tensor) -> int:
    ...     return x.shape[1]
    >>> channels(torch.zeros(2, 3))
    3
    """

    @wraps(function)
    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if not torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
            return function(*args, **kwargs)
        state = torch._C._get_tracing_state()
        torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
        try:
            return function(*args, **kwargs)
        finally:
            torch._C._set_tracing_state(state)  # type: ignore[attr-defined]

    return run
