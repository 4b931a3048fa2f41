"""What `torch.utils.flop_counter.FlopCounterMode` counts for each operator: what it counts for PyTorch's own.

Every function takes the operator's arguments with shapes in place of tensors.
"""

from collections.abc import Sequence
from typing import Any

from torch.utils.flop_counter import conv_flop_count

Shape = Sequence[int]


def convolution(x: Shape, weight: Shape, *_how: Any, out_shape: Shape) -> int:
    """Return two for each tap of each output pixel.

    >>> convolution((1, 8, 4, 4), (8, 1, 3, 3), out_shape=(1, 8, 4, 4)) == 2 * 9 * 8 * 16
    True
    """
    return conv_flop_count(list(x), list(weight), list(out_shape))


def input_grad(grad_y: Shape, weight: Shape, *_how: Any, out_shape: Shape) -> int:
    """Return what the forward pass costs."""
    return conv_flop_count(list(grad_y), list(weight), list(out_shape), transposed=True)


def weight_grad(grad_y: Shape, x: Shape, *_how: Any, out_shape: Shape) -> int:
    """Return PyTorch's figure, which has every channel meet every other: C times what a depthwise gradient costs."""
    return conv_flop_count(_swapped(x), _swapped(grad_y), _swapped(out_shape))


def norm_mlp(
    x: Shape, _shortcut: Shape | None, _weight: Shape, _bias: Shape, _eps: float, w1: Shape, *_: Any, **_out: Any
) -> int:
    """Return two for each weight of both matrices and each pixel; w1 and w2 have as many.

    >>> norm_mlp((2, 8, 4, 4), None, (8,), (8,), 1e-6, (32, 8), out_shape=None) == 2 * 2 * 32 * (32 * 8)
    True
    """
    return 2 * 2 * _pixels(x) * w1[0] * w1[1]


def norm_mlp_backward(_grad_y: Shape, x: Shape, *rest: Any, **_out: Any) -> int:
    """Return twice what the forward pass costs."""
    w1: Shape = rest[5]
    return 2 * 2 * 2 * _pixels(x) * w1[0] * w1[1]


def nothing(*_arguments: Any, **_out: Any) -> int:
    """Return zero: sums, activations and norms are not counted."""
    return 0


def _swapped(shape: Shape) -> list[int]:
    return [shape[1], shape[0], *shape[2:]]


def _pixels(x: Shape) -> int:
    return x[0] * x[2] * x[3]
