"""The native kernels as functions of tensors.

Images are float32, on the CPU and dense in channels_last order, other tensors contiguous: the callers in this package
see to it. `isa` picks an instruction set other than the one in use.
"""

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from filtercov.nn.library import Geometry, GeometryStruct, call


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _struct(geometry: Geometry) -> object:
    return ctypes.byref(GeometryStruct(*geometry))


def forward(geometry: Geometry, x: Tensor, weight: Tensor, bias: Tensor | None, *, isa: str | None = None) -> Tensor:
    """Return the (N, C, OH, OW) convolution of (N, C, H, W) with (C, 1, KH, KW)."""
    y = _image(geometry.batch, geometry.channels, geometry.out_height, geometry.out_width)
    pointers = map(_pointer, (x, weight, bias, y))
    call("depthwise_forward", _struct(geometry), *pointers, isa=isa)
    return y


def input_grad(geometry: Geometry, grad_y: Tensor, weight: Tensor, *, isa: str | None = None) -> Tensor:
    """Return the (N, C, H, W) gradient of the forward pass's input."""
    grad_x = _image(geometry.batch, geometry.channels, geometry.height, geometry.width)
    call("depthwise_input_grad", _struct(geometry), *map(_pointer, (grad_y, weight, grad_x)), isa=isa)
    return grad_x


def weight_grad(geometry: Geometry, grad_y: Tensor, x: Tensor, *, isa: str | None = None) -> Tensor:
    """Return the (C, 1, KH, KW) gradient of the forward pass's filters."""
    shape = geometry.channels, 1, geometry.kernel_height, geometry.kernel_width
    grad_weight = x.new_empty(shape)
    call("depthwise_weight_grad", _struct(geometry), *map(_pointer, (grad_y, x, grad_weight)), isa=isa)
    return grad_weight


def channel_sum(x: Tensor, *, isa: str | None = None) -> Tensor:
    """Return the (C,) sums of (N, C, H, W) over images and pixels."""
    sums = x.new_empty(x.shape[1])
    call("channel_sum", *_matrix(x), *map(_pointer, (x, sums)), isa=isa)
    return sums


class BatchMoments(NamedTuple):
    """Per-channel (C,) mean, biased variance and 1 / sqrt(variance + eps) of GELU(x)."""

    mean: Tensor
    variance: Tensor
    inverse_std: Tensor


def gelu_batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, *, isa: str | None = None
) -> tuple[Tensor, BatchMoments]:
    """Return the training-mode BatchNorm of GELU(x), (N, C, H, W), and the moments it used."""
    y = torch.empty_like(x)
    moments = BatchMoments(*(x.new_empty(x.shape[1]) for _ in range(3)))
    inputs, outputs = map(_pointer, (x, weight, bias)), map(_pointer, (y, *moments))
    call("gelu_batch_norm_forward", *_matrix(x), *inputs, eps, *outputs, isa=isa)
    return y, moments


def gelu_batch_norm_backward(
    grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse_std: Tensor, *, isa: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias."""
    grads = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    pointers = map(_pointer, (grad_y, x, weight, mean, inverse_std, *grads))
    call("gelu_batch_norm_backward", *_matrix(x), *pointers, isa=isa)
    return grads


def _image(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device="cpu", memory_format=torch.channels_last)


def _matrix(x: Tensor) -> tuple[int, int]:
    batch, channels, height, width = x.shape
    return batch * height * width, channels
