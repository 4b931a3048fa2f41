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
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from numpy.typing import ArrayLike
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.nn.parameter import is_lazy

from filtercov.covariance import numbers
from filtercov.covariance.forms import Array, as_mean
from filtercov.covariance.numbers import to_odd
from filtercov.covariance.root import Negative, Root, covariance_root
from filtercov.errors import CovarianceError, ModelError, SourceError
from filtercov.layers.find import overlaps_itself, write_values_

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
    seed: int | None = None,
) -> Tensor:
    """Fill `weight` (channels, 1, *kernel_size) with filters from N(mean, cov), in place, and return it.

    `cov` is (n, n) in flat form and `mean` (n,), n being the number of pixels of a filter; the mean is zero if not
    given. `negative` says what becomes of negative eigenvalues, see `symmetric_root`. Random numbers are of
    `generator`, or of a new one with `seed`, by default of torch's global one.

    >>> from filtercov.covariance import gaussian_covariance
    >>> weight = torch.empty(256, 1, 9, 9)
    >>> _ = covariance_normal_(weight, gaussian_covariance(9, 1.5), seed=0)
    >>> bool(weight[:, 0, 4, 4].std() > 3 * weight[:, 0, 0, 0].std())  # most variance is at the centre
    True
    """
    who = "covariance_normal_"
    check_drawing(who)
    generator = check_generator(generator, seed)
    kernel_size = check_weight(weight, who)
    if overlaps_itself(weight):
        raise ModelError(
            f"{who}: needed a weight whose numbers can differ, got one whose numbers share memory with each other, as "
            "expand leaves them; clone it first"
        )
    with drawing():
        try:
            centre = check_mean(mean, kernel_size)
            root = covariance_root(as_array(cov, "covariance"), kernel_size, negative=negative)
        except CovarianceError as error:
            raise CovarianceError(f"{who}: {error}") from None
        count = weight.shape[0] * weight.shape[1]
        filters = sample_filters(root, count, mean=centre, generator=generator, dtype=weight.dtype)
        try:
            check_held(filters)
        except CovarianceError as error:
            raise CovarianceError(f"{who}: {error}; use a smaller covariance") from None
        asked_for_zero = not root.matrix.any() and (centre is None or not centre.any())
        if filters.numel() and not asked_for_zero and not filters.any():
            raise CovarianceError(
                f"{who}: needed filters that {weight.dtype} can hold, got numbers so small that all would be zero; use "
                "a larger covariance"
            )
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

    `mean` (n,) is added before `scale` multiplies. Call it inside `drawing()` for results that do not depend on the
    number of threads.
    """
    matrix = root.matrix if scale == 1.0 else root.matrix * scale
    pixels = len(matrix)  # of the window outside of which filters are zero, or the mean
    centre = None if mean is None else (mean * scale).reshape(root.kernel_size)
    filters = torch.empty(count, *root.kernel_size, dtype=dtype, device="cpu")
    if pixels < math.prod(root.kernel_size):
        filters[:] = 0.0 if centre is None else rounded(centre, dtype)
    window = filters[(slice(None), *root.window)]
    rows = max(1, BLOCK_WEIGHTS // pixels)
    for start in range(0, count, rows):
        # Single-precision draws cost a fifth of double ones and are finer than any network's weights.
        shape = (min(rows, count - start), pixels)
        drawn = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")
        sample = drawn.numpy().astype(np.float64) @ matrix
        if centre is not None:
            sample += centre[root.window].reshape(pixels)
        window[start : start + rows] = rounded(sample, dtype).view(len(drawn), *window.shape[1:])
    return filters


def check_held(filters: Tensor) -> None:
    """Raise if filters that were rounded to their type were too large for it."""
    comparable = filters if filters.dtype.itemsize > 1 else filters.float()  # of 8 bits have no order in torch
    if comparable.numel() and not all(bound.isfinite() for bound in comparable.aminmax()):
        largest = torch.finfo(filters.dtype).max
        raise CovarianceError(f"needed filters that {filters.dtype} can hold, up to {largest:.3g}, got larger numbers")


def rounded(values: Array, dtype: torch.dtype) -> Tensor:
    """Return a float64 array as a tensor of `dtype`, every number the nearest that the type has.

    torch converts float64 to 16 bits by way of float32, which rounds twice: 1 + 2⁻¹¹ + 2⁻³⁰ lies above the middle of
    two halves, its float32 on it.

    >>> import numpy as np
    >>> x = np.array([1 + 2**-11 + 2**-30])
    >>> float(torch.from_numpy(x).half()) - 1, float(rounded(x, torch.half)) - 1
    (0.0, 0.0009765625)
    """
    exact = torch.from_numpy(values)
    return exact.to(dtype) if dtype.itemsize >= 4 else torch.from_numpy(to_odd(values)).to(dtype)


@contextmanager
def drawing() -> Iterator[None]:
    """Compute on one thread, in the types that were asked for and without recording gradients, whatever the settings.

    Under autocast a parametrised weight may show another type than it has.
    """
    with ExitStack() as settings:
        settings.enter_context(one_thread())
        settings.enter_context(torch.no_grad())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                settings.enter_context(torch.autocast(device, enabled=False))
        yield


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


def check_drawing(who: str) -> None:
    """Raise where torch does not really compute, and random numbers cannot be drawn or looked at."""
    try:
        torch.randn(1, generator=torch.Generator("cpu"), dtype=torch.float32, device="cpu").numpy()
    except RuntimeError as error:
        raise ModelError(
            f"{who}: needed to draw random numbers, got a call inside FakeTensorMode or a torch.func transform such as "
            f"vmap or grad ({str(error).splitlines()[0]}); fill the weights outside of it"
        ) from None


def check_weight(weight: Tensor, who: str) -> tuple[int, ...]:
    """Return the kernel size of a convolution weight that can be filled with real numbers, or say why it cannot."""
    needed = "a convolution weight (channels, 1, *kernel_size)"
    if not isinstance(weight, Tensor):
        raise ModelError(f"{who}: needed {needed} as a torch.Tensor, got {type(weight).__name__}; pass the tensor")
    if is_lazy(weight):
        raise ModelError(
            f"{who}: needed {needed}, got that of a lazy layer without one yet; run the model once on an example first"
        )
    if weight.ndim not in (3, 4, 5):
        raise ModelError(f"{who}: needed {needed}, got {tuple(weight.shape)}")
    if weight.layout != torch.strided:
        raise ModelError(f"{who}: needed a dense weight, got one of layout {weight.layout}; use its to_dense() instead")
    lacking = _without_values(weight)
    if lacking:
        raise ModelError(f"{who}: needed a weight with storage, got one {lacking}")
    if weight.is_inference() and not torch.is_inference_mode_enabled():
        raise ModelError(
            f"{who}: needed a weight that can be changed, got one made in torch.inference_mode(); make the model "
            "outside of it, or fill its weights inside"
        )
    if not weight.is_floating_point():
        raise ModelError(f"{who}: needed a floating-point weight, got {weight.dtype}")
    return tuple(weight.shape[2:])


def check_generator(generator: torch.Generator | None, seed: int | None) -> torch.Generator | None:
    """Return what to draw from, torch's global generator if None, or raise unless that can be done on the CPU."""
    if seed is not None:
        if generator is not None:
            raise SourceError("seed: needed a seed or a generator, got both; leave one out")
        try:
            return torch.Generator("cpu").manual_seed(operator.index(seed))
        except (TypeError, RuntimeError, ValueError, OverflowError):
            raise SourceError(f"seed: needed a whole number of at most 64 bits, got {seed!r}") from None
    if generator is not None and not isinstance(generator, torch.Generator):
        raise SourceError(
            f"generator: needed a torch.Generator or None, got {generator!r}; a number is given as seed={generator!r}"
            if isinstance(generator, int)
            else f"generator: needed a torch.Generator or None, got {type(generator).__name__}"
        )
    if generator is not None and generator.device.type != "cpu":
        raise ModelError(
            f"generator: needed one on the CPU, where all filters are drawn, got one on {generator.device}; pass "
            "seed=, or torch.Generator().manual_seed(seed)"
        )
    return generator


def check_mean(mean: ArrayLike | Tensor | None, kernel_size: tuple[int, ...]) -> Array | None:
    """Return the mean as float64 (n,), or say what is wrong with it."""
    return None if mean is None else as_mean(_without_device(mean), kernel_size)


def as_array(values: ArrayLike | Tensor, what: str) -> Array:
    """Return an array or tensor, on any device and of any real type, as float64, or say that it is something else."""
    return numbers.as_array(_without_device(values), what)


def _without_device(values: ArrayLike | Tensor) -> ArrayLike:
    """Return what a tensor of real numbers holds, on whichever device, as an array; anything else as it is."""
    if isinstance(values, Tensor) and not values.is_complex() and not _without_values(values):
        return values.detach().cpu().double().resolve_neg().numpy()
    return values


def _without_values(tensor: Tensor) -> str:
    """Say what is the matter with a tensor that has no numbers stored behind it, '' if it has."""
    if tensor.device.type == "meta":
        return "on the meta device; materialise the model first with model.to_empty(device=...)"
    try:
        fake = tensor.untyped_storage().device.type == "meta"
    except NotImplementedError:
        return "that only stands for others, as inside vmap or grad of torch.func; call this outside of them"
    return "made in FakeTensorMode; make it outside of that mode" if fake else ""
