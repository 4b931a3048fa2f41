"""Take from a state dict the weights of a model's depthwise layers, under its names and in its order."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from torch import Tensor, nn

from filtercov.depthwise.averages import without_averaged_twins
from filtercov.depthwise.definition import has_depthwise_shape
from filtercov.depthwise.foreign import StateDict
from filtercov.depthwise.hooked import hooked_weight
from filtercov.depthwise.model import DepthwiseLayer, cleaner_of, depthwise_layers, unwrap
from filtercov.depthwise.weight import current_weight, parametrisation
from filtercov.errors import CheckpointError
from filtercov.layer_names import cleaner, common_holder


def weights_like(state: StateDict, model: nn.Module, source: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights of the layers `depthwise_layers(model)` finds, and notes on weights the model does not know.

    Only names and shapes of the model are used, so that it may live on the meta device.
    """
    tensors, aliases = cleaned(state.tensors), _aliases(model)
    found: dict[str, Tensor] = {}
    notes: list[str] = []
    if not any(_inside(name, "weight") in tensors for names in aliases.values() for name in names):
        weights, notes = without_averaged_twins(tensors)
        tensors = out_of_holder(weights)
    for layer in depthwise_layers(model):
        weight = _stored_weight(layer, aliases[layer.module], tensors)
        if weight is None:
            raise CheckpointError(
                f"{source}: needed {_inside(layer.name, 'weight')} as the {type(unwrap(model)).__name__} given as like "
                f"has it, found none among its {len(tensors)} tensors; pass a model built as the one that was saved"
            )
        needed = (layer.module.out_channels, layer.module.in_channels // layer.module.groups, *layer.kernel_size)
        if tuple(weight.shape) != needed:
            raise CheckpointError(
                f"{source}: {layer.name} needs a weight {needed} in the {type(unwrap(model)).__name__} given as like, "
                f"the file has {tuple(weight.shape)}; pass a model built as the one that was saved"
            )
        found[layer.name] = weight
    known = {alias for names in aliases.values() for alias in names}
    strange = [layer_name(n) for n, t in tensors.items() if has_depthwise_shape(n, t) and layer_name(n) not in known]
    unknown = [f"left out {', '.join(strange[:3])}, unknown to the model given as like"] if strange else []
    return found, notes + unknown


def cleaned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under names without wrappers, as far as that makes no two names one."""
    clean = cleaner(tensors)
    return {clean(name): tensor for name, tensor in tensors.items()}


def out_of_holder(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors under names without the holder, if any, that all depthwise weights lie in."""
    holder = common_holder([name for name, tensor in tensors.items() if has_depthwise_shape(name, tensor)])
    names = {name.removeprefix(holder): tensor for name, tensor in tensors.items()}
    return names if len(names) == len(tensors) else dict(tensors)


def layer_name(weight: str) -> str:
    """Return the name of the module whose `weight` has this name.

    >>> layer_name("blocks.0.dw.weight"), layer_name("weight")
    ('blocks.0.dw', '')
    """
    return weight.rpartition(".")[0]


def _aliases(model: nn.Module) -> dict[nn.Module, list[str]]:
    """Return every name of every module, as weights in it have it, those of modules that share its after its own."""
    names: dict[nn.Module, list[str]] = {}
    sharing: dict[int, list[str]] = {}
    root = unwrap(model)
    clean = cleaner_of(root)
    for name, module in root.named_modules(remove_duplicate=False):
        alias = layer_name(clean(_inside(name, "weight")))
        names.setdefault(module, []).append(alias)
        weight = module._parameters.get("weight")
        if weight is not None:
            sharing.setdefault(id(weight), []).append(alias)
    return {
        module: list(dict.fromkeys([*own, *sharing.get(id(module._parameters.get("weight")), [])]))
        for module, own in names.items()
    }


def _stored_weight(layer: DepthwiseLayer, names: list[str], tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return the weight under the first of the names that the file has; writers drop all but one name of a tie."""
    for name in names:
        if (stored := tensors.get(_inside(name, "weight"))) is not None:
            return stored
    for name in names:
        prefix = _inside(name, "")
        inside = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
        if (computed := hooked_weight(inside)) is not None:
            return computed
        if parametrisation(layer.module) is None:
            continue
        module = copy.deepcopy(layer.module)
        try:
            module.load_state_dict(inside, assign=True)
        except RuntimeError:  # other keys or shapes than the parametrisation has
            continue
        return current_weight(module, name).detach()
    return None


def _inside(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name
