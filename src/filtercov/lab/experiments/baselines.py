"""What others propose in place of a covariance: filters by formula.

Samples for a weight (channels, 1, *kernel_size), n pixels a filter, in any number of dimensions:

| name            | each filter                                                            | mean squared norm    |
|-----------------|------------------------------------------------------------------------|----------------------|
| `uniform`       | n numbers of U(±1/√n): PyTorch's default                               | 1/3                  |
| `kaiming`       | n numbers of N(0, 2/n)                                                 | 2                    |
| `trunc-normal`  | n numbers of N(0, .02²) cut at ±2: timm's default for ConvNeXt         | .0004 n              |
| `orthogonal`    | a row of a random semi-orthogonal matrix (channels, n)                 | min(1, n/channels)   |
| `identity`      | 1 at the centre, 0 elsewhere: out comes what went in                   | 1                    |
| `delta-gaussian`| N(0, 1) at the centre, 0 elsewhere                                     | 1                    |
| `impulse`       | 1/√3 at a random pixel, 0 elsewhere (arXiv 2401.12511)                 | 1/3                  |
| `box:N`         | 1/√(3N) at N random pixels, 0 elsewhere (arXiv 2404.01139)             | 1/3                  |
| `gaussian-bump` | exp(-d²/2v), d the distance from a random pixel (arXiv 2505.19985)     | 1/3                  |

Impulse, box and bump are as their authors' first published code has them, in scale too, which is that of PyTorch's
default; docs/rivals.md says what was read of each.

What is random is drawn in a fixed order from the generator given; what is computed is float64, for whoever writes the
filters to round once.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from filtercov.covariance.forms import show_size
from filtercov.errors import ConfigError
from filtercov.layers.assign import assign_filters_
from filtercov.layers.find import DepthwiseLayer, depthwise_layers
from filtercov.layers.sample import check_weight, drawing, rounded

Sample = Callable[[torch.Size, torch.Generator], Tensor]

POWER = 1 / 3  # the mean squared norm of U(±1/√n) filters


def fill_(model: nn.Module, sample: Callable[[DepthwiseLayer], Tensor]) -> None:
    """Fill all layers or none; what is computed in double precision is rounded once."""
    layers, filters = depthwise_layers(model), []
    for layer in layers:
        check_weight(layer.weight, layer.name)
    with drawing():
        for layer in layers:
            try:
                drawn = sample(layer)
            except ConfigError as error:
                raise ConfigError(f"{layer.name}: {error}") from None
            exact = drawn.dtype == torch.float64
            filters.append(rounded(drawn.numpy(), layer.weight.dtype) if exact else drawn)
        assign_filters_(layers, filters)


def uniform(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """U(±1/√n) weights."""
    return (2.0 * _empty(shape).uniform_(generator=generator) - 1.0) / math.sqrt(_pixels(shape))


def kaiming(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """N(0, 2/n) weights."""
    return _normal(shape, generator) * math.sqrt(2.0 / _pixels(shape))


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
    return _impulses(shape, [size // 2 for size in shape[2:]], _normal((shape[0],), generator))


def _impulses(shape: torch.Size, place: Sequence[int], values: Tensor | float) -> Tensor:
    filters = _empty(shape).zero_()
    at: tuple[slice | int, ...] = (slice(None), 0, *place)
    filters[at] = values
    return filters


def box(count: float) -> Sample:
    """The sampler of filters that are equal at `count` random pixels, any set of them as likely, zero elsewhere.

    >>> filters = box(3)(torch.Size((1, 1, 5, 5)), torch.Generator().manual_seed(0))
    >>> torch.count_nonzero(filters).item(), round(filters.square().sum().item(), 6)
    (3, 0.333333)
    """
    count = int(count)

    def sample(shape: torch.Size, generator: torch.Generator) -> Tensor:
        pixels = _pixels(shape)
        if count > pixels:
            size = show_size(tuple(shape[2:]))
            raise ConfigError(f"needed filters of at least {count} pixels for box:{count}, got {size}; choose fewer")
        # Double precision, of whose numbers no two are equal.
        drawn = torch.rand((shape[0], pixels), generator=generator, dtype=torch.float64, device="cpu")
        chosen = drawn.argsort(dim=1)[:, :count]
        filters = torch.zeros_like(drawn).scatter_(1, chosen, math.sqrt(POWER / count))
        return filters.reshape(shape)

    return sample


impulse = box(1)


def gaussian_bump(variance: float) -> Sample:
    """The sampler of Gaussians of a variance, in pixels², around random pixels of the filter.

    They are cut where the filter ends. The layer is scaled as a whole to the mean squared norm 1/3, as its authors do
    it, so that filters whose bump is cut are smaller than others.
    """

    def sample(shape: torch.Size, generator: torch.Generator) -> Tensor:
        filters = np.ones((shape[0], 1))
        for size in shape[2:]:
            centre = torch.randint(size, (shape[0], 1), generator=generator, dtype=torch.int64, device="cpu").numpy()
            along = np.exp((np.arange(size) - centre) ** 2 / (-2 * variance))
            filters = (filters[:, :, None] * along[:, None, :]).reshape(shape[0], -1)
        filters *= math.sqrt(POWER * shape[0] / (filters**2).sum())
        return torch.from_numpy(filters.reshape(shape))

    return sample


def _empty(shape: torch.Size | tuple[int, ...]) -> Tensor:
    """A tensor to fill, of the same type and in the same place whatever torch's defaults are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _pixels(shape: torch.Size) -> int:
    return math.prod(shape[2:])


def _normal(shape: torch.Size | tuple[int, ...], generator: torch.Generator) -> Tensor:
    return _empty(shape).normal_(generator=generator)
