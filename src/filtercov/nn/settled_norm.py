"""BatchNorm in evaluation, by statistics that are settled, with an activation before or after it, as one operator.

PyTorch passes over the images twice, or three times where a residual is added; here it is once. There is no gradient:
where one is asked for, PyTorch's own calls are made.
"""

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.nn import checks, flops, kernels, library
from filtercov.nn.batch_norm_act import ACTIVATIONS
from filtercov.nn.images import as_channels_last
from filtercov.nn.operator import define_operator


def settled_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    activation: str,
    *,
    activation_first: bool,
    residual: Tensor | None = None,
) -> Tensor:
    """Return activation(BatchNorm(x)) of (N, C, H, W) by the moments given, or BatchNorm(activation(x)) + residual.

    >>> one, none = torch.ones(2), torch.zeros(2)
    >>> settled_norm(-torch.ones(1, 2, 1, 1), one, none, none, one, 0.0, "relu", activation_first=False).flatten()
    tensor([0., 0.])
    """
    arguments = x, weight, bias, mean, variance, eps, activation, activation_first, residual
    return _operator(*arguments)  # type: ignore[no-any-return]


def _compute(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    activation: str,
    activation_first: bool,
    residual: Tensor | None = None,
) -> Tensor:
    x = as_channels_last(x)
    if library.takes(x):
        weight, bias, mean, variance = (vector.contiguous() for vector in (weight, bias, mean, variance))
        residual = None if residual is None else as_channels_last(residual)
        return kernels.settled_norm(
            x, weight, bias, mean, variance, eps, activation, activation_first=activation_first, residual=residual
        )
    activate = ACTIVATIONS[activation].value
    y = functional.batch_norm(activate(x) if activation_first else x, mean, variance, weight, bias, eps=eps)
    y = y if activation_first else activate(y)
    return as_channels_last(y if residual is None else y + residual)


def _fake(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.channels_last)


_operator = define_operator(
    "settled_norm", check=checks.check_settled_norm, compute=_compute, fake=_fake, flops=flops.nothing
)
