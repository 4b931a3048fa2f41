"""The four passes of a stride-1 depthwise convolution in PyTorch's own operators, for any dtype, device and layout.

They are what the native kernels are compared with, and what runs wherever those do not. `padding` is (top, bottom,
left, right), each at least zero.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Sequence[int]) -> Tensor:
    """Return the (N, C, OH, OW) convolution of (N, C, H, W) with (C, 1, KH, KW)."""
    x, symmetric = _pad_rest(x, padding)
    return functional.conv2d(x, weight, bias, padding=symmetric, groups=weight.shape[0])


def input_grad(grad_y: Tensor, weight: Tensor, padding: Sequence[int], size: Sequence[int]) -> Tensor:
    """Return the (N, C, H, W) gradient of the input, where (H, W) is `size`."""
    # The values of x do not enter, only its shape; expanding one element costs no memory.
    x = grad_y.new_zeros(()).expand(grad_y.shape[0], grad_y.shape[1], *size)
    padded, symmetric = _pad_rest(x, padding)
    grad = _backward(grad_y, padded, weight, symmetric, 0)
    return grad[:, :, : size[0], : size[1]]


def weight_grad(grad_y: Tensor, x: Tensor, padding: Sequence[int], kernel: Sequence[int]) -> Tensor:
    """Return the (C, 1, KH, KW) gradient of the filters, where (KH, KW) is `kernel`."""
    x, symmetric = _pad_rest(x, padding)
    weight = x.new_zeros(()).expand(x.shape[1], 1, *kernel)
    return _backward(grad_y, x, weight, symmetric, 1)


def channel_sum(x: Tensor) -> Tensor:
    """Return the (C,) sums over images and pixels: the gradient of the bias."""
    return x.sum((0, 2, 3))


def _pad_rest(x: Tensor, padding: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Return the padding both sides share, and x with what remains on one side added as zeros."""
    top, bottom, left, right = padding
    shared = [min(top, bottom), min(left, right)]
    rest = [left - shared[1], right - shared[1], top - shared[0], bottom - shared[0]]
    return (functional.pad(x, rest) if any(rest) else x), shared


def _backward(grad_y: Tensor, x: Tensor, weight: Tensor, padding: list[int], wanted: int) -> Tensor:
    mask = [wanted == 0, wanted == 1, False]
    grads = torch.ops.aten.convolution_backward(
        grad_y, x, weight, None, [1, 1], padding, [1, 1], False, [0, 0], weight.shape[0], mask
    )
    grad: Tensor = grads[wanted]
    return grad
