"""Draw filters from a Gaussian with a given covariance, the same ones for the same seed wherever the weight lives.

The normal numbers come from a `torch.Generator` on the CPU as float32, one layer after another, in blocks of a fixed
size; they are multiplied by the symmetric root in float64 on one thread, the mean is added, and the sum is rounded once
to the weight's type. So neither the memory layout, the device, the number of threads nor torch's defaults for new
tensors change a bit of the result.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from filtercov.covariance.forms import Array, check_held, to_odd
from filtercov.covariance.root import Root
from filtercov.errors import ModelError, SourceError
from filtercov.layers.find import check_numbers

# Filters are drawn in blocks of about this many weights: enough to keep the multiplication efficient, little enough
# that the float64 copies of a block stay in cache.
BLOCK_WEIGHTS = 1 << 15


def sample_filters(
    root: Root,
    count: int,
    *,
    mean: Array | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    scale: float = 1.0,
) -> Tensor:
    """Draw `count` filters (count, *kernel_size) on the CPU, rounded once to `dtype`.

    `mean` (n,), for roots of whole filters, is added before `scale` multiplies. Call it inside `drawing()` for results
    that do not depend on the number of threads.
    """
    matrix = root.matrix if scale == 1.0 else root.matrix * scale
    pixels = len(matrix)  # of the window outside of which filters are zero
    make = torch.zeros if pixels < math.prod(root.kernel_size) else torch.empty
    filters = make(count, *root.kernel_size, dtype=dtype, device="cpu")
    window = filters[(slice(None), *root.window)]
    rows = max(1, BLOCK_WEIGHTS // pixels)
    for start in range(0, count, rows):
        # Single-precision draws cost a fifth of double ones and are finer than any network's weights.
        shape = (min(rows, count - start), pixels)
        drawn = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        sample = drawn.numpy().astype(np.float64) @ matrix
        if mean is not None:
            sample += mean * scale
        window[start : start + rows] = rounded(sample, dtype).view(len(drawn), *window.shape[1:])
    return filters


def rounded(values: Array, dtype: torch.dtype) -> Tensor:
    """Convert a float64 array to a tensor of `dtype`, every number to the nearest one of the type.

    torch converts float64 to 16 bits by way of float32, which rounds twice: 1 + 2⁻¹¹ + 2⁻³⁰ lies above the middle of
    two halves, its float32 on it.

    >>> x = np.array([1 + 2**-11 + 2**-30])
    >>> float(torch.from_numpy(x).half()) - 1, float(rounded(x, torch.half)) - 1
    (0.0, 0.0009765625)
    """
    exact = torch.from_numpy(values)
    return exact.to(dtype) if dtype.itemsize >= 4 else torch.from_numpy(to_odd(values)).to(dtype)


@contextmanager
def drawing() -> Iterator[None]:
    """Compute on one thread and without gradients: rounding depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _controller().limit(limits=1, user_api="blas"), torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def check_filters(filters: Tensor) -> None:
    """Raise if filters rounded to their type were too large for it, or all became zero."""
    low, high = filters.aminmax()
    check_held(float(torch.maximum(-low, high)), filters.dtype)


def check_weight(weight: Tensor, who: str) -> tuple[int, ...]:
    """The kernel size of a convolution weight that can be filled; a `ModelError` says why another cannot."""
    if not isinstance(weight, Tensor) or weight.ndim not in (3, 4, 5):
        came = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise ModelError(f"{who}: needed a convolution weight (channels, 1, *kernel_size), a tensor, got {came}")
    check_numbers(weight, who)
    return tuple(weight.shape[2:])


def check_generator(generator: torch.Generator | None, seed: int | None) -> torch.Generator | None:
    """The generator to draw from; None is torch's global one."""
    if seed is not None:
        if generator is not None:
            raise SourceError("seed: needed a seed or a generator, got both; leave one out")
        try:
            return torch.Generator("cpu").manual_seed(operator.index(seed))
        except (TypeError, RuntimeError, ValueError, OverflowError):
            raise SourceError(f"seed: needed a whole number of at most 64 bits, got {seed!r}") from None
    if generator is not None and (not isinstance(generator, torch.Generator) or generator.device.type != "cpu"):
        raise SourceError(
            f"generator: needed a torch.Generator on the CPU, where all filters are drawn, or None, got {generator!r}; "
            "a number is given as seed="
        )
    return generator
