"""Who computes what: the one place where filtercov's kernels are chosen over PyTorch's, or not.

`fits` asks whether a convolution is of the kind filtercov's operators take; everything else is handed to PyTorch.
`runs_natively` says, pass by pass, whether the kernels are called: where they were measured to be faster on this
machine (`nn/tuning.py`), or else by thresholds (`native_wins`), whose figures are in docs/depthwise.md.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import Literal, ParamSpec, TypeVar, cast, get_args

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module

from filtercov.nn import library
from filtercov.nn.arguments import Convolution
from filtercov.nn.images import is_channels_last
from filtercov.nn.scaling import is_scaling

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_any_global_hook = cast(Callable[[], bool], torch_module._has_any_global_hook)

Pass = Literal["forward", "input_grad", "weight_grad"]
Kind = Literal["line", "band", "plane", "strided plane", "dilated plane", "volume"]

# Subclasses (DTensor, quantised tensors, ...) bring their own F.conv2d.
PLAIN_TENSORS = (Tensor, nn.Parameter)

# The least number of taps from which a pass is faster than PyTorch's, channels last and first, by kind of convolution.
LEAST_TAPS: dict[tuple[Kind, Pass], tuple[int, int]] = {
    ("line", "forward"): (4, 4),
    ("line", "input_grad"): (4, 4),
    ("line", "weight_grad"): (4, 4),
    ("band", "forward"): (25, 11),
    ("band", "input_grad"): (10, 10),
    ("band", "weight_grad"): (10, 10),
    ("plane", "forward"): (25, 225),
    ("plane", "input_grad"): (25, 49),
    ("plane", "weight_grad"): (10, 25),
    ("strided plane", "forward"): (49, 121),
    ("strided plane", "input_grad"): (25, 81),
    ("strided plane", "weight_grad"): (25, 25),
    ("dilated plane", "forward"): (49, 49),
    ("dilated plane", "input_grad"): (49, 49),
    ("dilated plane", "weight_grad"): (49, 49),
    ("volume", "forward"): (27, 27),
    ("volume", "input_grad"): (27, 27),
    ("volume", "weight_grad"): (27, 27),
}
# With fewer taps no pass is.
LEAST_OF_ALL = {kind: min(min(LEAST_TAPS[kind, which]) for which in get_args(Pass)) for kind in get_args(Kind)}
# Calls through an operator of ours take some 0.2 ms longer, forward and backward, than PyTorch's own. With fewer
# multiplications than this all that the kernels could save is less.
LEAST_WORK = 2**19
# The same for filters of one tap, for which PyTorch's own calls take longer than for others of their size.
LEAST_SCALED = 2**14
# With one thread PyTorch hands batches of fewer images to oneDNN only if filters have several taps.
ONEDNN_BATCH = 16
# Images of fewer numbers than this are normalised as fast by PyTorch's own calls.
LEAST_NORMALISED = 2**18
# Passes as an operator is told them: the sum of those to run natively, or that the thresholds are to say.
BITS: dict[Pass, int] = {"forward": 1, "input_grad": 2, "weight_grad": 4}
BY_THRESHOLDS = -1
# Below this many channels most lanes of a 16-channel block would be idle.
LEAST_CHANNELS = 5


def fits(axes: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether filtercov's operators take this: plain float32 or float64 on the CPU, one filter a channel."""
    return (
        type(x) in PLAIN_TENSORS
        and type(weight) in PLAIN_TENSORS
        and (bias is None or type(bias) in PLAIN_TENSORS)
        and x.dim() in (axes + 1, axes + 2)
        and weight.dim() == axes + 2
        and x.is_cpu
        and is_strided(x)
        and x.dtype in (torch.float32, torch.float64)
        and weight.shape[0] == x.shape[-1 - axes]
        and nothing_intervenes()
    )


def is_strided(x: Tensor) -> bool:
    """Return whether a tensor's numbers lie in memory by strides, as those of nested and mkldnn tensors do not."""
    return x.layout is torch.strided and not x.is_nested


def nothing_intervenes() -> bool:
    """Return whether calls compute with what they are given: no autocast, no transform, no forward-mode derivative.

    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     nothing_intervenes()
    False
    """
    return (
        not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()  # vmap, grad, jvp, ... know PyTorch's functions, not ours
        and forward_ad._current_level < 0  # as does forward-mode differentiation
    )


def runs_natively(
    which: Pass, image: Tensor, kernel: Sequence[int], how: Convolution, *, channels_last: bool, passes: int
) -> bool:
    """Return whether a pass over an (N, C, *size) image is the kernels': as measured, or by the thresholds.

    >>> here, how = torch.zeros(8, 16, 4, 4, dtype=torch.float64), Convolution((4,) * 4, (1, 1), (1, 1))
    >>> runs_natively("forward", here, (9, 9), how, channels_last=True, passes=BITS["forward"])
    False
    """
    if passes == BY_THRESHOLDS:
        return native_wins(which, image, kernel, how, channels_last=channels_last)
    return bool(passes & BITS[which]) and runs_at_all(image, how)


def runs_at_all(image: Tensor, how: Convolution) -> bool:
    """Return whether there are kernels for a convolution of this image: not of float64, nor of dilated strides."""
    return (
        image.dtype == torch.float32
        and library.available()
        and not any(stride > 1 and dilation > 1 for stride, dilation in zip(how.stride, how.dilation, strict=True))
    )


def native_wins(which: Pass, image: Tensor, kernel: Sequence[int], how: Convolution, *, channels_last: bool) -> bool:
    """Return whether a pass over an (N, C, *size) image should run natively, by thresholds; idle lanes never do.

    >>> here = torch.zeros(8, 16, 4, 4, dtype=torch.float64)
    >>> native_wins("weight_grad", here, (9, 9), Convolution((4,) * 4, (1, 1), (1, 1)), channels_last=True)
    False
    """
    if image.shape[1] < LEAST_CHANNELS or not runs_at_all(image, how):
        return False
    if which == "weight_grad" and kernel[-1] == 1 and not channels_last:  # the kernel holds a row of taps at a time
        return False
    return prod(kernel) >= LEAST_TAPS[_kind(kernel, how), which][0 if channels_last else 1]


def worth_a_call(image: Tensor, kernel: Sequence[int], how: Convolution, *, trained: bool) -> bool:
    """Return whether a convolution is better off in our operators than in PyTorch's own call, which begins sooner.

    Not if it is small, though a graph that is compiled or exported may see images of any size; nor if it has no pass
    for the kernels, but for filters that are not `trained`, which come for what that spares them, if without a stride,
    and for filters of one tap, which multiply, where PyTorch does not do as much.

    >>> how = Convolution((4,) * 4, (1, 1), (1, 1))
    >>> [worth_a_call(torch.empty(batch, 16, 8, 8), (9, 9), how, trained=True) for batch in (1, 64)]
    [False, True]
    """
    taps, kind = prod(kernel), _kind(kernel, how)
    if image.dtype != torch.float32:
        return True
    if is_scaling(kernel, how):
        return torch.compiler.is_compiling() or (image.numel() >= LEAST_SCALED and not _has_pixelwise(image, kernel))
    if (trained or kind == "strided plane") and taps < LEAST_OF_ALL[kind]:
        return False
    return torch.compiler.is_compiling() or image.numel() * taps >= LEAST_WORK


def _has_pixelwise(image: Tensor, kernel: Sequence[int]) -> bool:
    """Return whether PyTorch convolves this image with filters of one tap pixel by pixel, as fast as one multiplies.

    That is oneDNN's, channels last. Batches of few images go there only with more than one thread.
    """
    if image.dim() < len(kernel) + 2 or not is_channels_last(image):
        return False
    return image.shape[0] >= ONEDNN_BATCH or torch.get_num_threads() > 1


def _kind(kernel: Sequence[int], how: Convolution) -> Kind:
    axes = len(how.stride)
    if axes != 2:
        return "line" if axes == 1 else "volume"
    if max(how.dilation) > 1:
        return "dilated plane"
    if max(how.stride) > 1:
        return "strided plane"
    return "band" if min(kernel) == 1 else "plane"


def native_sums(image: Tensor) -> bool:
    """Return whether the sums over an (N, C, *size) image's channels should run natively."""
    return (
        image.dtype == torch.float32
        and image.shape[1] >= LEAST_CHANNELS
        and is_channels_last(image)
        and library.available()
    )


def is_watched(*modules: nn.Module) -> bool:
    """Return whether someone would notice that modules are not called: a hook on one of them, or on all modules.

    One whose `forward` was replaced on the module itself, as wrappers do, is watched too.

    >>> layer = nn.GELU()
    >>> handle = layer.register_forward_hook(print)
    >>> is_watched(layer), is_watched(nn.GELU())
    (True, False)
    """
    if _any_global_hook():
        return True
    for module in modules:  # not any(...): this is asked in every call
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return True
        if "forward" in vars(module):
            return True
    return False


def is_traced() -> bool:
    """Return whether `torch.jit.trace` follows what is done now.

    >>> is_traced()
    False
    """
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]


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
        if not is_traced():
            return function(*args, **kwargs)
        state = torch._C._get_tracing_state()
        torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
        try:
            return function(*args, **kwargs)
        finally:
            torch._C._set_tracing_state(state)  # type: ignore[attr-defined]

    return run
