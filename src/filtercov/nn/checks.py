"""Check what the operators are given: shapes, dtypes, devices and layouts, before any memory is touched.

One function for each operator, with its arguments; both what computes and its fake run after it.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from filtercov.errors import ConvolutionError, NormalisationError
from filtercov.nn.arguments import AXES, Convolution, check_fit, check_shapes, function_name, letters, out_size
from filtercov.nn.kernels import ACTIVATIONS
from filtercov.nn.routing import BITS, BY_THRESHOLDS

Numbers = tuple[int, ...]
Error = type[ConvolutionError] | type[NormalisationError]


def check_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    passes: int = BY_THRESHOLDS,
) -> None:
    """Raise unless (N, C, *size), (C, 1, *kernel) and, if given, (C,) make a convolution."""
    axes = _check_image(ConvolutionError, "depthwise_conv", x=x)
    name = function_name(axes)
    check_shapes(axes, x.shape, weight.shape, None if bias is None else bias.shape)
    _check_alike(ConvolutionError, name, x=x, weight=weight, bias=bias)
    _check_filters(name, weight, x.shape[1], axes)
    _check_fit(name, x.shape, weight.shape[2:], tuple(padding), tuple(stride), tuple(dilation))
    _check_passes(name, passes)


def check_input_grad(
    grad_y: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
    channels_last: bool,  # noqa: ARG001 - either will do
    passes: int = BY_THRESHOLDS,
) -> None:
    """Raise unless grad_y (N, C, *out) is what (C, 1, *kernel) makes of images of `size`."""
    name = "depthwise_conv_input_grad"
    axes = _check_image(ConvolutionError, name, grad_y=grad_y)
    _check_alike(ConvolutionError, name, grad_y=grad_y, weight=weight)
    _check_filters(name, weight, grad_y.shape[1], axes)
    _check_size(name, "size", size, axes)
    image = *grad_y.shape[:2], *size
    _check_output(name, grad_y, image, weight.shape[2:], tuple(padding), tuple(stride), tuple(dilation))
    _check_passes(name, passes)


def check_weight_grad(
    grad_y: Tensor,
    x: Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    kernel: Sequence[int],
    passes: int = BY_THRESHOLDS,
) -> None:
    """Raise unless grad_y (N, C, *out) is what filters of `kernel` make of x (N, C, *size)."""
    name = "depthwise_conv_weight_grad"
    axes = _check_image(ConvolutionError, name, grad_y=grad_y, x=x)
    _check_alike(ConvolutionError, name, grad_y=grad_y, x=x)
    _check_size(name, "kernel", kernel, axes)
    _check_output(name, grad_y, x.shape, tuple(kernel), tuple(padding), tuple(stride), tuple(dilation))
    _check_passes(name, passes)


def check_channel_sum(x: Tensor) -> None:
    """Raise unless x is (N, C, *size)."""
    _check_image(ConvolutionError, "channel_sum", x=x)
    _check_alike(ConvolutionError, "channel_sum", x=x)


def check_gelu_batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,  # noqa: ARG001 - any will do
    residual: Tensor | None = None,
) -> None:
    """Raise unless x and residual are (N, C, H, W), with a variance in each channel, and the others are (C,)."""
    name = "gelu_batch_norm"
    _check_plane(name, x=x)
    _check_alike(NormalisationError, name, x=x, weight=weight, bias=bias, residual=residual)
    if residual is not None and residual.shape != x.shape:
        raise NormalisationError(f"{name}: x is {tuple(x.shape)}, so must be residual, got {tuple(residual.shape)}")
    _check_per_channel(name, x, weight=weight, bias=bias)
    _check_variance(name, x)


def check_gelu_batch_norm_backward(
    grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse_std: Tensor
) -> None:
    """Raise unless grad_y and x are (N, C, H, W), with a variance in each channel, and the others are (C,)."""
    name = "gelu_batch_norm_backward"
    _check_plane(name, grad_y=grad_y, x=x)
    _check_alike(NormalisationError, name, grad_y=grad_y, x=x, weight=weight, mean=mean, inverse_std=inverse_std)
    if grad_y.shape != x.shape:
        raise NormalisationError(f"{name}: x is {tuple(x.shape)}, so must be grad_y, got {tuple(grad_y.shape)}")
    _check_per_channel(name, x, weight=weight, mean=mean, inverse_std=inverse_std)
    _check_variance(name, x)


def check_batch_norm_act(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,  # noqa: ARG001 - any will do
    activation: str,
) -> None:
    """Raise unless x is (N, C, H, W), with a variance in each channel, the others (C,), and the activation is known."""
    name = "batch_norm_act"
    _check_plane(name, x=x)
    _check_alike(NormalisationError, name, x=x, weight=weight, bias=bias)
    _check_per_channel(name, x, weight=weight, bias=bias)
    _check_variance(name, x)
    _check_activation(name, activation)


def check_batch_norm_act_backward(
    grad_y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse_std: Tensor, activation: str
) -> None:
    """Raise unless grad_y and x are (N, C, H, W), with a variance in each channel, and the others are (C,)."""
    name = "batch_norm_act_backward"
    of_channels = {"weight": weight, "bias": bias, "mean": mean, "inverse_std": inverse_std}
    _check_plane(name, grad_y=grad_y, x=x)
    _check_alike(NormalisationError, name, grad_y=grad_y, x=x, **of_channels)
    if grad_y.shape != x.shape:
        raise NormalisationError(f"{name}: x is {tuple(x.shape)}, so must be grad_y, got {tuple(grad_y.shape)}")
    _check_per_channel(name, x, **of_channels)
    _check_variance(name, x)
    _check_activation(name, activation)


def check_settled_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    eps: float,  # noqa: ARG001 - any will do
    activation: str,
    activation_first: bool,
    residual: Tensor | None = None,
) -> None:
    """Raise unless x and residual are (N, C, H, W), the others (C,), and the activation is known."""
    name = "settled_norm"
    of_channels = {"weight": weight, "bias": bias, "mean": mean, "variance": variance}
    _check_plane(name, x=x)
    _check_alike(NormalisationError, name, x=x, **of_channels, residual=residual)
    _check_per_channel(name, x, **of_channels)
    _check_activation(name, activation)
    if residual is not None and not activation_first:
        raise NormalisationError(f"{name}: a residual can be added only where the activation comes first; leave it out")
    if residual is not None and residual.shape != x.shape:
        raise NormalisationError(f"{name}: x is {tuple(x.shape)}, so must be residual, got {tuple(residual.shape)}")


def check_gelu(x: Tensor) -> None:
    """Raise unless x holds floating-point numbers."""
    _check_alike(NormalisationError, "gelu", x=x)


def check_gelu_backward(grad_y: Tensor, x: Tensor) -> None:
    """Raise unless both hold floating-point numbers, and as many."""
    _check_alike(NormalisationError, "gelu_backward", grad_y=grad_y, x=x)
    if grad_y.shape != x.shape:
        raise NormalisationError(f"gelu_backward: x is {tuple(x.shape)}, so must be grad_y, got {tuple(grad_y.shape)}")


def check_norm_mlp(
    x: Tensor,
    shortcut: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    eps: float,  # noqa: ARG001 - any will do
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    gamma: Tensor | None,
    keep: bool,  # noqa: ARG001 - either will do
) -> None:
    """Raise unless x and shortcut are (N, C, H, W), w1 (M, C), w2 (C, M) and the vectors belong to them."""
    name = "norm_mlp"
    _check_alike(
        NormalisationError,
        name,
        x=x,
        weight=weight,
        bias=bias,
        w1=w1,
        b1=b1,
        w2=w2,
        b2=b2,
        shortcut=shortcut,
        gamma=gamma,
    )
    _check_plane(name, x=x)
    if shortcut is not None and shortcut.shape != x.shape:
        raise NormalisationError(f"{name}: x is {tuple(x.shape)}, so must be shortcut, got {tuple(shortcut.shape)}")
    _check_block(name, x, weight, bias, w1, b1, w2, b2, gamma)


def check_norm_mlp_backward(
    grad_y: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    between: Tensor,
    weight: Tensor,
    bias: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    gamma: Tensor | None,
) -> None:
    """Raise unless grad_y is (N, C, H, W) as x, `between` (pixels, M), the moments (pixels,), the rest as forward."""
    name = "norm_mlp_backward"
    _check_alike(
        NormalisationError,
        name,
        grad_y=grad_y,
        x=x,
        mean=mean,
        inverse_std=inverse_std,
        between=between,
        weight=weight,
        bias=bias,
        w1=w1,
        b1=b1,
        w2=w2,
        b2=b2,
        gamma=gamma,
    )
    _check_plane(name, grad_y=grad_y, x=x)
    if grad_y.shape != x.shape:
        raise NormalisationError(f"{name}: x is {tuple(x.shape)}, so must be grad_y, got {tuple(grad_y.shape)}")
    _check_block(name, x, weight, bias, w1, b1, w2, b2, gamma)
    pixels = x.shape[0] * x.shape[2] * x.shape[3]
    needed = {"mean": (pixels,), "inverse_std": (pixels,), "between": (pixels, w1.shape[0])}
    for argument, tensor in (("mean", mean), ("inverse_std", inverse_std), ("between", between)):
        if tuple(tensor.shape) != needed[argument] or not tensor.is_contiguous():
            raise NormalisationError(
                f"{name}: x of {tuple(x.shape)} needs a contiguous {argument} of {needed[argument]}, got "
                f"{tuple(tensor.shape)}"
            )


def _check_block(
    name: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    gamma: Tensor | None,
) -> None:
    channels = x.shape[1]
    _check_per_channel(name, x, weight=weight, bias=bias, b2=b2, **({} if gamma is None else {"gamma": gamma}))
    hidden = w1.shape[0] if w1.dim() else 0
    for argument, matrix, needed in (("w1", w1, (hidden, channels)), ("w2", w2, (channels, hidden))):
        if tuple(matrix.shape) not in (needed, (*needed, 1, 1)) or 0 in needed:
            raise NormalisationError(
                f"{name}: {channels} channels and {hidden} between need a {argument} of {needed}, got "
                f"{tuple(matrix.shape)}"
            )
    if tuple(b1.shape) != (hidden,):
        raise NormalisationError(f"{name}: w1 of {tuple(w1.shape)} needs a b1 of ({hidden},), got {tuple(b1.shape)}")


def _check_image(error: Error, name: str, **images: Tensor) -> int:
    """Return the number of axes that all images have beside batch and channels."""
    axes = next(iter(images.values())).dim() - 2
    for argument, image in images.items():
        if axes not in AXES:
            raise error(f"{name}: {argument} must be (N, C, size along 1 to 3 axes), got {tuple(image.shape)}")
        if image.dim() != axes + 2:
            raise error(f"{name}: {argument} must be (N, C, {letters(axes)}) too, got {tuple(image.shape)}")
    return axes


def _check_plane(name: str, **images: Tensor) -> None:
    for argument, image in images.items():
        if image.dim() != 4:
            raise NormalisationError(f"{name}: {argument} must be (N, C, H, W), got {tuple(image.shape)}")


def _how(name: str, axes: int, padding: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Convolution:
    if len(padding) != 2 * axes or min(padding) < 0:
        raise ConvolutionError(
            f"{name}: padding must be (before, after) along each of {axes} axes, each >= 0, got {tuple(padding)}"
        )
    for argument, steps in (("stride", stride), ("dilation", dilation)):
        if len(steps) != axes or min(steps) < 1:
            raise ConvolutionError(f"{name}: {argument} must be {axes} numbers, each >= 1, got {tuple(steps)}")
    return Convolution(tuple(padding), tuple(stride), tuple(dilation))


def _check_passes(name: str, passes: int) -> None:
    if not BY_THRESHOLDS <= passes <= sum(BITS.values()):
        raise ConvolutionError(
            f"{name}: passes must be a sum of {BITS}, or {BY_THRESHOLDS} to leave it to thresholds, got {passes}"
        )


def _check_alike(error: Error, name: str, **tensors: Tensor | None) -> None:
    argument, first = next(iter(tensors.items()))
    assert first is not None, "optional tensors come last"
    if not first.is_floating_point():
        raise error(f"{name}: {argument} must hold floating-point numbers, got {first.dtype}; convert it first")
    for other, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.layout is not torch.strided:
            raise error(f"{name}: {other} must be a dense tensor, got {tensor.layout}; call its to_dense() first")
        if tensor.device != first.device:
            raise error(
                f"{name}: {argument} is on {first.device} but {other} on {tensor.device}; move one to the other's "
                "device"
            )
        if tensor.dtype != first.dtype:
            raise error(
                f"{name}: {argument} is {first.dtype} but {other} {tensor.dtype}; convert one to the other's dtype"
            )


def _check_filters(name: str, weight: Tensor, channels: int, axes: int) -> None:
    if weight.dim() != axes + 2 or weight.shape[0] != channels or weight.shape[1] != 1 or channels == 0:
        raise ConvolutionError(
            f"{name}: {channels} channels need a weight of ({channels}, 1, {letters(axes, 'K')}), got "
            f"{tuple(weight.shape)}"
        )


def _check_size(name: str, argument: str, size: Sequence[int], axes: int) -> None:
    if len(size) != axes or min(size) < 1:
        raise ConvolutionError(f"{name}: {argument} must be ({letters(axes)}), each >= 1, got {tuple(size)}")


def _check_output(name: str, grad_y: Tensor, image: Numbers, kernel: Numbers, *how: Numbers) -> None:
    needed = _check_fit(name, image, kernel, *how)
    if tuple(grad_y.shape) != needed:
        padding, stride, dilation = how
        raise ConvolutionError(
            f"{name}: images {tuple(image)}, filters of {tuple(kernel)}, padding {padding}, stride {stride} "
            f"and dilation {dilation} need a grad_y of {needed}, got {tuple(grad_y.shape)}"
        )


def _check_fit(name: str, image: Numbers, kernel: Numbers, *how: Numbers) -> Numbers:
    """Return the shape of what a convolution makes of images of a shape, if it makes anything."""
    try:
        return _output_shape(name, image, kernel, *how)
    except TypeError:  # symbols, which stand for sizes while a graph is drawn, cannot be looked up
        return _output_shape.__wrapped__(name, image, kernel, *how)


@lru_cache(maxsize=4096)
def _output_shape(
    name: str, image: Numbers, kernel: Numbers, padding: Numbers, stride: Numbers, dilation: Numbers
) -> Numbers:
    how = _how(name, len(kernel), padding, stride, dilation)
    check_fit(image, kernel, how)
    return *image[:2], *out_size(image[2:], kernel, how)


def _check_per_channel(name: str, x: Tensor, **vectors: Tensor) -> None:
    for argument, vector in vectors.items():
        if vector.shape != x.shape[1:2]:
            channels = x.shape[1]
            raise NormalisationError(
                f"{name}: {channels} channels need a {argument} of ({channels},), got {tuple(vector.shape)}"
            )


def _check_variance(name: str, x: Tensor) -> None:
    if x.numel() <= x.shape[1]:
        raise NormalisationError(
            f"{name}: a variance needs more than one value per channel, got x {tuple(x.shape)}; use a larger batch"
        )


def _check_activation(name: str, activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise NormalisationError(f"{name}: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
