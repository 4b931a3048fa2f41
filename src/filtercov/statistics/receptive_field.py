"""The effective receptive field of a network: which pixels of its input the centre of its last feature map depends on.

With y_c the channels at the centre of the last feature map, the field is Σ_c (∂y_c/∂x)², added up over the channels of
the input and over example inputs, as shares of the whole. A gradient for each channel would take long; the square of
one gradient of Σ ±y_c with random signs has the same mean, and a few of them are enough.

The radius is the root-mean-square distance of the field from its own centre, in pixels of the input. Beside it stands
that of the same network whose depthwise filters are independent Gaussian weights of each layer's size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from filtercov.covariance.forms import Array
from filtercov.errors import ModelError
from filtercov.layers.find import check_model, is_depthwise, unwrap
from filtercov.layers.running import blaming_the_example, undisturbed
from filtercov.structure import Number, within

SIGNS = 8  # gradients with random signs
DRAWS = 4  # networks with independent filters


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """The field as shares (*input size) that add up to 1, the layer whose output it is of, and its radius in pixels."""

    shares: Array
    layer: str
    radius: Number

    @property
    def centre(self) -> tuple[float, ...]:
        """The field's own centre, in pixels from the first."""
        return _centre(self.shares)

    @property
    def widest(self) -> float:
        """The radius of a field that is the same everywhere in the input."""
        return math.sqrt(sum((side * side - 1) / 12 for side in self.shares.shape))


def receptive_field(model: nn.Module, example_input: Tensor, *, seed: int = 0) -> ReceptiveField:
    """The effective receptive field of a model for example inputs (count, channels, *size).

    It is that of the last output that has as many axes as the input and more than one pixel. The model is left as it
    was, gradients and random state included.

    >>> net = nn.Sequential(nn.Conv2d(3, 3, 5, padding=2, groups=3), nn.AdaptiveAvgPool2d(1))
    >>> net[0].weight.data = torch.ones(3, 1, 5, 5)
    >>> field = receptive_field(net, torch.randn(4, 3, 9, 9))
    >>> field.layer, round(field.radius.value, 2), field.centre  # of 5 x 5 pixels that count alike
    ('0', 2.0, (4.0, 4.0))
    """
    check_model(model)
    root, x = unwrap(model), example_input
    if not isinstance(x, Tensor) or not 3 <= x.ndim <= 5 or not x.is_floating_point() or x.is_meta:
        came = f"{x.dtype} {tuple(x.shape)} on {x.device}" if isinstance(x, Tensor) else type(x).__name__
        raise ModelError(
            "receptive_field: needed example inputs (count, channels, *size) as one tensor of floating-point numbers, "
            f"got {came}"
        )
    shares, name = _field(root, x, {}, seed)
    return ReceptiveField(shares, name, _beside_chance(_radius(shares), root, x, seed))


def _field(root: nn.Module, example: Tensor, parameters: Mapping[str, Tensor], seed: int) -> tuple[Array, str]:
    """The field of a model with these parameters in place of its own, and the name of the layer it is of."""
    names = {module: name for name, module in root.named_modules()}
    seen: list[tuple[str, Tensor]] = []

    def see(module: nn.Module, output: object) -> None:
        if isinstance(output, Tensor) and output.ndim == example.ndim and math.prod(output.shape[2:]) > 1:
            seen[:] = [(names[module], output)]

    with undisturbed(root, watch=list(names), see=see), torch.enable_grad():
        x = example.detach().clone().requires_grad_()
        with blaming_the_example():
            functional_call(root, dict(parameters), (x,))
        if not seen or not seen[0][1].requires_grad:
            raise ModelError(
                "receptive_field: needed an output that depends on the input and has as many axes as it, saw none"
            )
        [(name, output)] = seen
        middle = output
        for side in output.shape[2:]:
            middle = middle[:, :, side // 2]  # (count, channels) at the end
        generator = torch.Generator("cpu").manual_seed(seed)
        power = torch.zeros(example.shape[2:], dtype=torch.float64, device="cpu")
        for _ in range(SIGNS):
            signs = torch.randint(0, 2, middle.shape, generator=generator, device="cpu") * 2 - 1
            [gradient] = torch.autograd.grad((middle * signs.to(middle)).sum(), x, retain_graph=True)
            power += gradient.detach().cpu().double().square().sum(dim=(0, 1))
    total = float(power.sum())
    if not 0 < total < math.inf:
        raise ModelError("receptive_field: needed a finite gradient at the input, got none; pass other example inputs")
    return power.numpy() / total, name


def _beside_chance(value: float, root: nn.Module, example: Tensor, seed: int) -> Number:
    """A radius beside those of the network with independent filters."""
    parameters = {parameter: name for name, parameter in root.named_parameters()}
    weights = [module._parameters.get("weight") for module in root.modules() if is_depthwise(module)]
    known = {parameters[weight]: weight for weight in weights if weight is not None}
    if not weights or any(weight is None for weight in weights):
        return Number(value, reason="the network has no depthwise filters, or some that cannot be drawn anew")
    radii = []
    for draw in range(DRAWS):
        generator = torch.Generator("cpu").manual_seed(seed + 1 + draw)
        drawn = {}
        for name, weight in known.items():
            noise = torch.randn(weight.shape, generator=generator, device="cpu").to(weight)
            drawn[name] = noise * weight.detach().square().mean().sqrt()
        radii.append(_radius(_field(root, example, drawn, seed)[0]))
    return within(value, float(np.mean(radii)), float(np.std(radii, ddof=1)), 0.0)


def _centre(shares: Array) -> tuple[float, ...]:
    return tuple(float((shares * place).sum()) for place in np.indices(shares.shape))


def _radius(shares: Array) -> float:
    squared = sum((place - at) ** 2 for place, at in zip(np.indices(shares.shape), _centre(shares), strict=True))
    return math.sqrt(float((shares * squared).sum()))
