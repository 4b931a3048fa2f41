"""Check what the depthwise convolutions are given, before any memory is touched.

The kinds of error are those of `F.conv2d`: TypeError for what is no tensor or no integer, RuntimeError for the rest.
Padding is (before, after) along each axis in turn; for images that is (top, bottom, left, right).
"""

from collections.abc import Sequence
from operator import index
from typing import NamedTuple

from torch import SymInt, Tensor, is_autocast_enabled

from filtercov.errors import ConvolutionError

Size = int | Sequence[int]
AXES = {1: "L", 2: "HW", 3: "DHW"}  # the axes of an image, by their number


class Convolution(NamedTuple):
    """How a depthwise convolution moves: one number an axis, of padding two."""

    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]


def function_name(axes: int) -> str:
    """Return the function that a user would call for images of so many axes."""
    return f"depthwise_conv{axes}d"


def letters(axes: int, before: str = "") -> str:
    """Return how the shape of an image is written.

    >>> letters(2, "K")
    'KH, KW'
    """
    return ", ".join(before + axis for axis in AXES[axes])


def check_tensors(axes: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise unless x (N, C, *size) or (C, *size), weight (M * C, 1, *kernel) and bias (M * C,) belong together."""
    function = function_name(axes)
    for name, value in (("x", x), ("weight", weight), ("bias", bias)):
        if not isinstance(value, Tensor) and not (name == "bias" and value is None):
            raise TypeError(f"{function}: {name} must be a tensor, got {type(value).__name__}")
    check_shapes(axes, x.shape, weight.shape, None if bias is None else bias.shape)
    _check_kind(function, x, "weight", weight)
    if bias is not None:
        _check_kind(function, x, "bias", bias)


def check_shapes(axes: int, image: Sequence[int], filters: Sequence[int], bias: Sequence[int] | None) -> None:
    """Raise unless the shapes are those of a depthwise convolution, of one image or of several."""
    function = function_name(axes)
    if len(image) not in (axes + 1, axes + 2):
        size = letters(axes)
        raise ConvolutionError(f"{function}: x must be (N, C, {size}) or (C, {size}), got {tuple(image)}")
    if len(filters) != axes + 2 or filters[1] != 1:
        raise ConvolutionError(f"{function}: weight must be (C, 1, {letters(axes, 'K')}), got {tuple(filters)}")
    channels = image[-1 - axes]
    if channels == 0 or filters[0] == 0 or filters[0] % channels != 0:
        raise ConvolutionError(
            f"{function}: {channels} channels need a multiple of {channels} filters, got {filters[0]}; x is "
            f"{tuple(image)}, weight {tuple(filters)}"
        )
    if bias is not None and tuple(bias) != (filters[0],):
        raise ConvolutionError(f"{function}: {filters[0]} filters need a bias of ({filters[0]},), got {tuple(bias)}")


def _check_kind(function: str, x: Tensor, name: str, other: Tensor) -> None:
    if other.device != x.device:
        raise ConvolutionError(
            f"{function}: x is on {x.device} but {name} on {other.device}; move one to the other's device"
        )
    # Under autocast F.conv2d brings them to one dtype itself.
    if other.dtype != x.dtype and not is_autocast_enabled(x.device.type):
        raise ConvolutionError(f"{function}: x is {x.dtype} but {name} {other.dtype}; convert one to the other's dtype")


def numbers(axes: int, name: str, value: Size, *, least: int = 0) -> tuple[int, ...]:
    """Return an argument given as one integer, or as one for each axis, as one for each.

    >>> numbers(2, "stride", 2), numbers(2, "stride", (1, 3))
    ((2, 2), (1, 3))
    """
    if type(value) is int and value >= least:  # the usual case, quickly
        return (value,) * axes
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    if not all(isinstance(v, int) for v in values):
        values = _whole_numbers(values)
    if not values:
        kind = "an integer" if axes == 1 else f"an integer or {axes} of them"
        raise TypeError(f"{function_name(axes)}: {name} must be {kind}, got {value!r}")
    if len(values) == 1:
        values = values * axes
    if len(values) != axes or min(values) < least:
        count = "one integer" if axes == 1 else f"one or {axes} integers"
        raise ConvolutionError(f"{function_name(axes)}: {name} needs {count} >= {least}, got {value!r}")
    return values


def _whole_numbers(values: Sequence[object]) -> tuple[int, ...]:
    """Return integers of any kind, such as NumPy's, as Python's; none if one of the values is no integer."""
    if any(isinstance(v, Tensor | SymInt) for v in values):  # whose numbers a tracer must not fix
        return ()
    try:
        return tuple(index(v) for v in values)  # type: ignore[arg-type]
    except TypeError:
        return ()


def convolution(axes: int, kernel: Sequence[int], stride: Size, padding: Size | str, dilation: Size) -> Convolution:
    """Return the arguments of a convolution in full; "same" puts the odd one out after the image.

    >>> convolution(2, (4, 3), 1, "same", 1).padding
    (1, 2, 1, 1)
    """
    strides = numbers(axes, "stride", stride, least=1)
    dilations = numbers(axes, "dilation", dilation, least=1)
    return Convolution(_edges(axes, padding, kernel, strides, dilations), strides, dilations)


def _edges(
    axes: int, padding: Size | str, kernel: Sequence[int], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[int, ...]:
    function = function_name(axes)
    if not isinstance(padding, str):
        return tuple(edge for edge in numbers(axes, "padding", padding) for _ in range(2))
    if padding == "valid":
        return (0, 0) * axes
    if padding != "same":
        raise ConvolutionError(f"{function}: padding must be 'same', 'valid' or numbers, got {padding!r}")
    if max(stride) > 1:
        raise ConvolutionError(f"{function}: padding='same' needs stride 1, got {stride}; give numbers instead")
    totals = [step * (taps - 1) for step, taps in zip(dilation, kernel, strict=True)]
    return tuple(edge for total in totals for edge in (total // 2, total - total // 2))


def out_size(size: Sequence[int], kernel: Sequence[int], how: Convolution) -> tuple[int, ...]:
    """Return the size of what a convolution makes of an image of `size`.

    >>> out_size((16, 16), (9, 9), Convolution((4, 4, 3, 3), (1, 2), (1, 1)))
    (16, 7)
    """
    across = spans(kernel, how)
    return tuple(
        (size[i] + how.padding[2 * i] + how.padding[2 * i + 1] - across[i]) // how.stride[i] + 1
        for i in range(len(size))
    )


def spans(kernel: Sequence[int], how: Convolution) -> tuple[int, ...]:
    """Return how many pixels a filter reaches over along each axis."""
    return tuple(step * (taps - 1) + 1 for step, taps in zip(how.dilation, kernel, strict=True))


def check_fit(image: Sequence[int], kernel: Sequence[int], how: Convolution) -> None:
    """Raise unless an image of this shape has pixels and the kernel, with taps, fits into it with its padding."""
    axes = len(kernel)
    function, size, across = function_name(axes), tuple(image[-axes:]), spans(kernel, how)
    if min(size) == 0 or min(kernel) == 0:
        raise ConvolutionError(
            f"{function}: images and filters need at least one pixel, got images {tuple(image)} and filters of "
            f"{tuple(kernel)}"
        )
    if any(size[i] + how.padding[2 * i] + how.padding[2 * i + 1] < across[i] for i in range(axes)):
        filters, images = ("x".join(map(str, extent)) for extent in (across, size))
        raise ConvolutionError(
            f"{function}: a filter spanning {filters} does not fit an image of {images} with padding "
            f"{how.padding} (before and after along each axis); use a smaller filter or more padding"
        )
