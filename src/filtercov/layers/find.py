"""Find the depthwise convolutions of any PyTorch model, in forward order, with the weights that they use.

A convolution is depthwise if every input channel has filters of its own. Transposed convolutions are not: their filters
paint the output instead of reading the input, and have another covariance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel

from filtercov.errors import ModelError
from filtercov.layers.names import clean_name
from filtercov.layers.running import blaming_the_example, evaluating, run_once
from filtercov.schedule import Layer, relative_depth

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


def is_depthwise(module: nn.Module) -> TypeGuard[Convolution]:
    """Whether a module filters each input channel by itself.

    With a single input channel that could as well be a dense convolution, of grey images or inside an attention
    module; then only a class that says `always_depthwise` counts, as filtercov's own does for networks of width 1.

    >>> is_depthwise(nn.Conv2d(8, 24, 5, groups=8)), is_depthwise(nn.Conv1d(1, 1, 3))
    (True, False)
    """
    return (
        isinstance(module, Convolution)
        and module.groups == module.in_channels
        and (module.in_channels > 1 or getattr(module, "always_depthwise", False))
    )


def is_uninitialised(module: nn.Module) -> bool:
    """Whether a module is lazy and has not seen its first input, so that its weights have no shape yet."""
    return isinstance(module, LazyModuleMixin) and module.has_uninitialized_params()


@dataclass(frozen=True)
class DepthwiseLayer(Layer):
    """One depthwise convolution of a model: where it is, what it is, and how deep it lies."""

    module: Convolution

    @property
    def weight(self) -> Tensor:
        """The filters (channels, 1, *kernel_size) that the next call in evaluation mode would use."""
        module = self.module
        if parametrisation(module) is None and module._parameters.get("weight") is None:
            raise ModelError(
                f"{self.name}: needed a weight of its own or one from torch.nn.utils.parametrizations, got none or one "
                "that is computed before each call (as torch.nn.utils.weight_norm, spectral_norm, prune and FSDP1 do "
                "it); make it permanent, or use torch.nn.utils.parametrizations"
            )
        with evaluating(module):  # in training spectral_norm, for one, moves its state whenever the weight is read
            weight = module.weight
        needed = (module.out_channels, module.in_channels // module.groups, *_kernel_size(module))
        if tuple(weight.shape) != needed:
            raise ModelError(
                f"{self.name}: needed its whole weight {needed}, got {tuple(weight.shape)}, as wrappers that flatten "
                "or shard parameters leave it; gather the whole parameters first"
            )
        return weight

    def trainable(self) -> list[nn.Parameter]:
        """The parameters behind the filters: the weight itself, or those that its parametrisation has."""
        weight, steps = self.weight, parametrisation(self.module)
        return [cast(nn.Parameter, weight)] if steps is None else list(steps.parameters())


LayerFilter = Callable[[DepthwiseLayer], bool]


def depthwise_layers(model: nn.Module, example_input: Any = None) -> list[DepthwiseLayer]:
    """The depthwise convolutions of `model` in forward order, with their relative depth d in [0, 1].

    Forward order is registration order, which is right for nearly every network; pass an `example_input` (a tensor, or
    a tuple or dict of arguments) to trace the order in which the layers really run. Tracing runs the model once in
    evaluation mode and leaves its modes, attributes, buffers and the random state as they were. Layers that it never
    meets come last.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 7, groups=8), nn.Conv2d(8, 8, 5, groups=8))
    >>> [(layer.name, layer.kernel_size, layer.depth) for layer in depthwise_layers(net)]
    [('1', (7, 7), 0.0), ('2', (5, 5), 1.0)]
    """
    check_model(model)
    root = unwrap(model)
    for name, module in root.named_modules():
        may_be_depthwise = isinstance(module, Convolution) and module.groups > 1
        # Running a model gives lazy layers their weights, so tracing refuses them all.
        if is_uninitialised(module) and (may_be_depthwise or example_input is not None):
            raise ModelError(
                f"{clean_name(name)}: needed a layer that knows its channels, got a {type(module).__name__} that has "
                "seen no input yet; run the model once on an example first"
            )
    found = [(clean_name(name), module) for name, module in root.named_modules() if is_depthwise(module)]
    if not found:
        kinds = sorted({type(m).__name__ for m in root.modules() if isinstance(m, nn.modules.conv._ConvNd)})
        raise ModelError(
            f"{type(root).__name__}: needed at least one depthwise convolution (Conv1d, Conv2d or Conv3d with groups "
            f"equal to its input channels, and more than one), found none among its {'/'.join(kinds) or 'modules'}"
        )
    if example_input is not None:
        order: dict[nn.Module, int] = {}
        watched = [module for _, module in found]
        with blaming_the_example():
            run_once(root, example_input, watch=watched, see=lambda module, _: order.setdefault(module, len(order)))
        found.sort(key=lambda pair: order.get(pair[1], len(order)))
    return [
        DepthwiseLayer(name, _kernel_size(module), module.out_channels, i, relative_depth(i, len(found)), module)
        for i, (name, module) in enumerate(found)
    ]


def check_model(model: object, what: str = "") -> None:
    """Raise a `ModelError` unless `model` is a module; `what` names the argument."""
    if not isinstance(model, nn.Module):
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        kind = "a state dict" if isinstance(model, Mapping) else kind
        raise ModelError(
            f"{what}{': ' if what else ''}needed a model, a torch.nn.Module, got {kind}; pass the model itself, or "
            "measure a file with FilterStatistics.from_checkpoint(path)"
        )


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside DataParallel, DistributedDataParallel, AveragedModel and torch.compile wrappers."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel, AveragedModel)
    while isinstance(model, wrappers) or "_orig_mod" in model._modules:
        model = model.module if isinstance(model, wrappers) else model._modules["_orig_mod"]  # type: ignore[assignment]
    return model


def _kernel_size(module: Convolution) -> tuple[int, ...]:
    """The kernel size by axis, which some subclasses keep as one number."""
    size: int | tuple[int, ...] = module.kernel_size
    axes = 1 if isinstance(module, nn.Conv1d) else 2 if isinstance(module, nn.Conv2d) else 3
    return (size,) * axes if isinstance(size, int) else tuple(size)


def parametrisation(module: nn.Module) -> nn.Module | None:
    """The module with which torch.nn.utils.parametrize computes the weight; None if the weight is plain."""
    if not parametrize.is_parametrized(module, "weight"):
        return None
    return cast(nn.Module, module.parametrizations["weight"])  # type: ignore[index]


def check_numbers(weight: Tensor, name: str) -> None:
    """Raise a `ModelError` unless a weight has floating-point numbers."""
    if weight.is_meta:
        raise ModelError(
            f"{name}: needed a weight with storage, got one on the meta device; load it, or materialise the model with "
            "model.to_empty(device=...) first"
        )
    if not weight.is_floating_point():
        raise ModelError(f"{name}: needed a floating-point weight, got {weight.dtype}; dequantise or convert it first")


def plain_values(weight: Tensor, name: str) -> Tensor:
    """A weight's numbers as a dense float64 tensor on the CPU."""
    check_numbers(weight, name)
    try:
        return torch.from_numpy(weight.detach().cpu().double().resolve_neg().numpy())
    except Exception as error:  # whatever a sparse tensor, a tensor subclass or a backend may raise
        raise ModelError(
            f"{name}: needed a weight of plain numbers, but a {type(weight).__name__} cannot be turned into them "
            f"({error}); convert the model first"
        ) from error
