"""The effective receptive field of a network: which pixels of its input the centre of its last picture looks at.

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
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from filtercov.covariance.forms import Array
from filtercov.errors import ModelError
from filtercov.layers.find import check_model, depthwise_layers, unwrap
from filtercov.layers.names import cleaner
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


def receptive_field(
    model: nn.Module,
    example_input: Tensor,
    *,
    layer: str | None = None,
    state: Mapping[str, Tensor] | None = None,
    chance: bool = True,
    seed: int = 0,
) -> ReceptiveField:
    """Return the effective receptive field of a model for example inputs (count, channels, *size).

    It is that of the last output that has as many axes as the input and more than one pixel, or of the layer named.
    `state` takes these parameters and buffers instead of the model's own: before and after training, for example.
    The model is left as it was, gradients and random state included. `chance=False` leaves out the comparison with
    independent filters, which takes four more runs.

    >>> net = nn.Sequential(nn.Conv2d(3, 3, 5, padding=2, groups=3), nn.AdaptiveAvgPool2d(1))
    >>> net[0].weight.data = torch.ones(3, 1, 5, 5)
    >>> field = receptive_field(net, torch.randn(4, 3, 9, 9), chance=False)
    >>> field.layer, round(field.radius.value, 2), field.centre  # of 5 x 5 pixels that count alike
    ('0', 2.0, (4.0, 4.0))
    """
    check_model(model)
    root = unwrap(model)
    _check_example(example_input)
    given = _under_own_names(root, state or {})
    shares, name = _field(root, example_input, given, layer, seed)
    radius = Number(_radius(shares), reason="")
    if chance:
        radius = _beside_chance(_radius(shares), root, example_input, given, name, seed)
    return ReceptiveField(shares, name, radius)


def _check_example(example: object) -> None:
    if not isinstance(example, Tensor) or not 3 <= example.ndim <= 5:
        came = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise ModelError(f"receptive_field: needed example inputs (count, channels, *size) as one tensor, got {came}")
    if not example.is_floating_point():
        raise ModelError(
            f"receptive_field: needed example inputs of floating-point numbers, got {example.dtype}; convert them as "
            "the model needs them"
        )
    if example.is_meta:
        raise ModelError("receptive_field: needed example inputs with numbers, got ones on the meta device; make some")


def _under_own_names(root: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state under the first name that the model has for each tensor, whatever wrappers put into its names.

    Of values for several names of one tensor the last is taken, as it is where a state is loaded.
    """
    every = chain(root.named_parameters(remove_duplicate=False), root.named_buffers(remove_duplicate=False))
    first: dict[Tensor, str] = {}
    known = {name: first.setdefault(tensor, name) for name, tensor in every}
    if any(name not in known for name in state):
        own, its = cleaner(known), cleaner(state)
        known = {own(name): one for name, one in known.items()}
        state = {its(name): tensor for name, tensor in state.items()}
    unknown = [name for name in state if name not in known]
    if unknown:
        raise ModelError(
            f"receptive_field: needed a state of the model's own names, got {unknown[0]!r} and {len(unknown) - 1} more "
            "that it does not have"
        )
    return {known[name]: tensor for name, tensor in state.items()}


def _field(
    root: nn.Module, example: Tensor, state: Mapping[str, Tensor], layer: str | None, seed: int
) -> tuple[Array, str]:
    names = {module: name for name, module in root.named_modules()}
    seen: list[tuple[str, Tensor]] = []

    def see(module: nn.Module, output: object) -> None:
        wanted = layer is None or names[module] == layer
        if wanted and isinstance(output, Tensor) and output.ndim == example.ndim and math.prod(output.shape[2:]) > 1:
            seen[:] = [(names[module], output)]

    with undisturbed(root, watch=list(names), see=see), torch.enable_grad(), torch.inference_mode(False):
        x = example.detach().clone().requires_grad_()
        with blaming_the_example():
            functional_call(root, dict(state), (x,))
        if not seen:
            wanted = f"an output of {layer!r}" if layer else "an output"
            raise ModelError(f"receptive_field: needed {wanted} with as many axes as the input, saw none")
        name, output = seen[0]
        at: list[slice | int] = [slice(None), slice(None), *(side // 2 for side in output.shape[2:])]
        middle = output[tuple(at)]  # (count, channels)
        if not middle.requires_grad:
            raise ModelError(
                f"receptive_field: needed an output that depends on the input, {name or 'the model'}'s does not"
            )
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


def _beside_chance(
    value: float, root: nn.Module, example: Tensor, state: Mapping[str, Tensor], layer: str, seed: int
) -> Number:
    """Return a radius beside those of the network with independent filters."""
    parameters: dict[Tensor, str] = {parameter: name for name, parameter in root.named_parameters()}
    try:
        weights = [layer.module._parameters.get("weight") for layer in depthwise_layers(root)]
    except ModelError:
        weights = []
    names = [parameters[weight] for weight in weights if weight is not None]
    if not names or len(names) < len(weights):
        reason = "not all depthwise filters are parameters" if weights else "the network has no depthwise filters"
        return Number(value, reason=f"{reason} that could be drawn anew")
    radii = []
    for draw in range(DRAWS):
        generator = torch.Generator("cpu").manual_seed(seed + 1 + draw)
        drawn = {}
        for name in names:
            weight = state.get(name, root.get_parameter(name)).detach()
            noise = torch.randn(weight.shape, generator=generator, device="cpu").to(weight)
            drawn[name] = noise * weight.square().mean().sqrt()
        radii.append(_radius(_field(root, example, {**state, **drawn}, layer, seed)[0]))
    return within(value, float(np.mean(radii)), float(np.std(radii, ddof=1)), 0.0)


def _centre(shares: Array) -> tuple[float, ...]:
    return tuple(float((shares * place).sum()) for place in np.indices(shares.shape))


def _radius(shares: Array) -> float:
    squared = sum((place - at) ** 2 for place, at in zip(np.indices(shares.shape), _centre(shares), strict=True))
    return math.sqrt(float((shares * squared).sum()))
