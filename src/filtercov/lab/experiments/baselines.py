"""What the closed form is compared with: formulas that others propose, and controls that lack one of its properties.

docs/rivals.md has a table of both, with their scales and sources. Impulse, box and bump are as their authors' first
published code has them, in scale too, which is that of PyTorch's default.

Formulas are samplers of a weight (channels, 1, *kernel_size), n pixels a filter, in any number of dimensions. What is
random is drawn in a fixed order from the generator given; what is computed is float64, for whoever writes the filters
to round once.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from filtercov.covariance import gaussian_covariance, symmetric_root
from filtercov.covariance.closed_form import axis_gaussians
from filtercov.covariance.forms import Array, kron, show_size
from filtercov.covariance.root import Negative
from filtercov.errors import ConfigError
from filtercov.layers.assign import assign_filters_
from filtercov.layers.find import DepthwiseLayer, depthwise_layers
from filtercov.layers.sample import check_weight, drawing, rounded

Sample = Callable[[torch.Size, torch.Generator], Tensor]

POWER = 1 / 3  # the mean squared norm of U(±1/√n) filters

# The pooled least-squares fits of arXiv 2509.12746 to the eight filters, deviations in pixels of 7×7 filters.
ONE_SIDED, CENTRED = 0.522, 1.108
SHARPENING, SHARPENING_STRENGTH = 0.675, 0.526


def fill_(model: nn.Module, sample: Callable[[DepthwiseLayer], Tensor]) -> None:
    """Fill all layers or none; what is computed in double precision is rounded once."""
    layers = depthwise_layers(model)
    for layer in layers:
        check_weight(layer.weight, layer.name)
    with drawing():
        assign_filters_(layers, [rounded(sample(layer).double().numpy(), layer.weight.dtype) for layer in layers])


def uniform(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """U(±1/√n) weights."""
    return (2.0 * _empty(shape).uniform_(generator=generator) - 1.0) / math.sqrt(math.prod(shape[2:]))


def kaiming(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """N(0, 2/n) weights."""
    return _empty(shape).normal_(generator=generator) * math.sqrt(2.0 / math.prod(shape[2:]))


def trunc_normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """N(0, .02²) weights; the cut at ±2, a hundred deviations, is timm's and never made."""
    return nn.init.trunc_normal_(_empty(shape), std=0.02, generator=generator)


def orthogonal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Orthonormal filters or, where there are more of them than pixels, pixels orthonormal over the filters."""
    return nn.init.orthogonal_(_empty(shape), generator=generator)


def identity(shape: torch.Size, _generator: torch.Generator) -> Tensor:
    """Filters that change nothing: 1 at the pixel that `padding="same"` puts over the one computed.

    >>> identity(torch.Size((1, 1, 4)), torch.Generator())[0, 0].tolist()
    [0.0, 1.0, 0.0, 0.0]
    """
    return _impulses(shape, [(size - 1) // 2 for size in shape[2:]], 1.0)


def delta_gaussian(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Filters that are N(0, 1) at the centre and zero elsewhere."""
    return _impulses(shape, [size // 2 for size in shape[2:]], _empty((shape[0],)).normal_(generator=generator))


def _impulses(shape: torch.Size, place: Sequence[int], values: Tensor | float) -> Tensor:
    filters = _empty(shape).zero_()
    at: tuple[slice | int, ...] = (slice(None), 0, *place)
    filters[at] = values
    return filters


def box(count: float, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Filters that are equal at `count` random pixels, any set of them as likely, and zero elsewhere."""
    count, pixels = int(count), math.prod(shape[2:])
    if count > pixels:
        size = show_size(tuple(shape[2:]))
        raise ConfigError(f"needed filters of at least {count} pixels for box:{count}, got {size}; choose fewer")
    # Double precision, of whose numbers no two are equal.
    drawn = torch.rand((shape[0], pixels), generator=generator, dtype=torch.float64, device="cpu")
    chosen = drawn.argsort(dim=1)[:, :count]
    return torch.zeros_like(drawn).scatter_(1, chosen, math.sqrt(POWER / count)).reshape(shape)


impulse = partial(box, 1)


def gaussian_bump(variance: float, shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Gaussians of a variance, in pixels², around random pixels of the filter, cut where it ends.

    The layer is scaled as a whole to the mean squared norm 1/3, as its authors do it, so that filters whose bump is cut
    are smaller than others.
    """
    filters = np.ones((shape[0], 1))
    for size in shape[2:]:
        centre = torch.randint(size, (shape[0], 1), generator=generator, dtype=torch.int64, device="cpu").numpy()
        along = np.exp((np.arange(size) - centre) ** 2 / (-2 * variance))
        filters = (filters[:, :, None] * along[:, None, :]).reshape(shape[0], -1)
    filters *= math.sqrt(POWER * shape[0] / (filters**2).sum())
    return torch.from_numpy(filters.reshape(shape))


def master_keys(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Filters each of which is one of `master_key_filters`, any as likely, scaled to the squared norm 1/3."""
    keys = master_key_filters(tuple(shape[2:]))
    chosen = torch.randint(len(keys), (shape[0],), generator=generator, dtype=torch.int64, device="cpu").numpy()
    return torch.from_numpy(math.sqrt(POWER) * keys[chosen].reshape(shape))


def master_key_filters(kernel_size: tuple[int, ...]) -> Array:
    """The "master key" filters (count, *kernel_size), each of unit norm: eight for filters of two axes.

    Babaiee et al. (arXiv 2509.11711) find eight filters of which those of trained networks are nearly all multiples,
    plus a constant; Lindeberg et al. (arXiv 2509.12746) model them by differences of T, the discrete analogue of the
    Gaussian. With the latter's pooled fits, along each axis of more than one pixel

        T(p+1) - T(p), T(p) - T(p-1) at σ = .522, ½ (T(p+1) - T(p-1)) at σ = 1.108

    and then δ(p) - .526 (ΔT)(p) at σ = .675, where Δ is the sum of the axes' second differences, and T at σ = .522.
    Differences are taken before a filter is cut to its size; an even one has its centre left of the middle.

    >>> master_key_filters((7, 7)).shape, master_key_filters((9,)).shape, master_key_filters((3, 3, 3)).shape
    ((8, 7, 7), (5, 9), (11, 3, 3, 3))
    """
    axes = [axis for axis, size in enumerate(kernel_size) if size > 1]

    def smoothed(sigma: float, axis: int, stencil: Mapping[int, float]) -> Array:
        """T where along one axis it is the sum of weight × T(p + shift) over the stencil."""
        factors = []
        for along, size in enumerate(kernel_size):
            p = np.arange(size, dtype=np.float64) - (size - 1) // 2
            shifts = stencil if along == axis else {0: 1.0}
            factors.append(sum(weight * _discrete_gaussian(p + shift, sigma) for shift, weight in shifts.items()))
        return np.asarray(reduce(np.multiply.outer, factors))

    one_sided = [smoothed(ONE_SIDED, axis, stencil) for stencil in ({1: 1, 0: -1}, {0: 1, -1: -1}) for axis in axes]
    centred = [smoothed(CENTRED, axis, {1: 0.5, -1: -0.5}) for axis in axes]
    sharpened = identity(torch.Size((1, 1, *kernel_size)), torch.Generator())[0, 0].double().numpy()
    for axis in axes:
        sharpened = sharpened - SHARPENING_STRENGTH * smoothed(SHARPENING, axis, {1: 1, 0: -2, -1: 1})
    keys = np.stack([*one_sided, *centred, sharpened, smoothed(ONE_SIDED, 0, {0: 1})])
    unit: Array = keys / np.sqrt((keys**2).sum(axis=tuple(range(1, keys.ndim)), keepdims=True))
    return unit


def _discrete_gaussian(positions: Array, sigma: float) -> Array:
    """exp(-σ²) I_p(σ²) at whole numbers p, I_p a modified Bessel function: what diffusion on a grid makes of 1.

    Its Fourier transform is exp(σ² (cos θ - 1)), so it is a mean over frequencies, of which 1024 are enough for filters
    of several hundred pixels a side.
    """
    theta = 2 * np.pi * np.arange(1024) / 1024
    transform = np.exp(sigma**2 * (np.cos(theta) - 1))
    values: Array = (transform * np.cos(np.multiply.outer(positions, theta))).mean(axis=-1)
    return values


def _empty(shape: torch.Size | tuple[int, ...]) -> Tensor:
    """A tensor to fill, of the same type and in the same place whatever torch's defaults are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


# --- Controls ---
#
# Whoever doubts the paper's construction asks what in it does the work. Each control lacks one part, which `_without`
# and docs/rivals.md name. All of them have the total variance (trace) of the closed form of the layer's σ, after
# negative eigenvalues were dealt with, so that scale is never what differs. `power`, uniform noise of that variance,
# keeps nothing else.
#
# C cannot simply be left out: −½ M ⊙ S is negative definite and no covariance. The identity in its place leaves every
# pixel its variance and takes away what C says of its neighbours.

Control = Literal["diagonal", "scrambled", "no-static", "no-mask", "no-dynamic", "one-sigma"]
CONTROLS: tuple[Control, ...] = get_args(Control)


def control_covariance(
    control: Control,
    kernel_size: tuple[int, ...],
    *,
    sigma: float,
    mean_sigma: float,
    negative: Negative,
    random: np.random.Generator,
) -> Array:
    """The (n, n) covariance of a control for a layer whose closed form has `sigma`."""
    closed_form = _usable(gaussian_covariance(kernel_size, sigma), negative)
    if control == "scrambled":  # the same eigenvalues in a basis drawn uniformly (Haar)
        basis, triangle = np.linalg.qr(random.standard_normal(closed_form.shape))
        basis = basis * np.sign(np.diag(triangle))
        scrambled: Array = (basis * np.linalg.eigvalsh(closed_form).clip(min=0.0)) @ basis.T
        return 0.5 * (scrambled + scrambled.T)
    if control == "diagonal":
        other = np.diag(np.diag(closed_form))
    elif control == "one-sigma":
        other = _usable(gaussian_covariance(kernel_size, mean_sigma), negative)
    else:
        other = _usable(_without(control, kernel_size, sigma), negative)
    scaled: Array = other * (np.trace(closed_form) / np.trace(other))
    return scaled


def total_variance(kernel_size: tuple[int, ...], sigma: float, *, negative: Negative) -> float:
    """The mean squared norm of filters drawn from the closed form."""
    return float(np.trace(_usable(gaussian_covariance(kernel_size, sigma), negative)))


def _without(control: Control, kernel_size: tuple[int, ...], sigma: float) -> Array:
    """The symmetric part of the paper's Σ̂ = M ⊙ (C − ½S) without one of its components, in flat form.

    There M_pq = z_p, S_pq = z_q, and C_pq is the Gaussian of the wrap-around distance of p and q.
    """
    z, C = (kron(factors) for factors in zip(*(axis_gaussians(k, sigma) for k in kernel_size), strict=True))
    S = np.broadcast_to(z, C.shape)
    M = S.T
    if control == "no-static":
        one_sided = M * C
    elif control == "no-mask":
        one_sided = C - 0.5 * S
    else:
        one_sided = M * (np.eye(len(z)) - 0.5 * S)
    symmetric: Array = 0.5 * (one_sided + one_sided.T)
    return symmetric


def _usable(covariance: Array, negative: Negative) -> Array:
    """The positive semi-definite covariance that filters are drawn from."""
    root = symmetric_root(covariance, negative=negative)
    usable: Array = root @ root
    return usable
