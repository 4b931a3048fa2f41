"""Which calls go to filtercov's kernels, and which stay PyTorch's.

A call may go to an operator of ours only where that cannot be observed: `fits` says so for convolutions;
`nothing_intervenes` and `is_watched` are what the fused modules ask. Of those calls, the kernels get the passes for
which they were measured to be faster on this machine (`accelerate_` with an example), or else those above the
thresholds here, whose figures are in docs/depthwise.md. On a GPU there are no thresholds: what was not measured there
is PyTorch's.
"""

import os
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module

from filtercov.nn import native
from filtercov.nn.geometry import Geometry
from filtercov.nn.layout import is_channels_last

Pass = Literal["forward", "input_grad", "weight_grad"]
Kind = Literal["line", "band", "plane", "strided plane", "dilated plane", "volume"]

# Passes as an operator takes them: the sum of those that run natively, or that the thresholds decide. With ON_GPU they
# were measured on a GPU, and run in Triton there; without it on the CPU. Elsewhere the thresholds decide.
BITS: dict[Pass, int] = {"forward": 1, "input_grad": 2, "weight_grad": 4}
ON_GPU = 8
BY_THRESHOLDS = -1

# For tests: Triton runs on the CPU, and with FILTERCOV_TRITON=1 as well, CPU tensors count as tensors on a GPU.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
PRETENDED = INTERPRETED and os.environ.get("FILTERCOV_TRITON") == "1"

# The least number of taps from which a pass is faster than PyTorch's, channels last and first, by kind of convolution.
LEAST_TAPS: dict[Kind, dict[Pass, tuple[int, int]]] = {
    "line": {"forward": (4, 4), "input_grad": (4, 4), "weight_grad": (4, 4)},
    "band": {"forward": (25, 11), "input_grad": (10, 10), "weight_grad": (10, 10)},
    "plane": {"forward": (25, 225), "input_grad": (25, 49), "weight_grad": (10, 25)},
    "strided plane": {"forward": (49, 121), "input_grad": (25, 81), "weight_grad": (25, 25)},
    "dilated plane": {"forward": (49, 49), "input_grad": (49, 49), "weight_grad": (49, 49)},
    "volume": {"forward": (27, 27), "input_grad": (27, 27), "weight_grad": (27, 27)},
}
# With fewer taps no pass is faster.
LEAST_OF_ALL = {kind: min(map(min, passes.values())) for kind, passes in LEAST_TAPS.items()}
# Below this many channels most lanes of a 16-channel block would be idle.
LEAST_CHANNELS = 5
# Calls of our operators take some 0.2 ms longer, forward and backward, than PyTorch's own. With fewer multiplications
# than this the kernels save less than that.
LEAST_WORK = 2**19
# The same for filters of one tap, in numbers: PyTorch's own calls take longer for them than for others.
LEAST_SCALED = 2**14
# With one thread PyTorch hands filters of one tap to oneDNN only for batches of at least this many images.
ONEDNN_BATCH = 16
# PyTorch normalises images of fewer numbers than this as fast as our operators.
LEAST_NORMALISED = 2**18

# Subclasses (DTensor, quantised tensors, ...) bring their own functions.
PLAIN_TENSORS = (Tensor, nn.Parameter)
CPU_DTYPES = (torch.float32, torch.float64)
GPU_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def on_gpu(x: Tensor) -> bool:
    """Whether a tensor is on a GPU, or counts as one in tests."""
    return x.is_cuda or (PRETENDED and x.is_cpu)


def is_measured(x: Tensor, passes: int) -> bool:
    """Whether `passes` were measured on the kind of device that x is on."""
    return passes != BY_THRESHOLDS and bool(passes & ON_GPU) == on_gpu(x)


def autocast(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The tensors as autocast hands them to PyTorch's convolutions: in its dtype, but for float64."""
    device = x.device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return x, weight, bias
    dtype = torch.get_autocast_dtype(device)
    x, weight = (tensor.to(dtype) if tensor.dtype in GPU_DTYPES else tensor for tensor in (x, weight))
    return x, weight, bias if bias is None or bias.dtype not in GPU_DTYPES else bias.to(dtype)


def fits(axes: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether our operators take a convolution: plain tensors of a dtype they have, one filter a channel.

    On a GPU, tensors are those that `autocast` returned.
    """
    return (
        type(x) in PLAIN_TENSORS
        and type(weight) in PLAIN_TENSORS
        and (bias is None or type(bias) in PLAIN_TENSORS)
        and (
            x.dtype in GPU_DTYPES and no_transform_intervenes()
            if on_gpu(x)
            else x.is_cpu and x.dtype in CPU_DTYPES and nothing_intervenes()
        )
        and x.dim() in (axes + 1, axes + 2)
        and weight.dim() == axes + 2
        and weight.shape[0] == x.shape[-1 - axes]
    )


def runs_natively(
    which: Pass, image: Tensor, kernel: Sequence[int], geometry: Geometry, *, channels_last: bool, passes: int
) -> bool:
    """Whether a pass over an (N, C, *size) image runs in the kernels, as `passes` or the thresholds say."""
    if not is_measured(image, passes):
        return native_wins(which, image, kernel, geometry, channels_last=channels_last)
    return bool(passes & BITS[which]) and has_kernels(image, geometry)


def has_kernels(image: Tensor, geometry: Geometry) -> bool:
    """Whether the CPU has kernels for a convolution: of float32, no stride and dilation on one axis."""
    return (
        native.takes(image)
        and not on_gpu(image)
        and not any(stride > 1 and step > 1 for stride, step in zip(geometry.stride, geometry.dilation, strict=True))
    )


def native_wins(which: Pass, image: Tensor, kernel: Sequence[int], geometry: Geometry, *, channels_last: bool) -> bool:
    """Whether a pass over an (N, C, *size) image is faster in the kernels, by the thresholds."""
    if image.shape[1] < LEAST_CHANNELS or not has_kernels(image, geometry):
        return False
    if which == "weight_grad" and kernel[-1] == 1 and not channels_last:  # the kernel holds a row of taps at a time
        return False
    return prod(kernel) >= LEAST_TAPS[_kind(kernel, geometry)][which][0 if channels_last else 1]


def worth_a_call(image: Tensor, kernel: Sequence[int], geometry: Geometry, *, trained: bool) -> bool:
    """Whether a convolution is faster through our operators than through PyTorch's call, which starts sooner.

    It is not if the image is small (unless a graph is compiled, which may see images of any size), nor if no pass would
    run in the kernels, nor on a GPU. Two exceptions: frozen filters without a stride gain from skipping their weight
    gradient, and filters of one tap multiply where PyTorch would convolve.

    >>> geometry = Geometry((4,) * 4, (1, 1), (1, 1))
    >>> [worth_a_call(torch.empty(batch, 16, 8, 8), (9, 9), geometry, trained=True) for batch in (1, 64)]
    [False, True]
    """
    taps, kind = prod(kernel), _kind(kernel, geometry)
    if on_gpu(image):
        return False
    if image.dtype != torch.float32:
        return True
    if geometry.is_scaling(kernel):
        return torch.compiler.is_compiling() or (image.numel() >= LEAST_SCALED and not _has_pixelwise(image, kernel))
    if (trained or kind == "strided plane") and taps < LEAST_OF_ALL[kind]:
        return False
    return torch.compiler.is_compiling() or image.numel() * taps >= LEAST_WORK


def _has_pixelwise(image: Tensor, kernel: Sequence[int]) -> bool:
    """Whether PyTorch (oneDNN, channels last) convolves with filters of one tap as fast as one multiplies."""
    if image.dim() < len(kernel) + 2 or not is_channels_last(image):
        return False
    return image.shape[0] >= ONEDNN_BATCH or torch.get_num_threads() > 1


def _kind(kernel: Sequence[int], geometry: Geometry) -> Kind:
    axes = len(geometry.stride)
    if axes != 2:
        return "line" if axes == 1 else "volume"
    if max(geometry.dilation) > 1:
        return "dilated plane"
    if max(geometry.stride) > 1:
        return "strided plane"
    return "band" if min(kernel) == 1 else "plane"


def nothing_intervenes() -> bool:
    """Whether calls compute with what they are given: no autocast, no transform, no forward-mode derivative."""
    return not torch.is_autocast_enabled("cpu") and no_transform_intervenes()


def no_transform_intervenes() -> bool:
    """Whether no transform of functions is active, no forward-mode derivative is computed, and nothing is traced."""
    return (
        not torch._C._are_functorch_transforms_active()  # vmap, grad, jvp, ... know PyTorch's functions, not ours
        and forward_ad._current_level < 0  # as does forward-mode differentiation
        and not is_traced()
    )


_any_global_hook = cast(Callable[[], bool], torch_module._has_any_global_hook)


def is_watched(*modules: nn.Module) -> bool:
    """Whether skipping calls of modules could be observed: by hooks, or a `forward` set on a module itself."""
    if _any_global_hook():
        return True
    for module in modules:  # not any(...): this is asked in every call
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return True
        if "forward" in vars(module):
            return True
    return False


def is_usual(*tensors: Any) -> bool:
    """Whether the kernels can read parameters, buffers or images: plain float32 on the CPU, and none is missing."""
    for tensor in tensors:  # not all(...): this is asked in every call
        if type(tensor) not in PLAIN_TENSORS or tensor.dtype != torch.float32 or not tensor.is_cpu:
            return False
    return True


def is_traced() -> bool:
    """Whether `torch.jit.trace` is running, which records PyTorch's operators: a trace may be loaded without us."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]
