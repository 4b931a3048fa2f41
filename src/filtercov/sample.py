"""Draw filters from a Gaussian with a given covariance, the same ones for the same seed wherever the weight lives.

The normal numbers come from a `torch.Generator` on the CPU, one layer after another, in blocks of a fixed size; they
are multiplied by the symmetric root in float64 on one thread and rounded once to the weight's type. So neither the
memory layout, the device nor the number of threads changes a bit of the result.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import ArrayLike
from threadpoolctl import ThreadpoolController
from torch import Tensor

from filtercov.covariance.forms import Array, show_size
from filtercov.covariance.root import Negative, Root, covariance_root
from filtercov.depthwise.weight import write_values_
from filtercov.errors import CovarianceError, ModelError

# Filters are drawn in blocks of about this many weights: enough to keep the multiplication efficient, little enough
# that the float64 copies of a block stay in cache.
BLOCK_WEIGHTS = 1 << 15


def covariance_normal_(
    weight: Tensor,
    cov: ArrayLike | Tensor,
    mean: ArrayLike | Tensor | None = None,
    *,
    negative: Negative = "clip",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill `weight` (channels, 1, *kernel_size) with filters from N(mean, cov), in place, and return it.

    `cov` is (n, n) in flat form and `mean` (n,), n being the number of pixels of a filter; the mean is zero if not
    given. `negative` says what becomes of negative eigenvalues, see `symmetric_root`.

    >>> from filtercov.covariance import gaussian_covariance
    >>> weight = torch.empty(256, 1, 9, 9)
    >>> _ = covariance_normal_(weight, gaussian_covariance(9, 1.5), generator=torch.Generator().manual_seed(0))
    >>> bool(weight[:, 0, 4, 4].std() > 3 * weight[:, 0, 0, 0].std())  # most variance is at the centre
    True
    """
    kernel_size = check_weight(weight, "covariance_normal_")
    check_generator(generator)
    with one_thread(), torch.no_grad():
        try:
            centre = check_mean(mean, kernel_size)
            root = covariance_root(_as_numpy(cov), kernel_size, negative=negative)
        except CovarianceError as error:
            raise CovarianceError(f"covariance_normal_: {error}") from None
        filters = sample_filters(root, weight.shape[0] * weight.shape[1], mean=centre, generator=generator)
        return write_values_(weight, filters.view(weight.shape))


def sample_filters(
    root: Root,
    count: int,
    *,
    mean: Array | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    scale: float = 1.0,
) -> Tensor:
    """Return `count` filters (count, *kernel_size) on the CPU, rounded once to `dtype`.

    Call it inside `one_thread()` for results that do not depend on the number of threads.
    """
    matrix = root.matrix if scale == 1.0 else root.matrix * scale
    pixels = len(matrix)  # of the window outside of which filters are zero
    whole = pixels == math.prod(root.kernel_size)
    filters = (torch.empty if whole else torch.zeros)(count, *root.kernel_size, dtype=dtype)
    window = filters[(slice(None), *root.window)]
    rows = max(1, BLOCK_WEIGHTS // pixels)
    for start in range(0, count, rows):
        # Single-precision draws cost a fifth of double ones and are finer than any network's weights.
        drawn = torch.randn(min(rows, count - start), pixels, generator=generator)
        sample = torch.from_numpy(drawn.numpy().astype(np.float64) @ matrix)
        window[start : start + rows] = sample.view(len(drawn), *window.shape[1:])
    if mean is not None:
        filters = (filters.double() + torch.from_numpy(mean).view(root.kernel_size) * scale).to(dtype)
    return filters


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, so that rounding does not depend on how many there are.

    Nor could more of them help: NumPy's and torch's would spend their time waiting for each other.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def check_weight(weight: Tensor, who: str) -> tuple[int, ...]:
    """Return the kernel size of a convolution weight that can be filled with real numbers, or say why it cannot."""
    if weight.ndim not in (3, 4, 5):
        raise ModelError(f"{who}: needed a convolution weight (channels, 1, *kernel_size), got {tuple(weight.shape)}")
    if weight.device.type == "meta":
        raise ModelError(
            f"{who}: needed a weight with storage, got one on the meta device; materialise the model first with "
            "model.to_empty(device=...)"
        )
    if not weight.is_floating_point():
        raise ModelError(f"{who}: needed a floating-point weight, got {weight.dtype}")
    return tuple(weight.shape[2:])


def check_generator(generator: torch.Generator | None) -> None:
    """Raise unless random numbers can be drawn on the CPU."""
    if generator is not None and generator.device.type != "cpu":
        raise ModelError(
            f"generator: needed one on the CPU, where all filters are drawn, got one on {generator.device}; use "
            "torch.Generator().manual_seed(seed)"
        )


def check_mean(mean: ArrayLike | Tensor | None, kernel_size: tuple[int, ...]) -> Array | None:
    """Return the mean as float64 (n,), or say what is wrong with it."""
    if mean is None:
        return None
    n = math.prod(kernel_size)
    vector = np.asarray(_as_numpy(mean), dtype=np.float64)
    if vector.size != n or vector.shape not in ((n,), kernel_size):
        raise CovarianceError(f"{show_size(kernel_size)} filters need a ({n},) mean, got {vector.shape}")
    if not np.isfinite(vector).all():
        raise CovarianceError("mean: needed finite numbers, got nan or inf")
    return vector.reshape(n)


def _as_numpy(values: ArrayLike | Tensor) -> ArrayLike:
    return values.detach().cpu().double().numpy() if isinstance(values, Tensor) else values
