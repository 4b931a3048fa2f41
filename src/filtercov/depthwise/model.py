"""Find the depthwise convolutions of any PyTorch model, in the order the data meets them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from filtercov.depthwise.definition import (
    Convolution,
    is_depthwise,
    is_undecided,
    is_uninitialised,
    kernel_size_of,
    resembles_depthwise,
)
from filtercov.depthwise.running import blaming_the_example, run_once
from filtercov.depthwise.weight import current_weight, no_weight, parametrisation
from filtercov.errors import ModelError
from filtercov.layer_names import LEADING, clean_name, cleaner
from filtercov.schedule import relative_depth


@dataclass(frozen=True)
class DepthwiseLayer:
    """One depthwise convolution of a model: where it is, what it is, and how deep it lies."""

    name: str
    module: Convolution
    kernel_size: tuple[int, ...]
    index: int
    depth: float

    @property
    def weight(self) -> Tensor:
        """The filters (channels, 1, *kernel_size), computed anew if they are parametrised."""
        return current_weight(self.module, self.name)

    @property
    def channels(self) -> int:
        """The number of filters."""
        return self.module.out_channels

    def trainable(self) -> list[nn.Parameter]:
        """Return the parameters behind the filters: the weight itself, or what its parametrisation is made of."""
        steps = parametrisation(self.module)
        if steps is not None:
            return list(steps.parameters())
        if "weight" not in self.module._parameters:
            raise ModelError(
                f"{self.name}: needed a weight of its own or one from torch.nn.utils.parametrizations, got one that is "
                "computed before each call (as torch.nn.utils.weight_norm, spectral_norm, prune and FSDP's flat "
                "parameters do it); make it permanent, use torch.nn.utils.parametrizations or FSDP2, or leave this "
                "layer out with filter_fn"
            )
        weight = self.module._parameters["weight"]
        if weight is None:
            raise no_weight(self.name)
        return [weight]


LayerFilter = Callable[[DepthwiseLayer], bool]


def depthwise_layers(model: nn.Module, example_input: Any = None) -> list[DepthwiseLayer]:
    """Return the depthwise convolutions of `model` in forward order, with their relative depth d in [0, 1].

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
    _refuse_lazy(root, traced=example_input is not None)
    clean = cleaner_of(root)
    found = [(clean(name), module) for name, module in root.named_modules() if is_depthwise(module)]
    if not found:
        kinds = sorted({type(m).__name__ for m in root.modules() if isinstance(m, nn.modules.conv._ConvNd)})
        raise ModelError(
            f"{type(root).__name__}: needed at least one depthwise convolution (Conv1d, Conv2d or Conv3d with groups "
            f"equal to its input channels, and more than one), found none among its {'/'.join(kinds) or 'modules'}"
            + "".join(f"; {note}" for note in notes_on_lookalikes(root))
        )
    if example_input is not None:
        order = {module: position for position, module in enumerate(_traced(root, example_input))}
        found.sort(key=lambda pair: order.get(pair[1], len(order)))
    return [
        DepthwiseLayer(name, module, kernel_size_of(module), i, relative_depth(i, len(found)))
        for i, (name, module) in enumerate(found)
    ]


def check_model(model: object, what: str = "") -> None:
    """Raise for what is given where a model is needed, as `what`: state dicts, classes, paths."""
    if isinstance(model, nn.Module):
        return
    prefix = f"{what}: " if what else ""
    kind, advice = type(model).__name__, "pass the model itself"
    if isinstance(model, Mapping):
        kind = "a state dict" if any(isinstance(value, Tensor) for value in model.values()) else kind
        advice = "pass the model it belongs to; its own tensors are copies that no model looks at"
    elif isinstance(model, type) and issubclass(model, nn.Module):
        kind, advice = f"the class {model.__name__}", f"make one first, {model.__name__}(...)"
    elif isinstance(model, str | os.PathLike):
        advice = "make the model first, or measure a file with FilterStatistics.from_checkpoint(path)"
    raise ModelError(f"{prefix}needed a model, a torch.nn.Module, got {kind}; {advice}")


def notes_on_lookalikes(model: nn.Module) -> tuple[str, ...]:
    """Return a note on each module that says it convolves depthwise, but is none of PyTorch's convolutions.

    `depthwise_layers` leaves them out, because nothing tells what their filters are.
    """
    root = unwrap(model)
    clean = cleaner_of(root)
    return tuple(
        f"left out {clean(name)}, a {type(module).__module__}.{type(module).__name__} with filters of its own kind"
        for name, module in root.named_modules()
        if resembles_depthwise(module)
    )


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside DataParallel, DistributedDataParallel and torch.compile wrappers."""
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while isinstance(model, parallel) or "_orig_mod" in model._modules:
        model = model.module if isinstance(model, parallel) else model._modules["_orig_mod"]  # type: ignore[assignment]
    return model


def cleaner_of(root: nn.Module) -> Callable[[str], str]:
    """Return what makes names of layers of the names of modules, in an unwrapped model: what its state dict has."""
    modules = list(root.named_modules(remove_duplicate=False))
    if not any(wrapper in name for name, _ in modules for wrapper in LEADING):  # as in nearly every network
        return clean_name
    names = []
    for name, module in modules:
        held = [key for own in (module._parameters, module._buffers) for key, value in own.items() if value is not None]
        names += [f"{name}.{key}" if name else key for key in held] + [name] * is_depthwise(module)
    return cleaner(names)


def _refuse_lazy(root: nn.Module, *, traced: bool) -> None:
    """Raise for layers that may turn out depthwise, and for any that running the model would give its weights."""
    for name, module in root.named_modules():
        if is_undecided(module) or (traced and is_uninitialised(module)):
            raise ModelError(
                f"{cleaner_of(root)(name)}: needed a layer that knows its channels, got a {type(module).__name__} that "
                "has seen no input yet; run the model once on an example first"
            )


def _traced(root: nn.Module, example_input: Any) -> list[nn.Module]:
    """Return the depthwise modules in the order of their first call."""
    seen: dict[nn.Module, None] = {}
    watched = [module for module in root.modules() if is_depthwise(module)]
    with blaming_the_example():
        run_once(root, example_input, watch=watched, see=lambda module, _: seen.setdefault(module))
    return list(seen)
