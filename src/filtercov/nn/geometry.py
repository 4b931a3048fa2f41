"""Padding, stride and dilation of a depthwise convolution, and the sizes that follow from them.

Padding is (before, after) along each axis in turn; for images that is (top, bottom, left, right).
"""

from collections.abc import Sequence
from math import prod
from operator import index
from typing import NamedTuple

from filtercov.errors import KernelError

Size = int | Sequence[int]
Numbers = tuple[int, ...]


class Geometry(NamedTuple):
    """Padding, stride and dilation: one number an axis, of padding two."""

    padding: Numbers
    stride: Numbers
    dilation: Numbers

    def out_size(self, size: Sequence[int], kernel: Sequence[int]) -> Numbers:
        """The size of the output for an image of `size`.

        >>> Geometry((4, 4, 3, 3), (1, 2), (1, 1)).out_size((16, 16), (9, 9))
        (16, 7)
        """
        spans = self.spans(kernel)
        return tuple(
            (size[i] + self.padding[2 * i] + self.padding[2 * i + 1] - spans[i]) // self.stride[i] + 1
            for i in range(len(size))
        )

    def spans(self, kernel: Sequence[int]) -> Numbers:
        """The number of pixels from the first tap of a filter to its last, along each axis."""
        return tuple(step * (taps - 1) + 1 for step, taps in zip(self.dilation, kernel, strict=True))

    def is_scaling(self, kernel: Sequence[int]) -> bool:
        """Whether the convolution multiplies each channel by a number: one tap, no stride, no padding."""
        return prod(kernel) == 1 and max(self.stride) == 1 and max(self.padding) == 0


def parse_geometry(kernel: Sequence[int], stride: Size, padding: Size | str, dilation: Size) -> Geometry:
    """The arguments of `F.conv2d` as a `Geometry`; "same" puts an odd pixel of padding after the image.

    Only what cannot be a `Geometry` is refused here: the operators check the numbers.

    >>> parse_geometry((4, 3), stride=1, padding="same", dilation=1).padding
    (1, 2, 1, 1)
    """
    axes = len(kernel)
    strides, dilations = _numbers(axes, stride), _numbers(axes, dilation)
    if not isinstance(padding, str):
        edges = tuple(edge for edge in _numbers(axes, padding) for _ in range(2))
    elif padding == "valid":
        edges = (0, 0) * axes
    elif padding == "same" and max(strides) == 1:
        totals = [step * (taps - 1) for step, taps in zip(dilations, kernel, strict=True)]
        edges = tuple(edge for total in totals for edge in (total // 2, total - total // 2))
    else:
        raise KernelError(
            f"depthwise_conv{axes}d: padding must be 'same' (with stride 1), 'valid' or numbers, got {padding!r} with "
            f"stride {strides}"
        )
    return Geometry(edges, strides, dilations)


def _numbers(axes: int, value: Size) -> Numbers:
    """One integer an axis, from as many or from one for all."""
    if type(value) is int:  # the usual case, quickly
        return (value,) * axes
    values = tuple(map(index, value)) if isinstance(value, Sequence) else (index(value),)
    return values * axes if len(values) == 1 else values
