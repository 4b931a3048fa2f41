"""Check what the operators are given: shapes, dtypes, devices and layouts, before any memory is touched.

One function for each operator, with its arguments; both what computes and its fake run after it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from filtercov.errors import ConvolutionError, NormalisationError
from filtercov.nn.arguments import check_fit, check_shapes, out_size

Error = type[ConvolutionError] | type[NormalisationError]


def check_convolution(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Sequence[int]) -> None:
    """Raise unless (N, C, H, W), (C, 1, KH, KW) and, if given, (C,) make a convolution of stride 1."""
    name = "depthwise_conv2d"
    _check_image(ConvolutionError, name, x=x)
    check_shapes(x.shape, weight.shape, None if bias is None else bias.shape)
    _check_alike(ConvolutionError, name, x=x, weight=weight, bias=bias)
    _check_filters(name, weight, x.shape[1])
    _check_padding(name, padding)
    check_fit(x.shape, weight.shape[2:], padding, (1, 1))


def check_input_grad(
    grad_y: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    size: Sequence[int],
    channels_last: bool,  # noqa: ARG001 - either will do
) -> None:
    """Raise unless grad_y (N, C, OH, OW) is what (C, 1, KH, KW) makes of images of `size`."""
    name = "depthwise_conv2d_input_grad"
    _check_image(ConvolutionError, name, grad_y=grad_y)
    _check_alike(ConvolutionError, name, grad_y=grad_y, weight=weight)
    _check_filters(name, weight, grad_y.shape[1])
    _check_size(name, "size", size)
    _check_output(name, grad_y, (*grad_y.shape[:2], *size), weight.shape[2:], padding)


def check_weight_grad(grad_y: Tensor, x: Tensor, padding: Sequence[int], kernel: Sequence[int]) -> None:
    """Raise unless grad_y (N, C, OH, OW) is what filters of `kernel` make of x (N, C, H, W)."""
    name = "depthwise_conv2d_weight_grad"
    _check_image(ConvolutionError, name, grad_y=grad_y, x=x)
    _check_alike(ConvolutionError, name, grad_y=grad_y, x=x)
    _check_size(name, "kernel", kernel)
    _check_output(name, grad_y, x.shape, kernel, padding)


def check_channel_sum(x: Tensor) -> None:
    """Raise unless x is (N, C, H, W)."""
    _check_image(ConvolutionError, "channel_sum", x=x)
    _check_alike(ConvolutionError, "channel_sum", x=x)


def check_gelu_batch_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> None:  # noqa: ARG001
    """Raise unless x is (N, C, H, W), with a variance in each channel, and the others are (C,)."""
    name = "gelu_batch_norm"
    _check_image(NormalisationError, name, x=x)
    _check_alike(NormalisationError, name, x=x, weight=weight, bias=bias)
    _check_per_channel(name, x, weight=weight, bias=bias)
    _check_variance(name, x)


def check_gelu_batch_norm_backward(
    grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse_std: Tensor
) -> None:
    """Raise unless grad_y and x are (N, C, H, W), with a variance in each channel, and the others are (C,)."""
    name = "gelu_batch_norm_backward"
    _check_image(NormalisationError, name, grad_y=grad_y, x=x)
    _check_alike(NormalisationError, name, grad_y=grad_y, x=x, weight=weight, mean=mean, inverse_std=inverse_std)
    if grad_y.shape != x.shape:
        raise NormalisationError(f"{name}: x is {tuple(x.shape)}, so must be grad_y, got {tuple(grad_y.shape)}")
    _check_per_channel(name, x, weight=weight, mean=mean, inverse_std=inverse_std)
    _check_variance(name, x)


def _check_image(error: Error, name: str, **images: Tensor) -> None:
    for argument, image in images.items():
        if image.dim() != 4:
            raise error(f"{name}: {argument} must be (N, C, H, W), got {tuple(image.shape)}")


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


def _check_filters(name: str, weight: Tensor, channels: int) -> None:
    if weight.dim() != 4 or weight.shape[0] != channels or weight.shape[1] != 1 or channels == 0:
        raise ConvolutionError(
            f"{name}: {channels} channels need a weight of ({channels}, 1, KH, KW), got {tuple(weight.shape)}"
        )


def _check_padding(name: str, padding: Sequence[int]) -> None:
    if len(padding) != 4 or min(padding) < 0:
        raise ConvolutionError(f"{name}: padding must be (top, bottom, left, right), each >= 0, got {tuple(padding)}")


def _check_size(name: str, argument: str, size: Sequence[int]) -> None:
    if len(size) != 2 or min(size) < 1:
        raise ConvolutionError(f"{name}: {argument} must be (height, width), each >= 1, got {tuple(size)}")


def _check_output(
    name: str, grad_y: Tensor, image: Sequence[int], kernel: Sequence[int], padding: Sequence[int]
) -> None:
    _check_padding(name, padding)
    check_fit(image, kernel, padding, (1, 1))
    needed = *image[:2], *out_size(image[2:], kernel, padding)
    if tuple(grad_y.shape) != needed:
        raise ConvolutionError(
            f"{name}: images {tuple(image)}, filters of {tuple(kernel)} and padding {tuple(padding)} need a grad_y of "
            f"{needed}, got {tuple(grad_y.shape)}"
        )


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
