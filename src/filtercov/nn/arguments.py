"""Check what `depthwise_conv2d` is given, before any memory is touched.

The kinds of error are those of `F.conv2d`: TypeError for what is no tensor or no integer, RuntimeError for the rest.
"""

from collections.abc import Sequence

from torch import Tensor, is_autocast_enabled

from filtercov.errors import ConvolutionError

Size = int | Sequence[int]


def check_tensors(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise unless x (N, C, H, W) or (C, H, W), weight (M * C, 1, KH, KW) and bias (M * C,) belong together."""
    for name, value in (("x", x), ("weight", weight), ("bias", bias)):
        if not isinstance(value, Tensor) and not (name == "bias" and value is None):
            raise TypeError(f"depthwise_conv2d: {name} must be a tensor, got {type(value).__name__}")
    check_shapes(x.shape, weight.shape, None if bias is None else bias.shape)
    _check_kind(x, "weight", weight)
    if bias is not None:
        _check_kind(x, "bias", bias)


def check_shapes(image: Sequence[int], filters: Sequence[int], bias: Sequence[int] | None) -> None:
    """Raise unless the shapes are those of a depthwise convolution, of one image or of several."""
    if len(image) not in (3, 4):
        raise ConvolutionError(f"depthwise_conv2d: x must be (N, C, H, W) or (C, H, W), got {tuple(image)}")
    if len(filters) != 4 or filters[1] != 1:
        raise ConvolutionError(f"depthwise_conv2d: weight must be (C, 1, KH, KW), got {tuple(filters)}")
    channels = image[-3]
    if channels == 0 or filters[0] == 0 or filters[0] % channels != 0:
        raise ConvolutionError(
            f"depthwise_conv2d: {channels} channels need a multiple of {channels} filters, got {filters[0]}; x is "
            f"{tuple(image)}, weight {tuple(filters)}"
        )
    if bias is not None and tuple(bias) != (filters[0],):
        raise ConvolutionError(
            f"depthwise_conv2d: {filters[0]} filters need a bias of ({filters[0]},), got {tuple(bias)}"
        )


def _check_kind(x: Tensor, name: str, other: Tensor) -> None:
    if other.device != x.device:
        raise ConvolutionError(
            f"depthwise_conv2d: x is on {x.device} but {name} on {other.device}; move one to the other's device"
        )
    # Under autocast F.conv2d brings them to one dtype itself.
    if other.dtype != x.dtype and not is_autocast_enabled(x.device.type):
        raise ConvolutionError(
            f"depthwise_conv2d: x is {x.dtype} but {name} {other.dtype}; convert one to the other's dtype"
        )


def pair(name: str, value: Size, *, least: int = 0) -> tuple[int, int]:
    """Return an argument given as one integer, or a sequence of one or two, as (vertical, horizontal).

    >>> pair("stride", 2), pair("stride", (1, 3))
    ((2, 2), (1, 3))
    """
    if type(value) is int and value >= least:  # the usual case, quickly
        return value, value
    values = (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, Sequence) else ()
    if isinstance(value, str) or not values or not all(isinstance(v, int) for v in values):
        raise TypeError(f"depthwise_conv2d: {name} must be an integer or a pair of them, got {value!r}")
    if len(values) == 1:
        values = values * 2
    if len(values) != 2 or min(values) < least:
        raise ConvolutionError(f"depthwise_conv2d: {name} needs one or two integers >= {least}, got {value!r}")
    return values


def edges(
    padding: Size | str, kernel: Sequence[int], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Return the padding as (top, bottom, left, right); "same" puts the odd one out at the bottom and the right.

    >>> edges("same", (4, 3), (1, 1), (1, 1))
    (1, 2, 1, 1)
    """
    if padding == "valid":
        return 0, 0, 0, 0
    if padding == "same":
        if stride != (1, 1):
            raise ConvolutionError(
                f"depthwise_conv2d: padding='same' needs stride 1, got {stride}; give numbers instead"
            )
        total = [step * (k - 1) for step, k in zip(dilation, kernel, strict=True)]
        top, left = total[0] // 2, total[1] // 2
        return top, total[0] - top, left, total[1] - left
    if isinstance(padding, str):
        raise ConvolutionError(f"depthwise_conv2d: padding must be 'same', 'valid' or numbers, got {padding!r}")
    vertical, horizontal = pair("padding", padding)
    return vertical, vertical, horizontal, horizontal


def out_size(size: Sequence[int], kernel: Sequence[int], padding: Sequence[int]) -> tuple[int, int]:
    """Return the (height, width) that a convolution of stride 1 makes of an image of `size`.

    >>> out_size((16, 16), (9, 9), (4, 4, 3, 3))
    (16, 14)
    """
    top, bottom, left, right = padding
    return size[0] + top + bottom - kernel[0] + 1, size[1] + left + right - kernel[1] + 1


def check_fit(image: Sequence[int], kernel: Sequence[int], margins: Sequence[int], dilation: tuple[int, int]) -> None:
    """Raise unless an image of this shape has pixels and the kernel, with taps, fits into it with its padding."""
    top, bottom, left, right = margins
    height, width = image[-2:]
    across = dilation[0] * (kernel[0] - 1) + 1, dilation[1] * (kernel[1] - 1) + 1
    if height == 0 or width == 0 or kernel[0] == 0 or kernel[1] == 0:
        raise ConvolutionError(
            f"depthwise_conv2d: images and filters need at least one pixel, got images {tuple(image)} and filters of "
            f"{tuple(kernel)}"
        )
    if height + top + bottom < across[0] or width + left + right < across[1]:
        raise ConvolutionError(
            f"depthwise_conv2d: a filter spanning {across[0]}x{across[1]} does not fit an image of {height}x{width} "
            f"with padding {tuple(margins)} (top, bottom, left, right); use a smaller filter or more padding"
        )
