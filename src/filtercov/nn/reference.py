"""The four passes of a depthwise convolution in PyTorch's own operators, for any dtype, device, layout and dimension.

They are what the native kernels are compared with, and what runs wherever those do not.
"""

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.nn.arguments import Convolution
from filtercov.nn.scaling import is_scaling, scale_grad, scaled

CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, how: Convolution) -> Tensor:
    """Return the (N, C, *out) convolution of (N, C, *size) with (C, 1, *kernel)."""
    if is_scaling(weight.shape[2:], how):
        return scaled(x, weight, bias)
    x, symmetric = _pad_rest(x, how.padding)
    convolve = CONVOLVE[weight.dim() - 2]
    return convolve(x, weight, bias, how.stride, symmetric, how.dilation, weight.shape[0])


def input_grad(grad_y: Tensor, weight: Tensor, how: Convolution, size: Sequence[int]) -> Tensor:
    """Return the (N, C, *size) gradient of the input."""
    if is_scaling(weight.shape[2:], how):
        return scaled(grad_y, weight)
    # The values of x do not enter, only its shape; expanding one element costs no memory.
    x = grad_y.new_zeros(()).expand(grad_y.shape[0], grad_y.shape[1], *size)
    padded, symmetric = _pad_rest(x, how.padding)
    grad = _backward(grad_y, padded, weight, symmetric, how, 0)
    shared = [min(how.padding[2 * i : 2 * i + 2]) for i in range(len(size))]
    for axis, extent in enumerate(size):  # what was padded on one side alone lies around the gradient
        grad = grad.narrow(2 + axis, how.padding[2 * axis] - shared[axis], extent)
    return grad


def weight_grad(grad_y: Tensor, x: Tensor, how: Convolution, kernel: Sequence[int]) -> Tensor:
    """Return the (C, 1, *kernel) gradient of the filters."""
    if is_scaling(kernel, how):
        return scale_grad(grad_y, x)
    x, symmetric = _pad_rest(x, how.padding)
    weight = x.new_zeros(()).expand(x.shape[1], 1, *kernel)
    return _backward(grad_y, x, weight, symmetric, how, 1)


def channel_sum(x: Tensor) -> Tensor:
    """Return the (C,) sums over images and pixels: the gradient of the bias."""
    return x.sum((0, *range(2, x.dim())))


def _pad_rest(x: Tensor, padding: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Return x with what is padded on one side alone added as zeros, and the padding that both sides share."""
    pairs = [padding[i : i + 2] for i in range(0, len(padding), 2)]
    shared = [min(pair) for pair in pairs]
    rest = [(before - both, after - both) for (before, after), both in zip(pairs, shared, strict=True)]
    from_last = list(chain.from_iterable(reversed(rest)))  # as F.pad wants it
    return (functional.pad(x, from_last) if any(from_last) else x), shared


def _backward(grad_y: Tensor, x: Tensor, weight: Tensor, padding: list[int], how: Convolution, wanted: int) -> Tensor:
    mask = [wanted == 0, wanted == 1, False]
    none = [0] * len(padding)
    grads = torch.ops.aten.convolution_backward(
        grad_y, x, weight, None, how.stride, padding, how.dilation, False, none, weight.shape[0], mask
    )
    grad: Tensor = grads[wanted]
    return grad
