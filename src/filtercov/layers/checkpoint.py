"""The depthwise weights of a checkpoint in forward order, with notes on guesses.

A state dict holds names and shapes, not modules. What a shape leaves open is decided by the tensors around it, and
noted; a model given as `like` decides it exactly.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from filtercov.errors import CheckpointError
from filtercov.layers.find import (
    DepthwiseLayer,
    check_model,
    current_weight,
    depthwise_layers,
    hooked_weight,
    name_cleaner,
    parametrisation,
    unwrap,
)
from filtercov.layers.names import building_key, cleaner
from filtercov.layers.state_dict import EMA, StateDict, is_depthwise_weight, read_state_dict

SURE = "pass like=model or --like NAME to be sure"

# What trainers keep a network under: Lightning's modules by habit, DDP and AveragedModel by construction.
HOLDERS = ("model", "module", "net", "network")


@dataclass(frozen=True)
class DepthwiseWeights:
    """Depthwise weights by the name of their layer, in forward order, and notes on what was guessed."""

    tensors: dict[str, Tensor]
    notes: tuple[str, ...] = ()


def read_depthwise_weights(source: Path | Mapping[str, Tensor], *, like: nn.Module | None = None) -> DepthwiseWeights:
    """Return the depthwise weights of a checkpoint or a state dict; `like` says which they are and their order."""
    if like is not None:
        check_model(like, "like")
    if isinstance(source, Mapping):
        tensors = {str(name): value for name, value in source.items() if isinstance(value, Tensor)}
        state, name = StateDict(tensors, (), True), "state dict"
    else:
        state, name = read_state_dict(source), str(source)
    try:
        found = depthwise_weights(state) if like is None else _weights_like(state, like)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from None
    return replace(found, notes=(*state.notes, *found.notes))


def read_named_weights(path: Path, names: Sequence[str]) -> DepthwiseWeights:
    """Return the weights of the layers with these names, in their order; those the checkpoint lacks are left out."""
    state = read_state_dict(path)
    found = _cleaned(state.tensors).items()
    tensors = {_layer(name): tensor for name, tensor in found if is_depthwise_weight(name, tensor)}
    return DepthwiseWeights({name: tensors[name] for name in names if name in tensors}, state.notes)


def depthwise_weights(state: StateDict) -> DepthwiseWeights:
    """Return the depthwise weights of a state dict by names and shapes alone.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 7, groups=8), nn.Conv1d(1, 1, 3))
    >>> found = depthwise_weights(StateDict(dict(net.state_dict()), (), True))
    >>> list(found.tensors)
    ['1']
    >>> print(*found.notes)
    left out 2: dense, one channel to one, as attention modules have them; pass like=model or --like NAME to be sure
    """
    tensors, notes = _of_network(_cleaned(state.tensors))
    guessed = not state.in_model_order or _sorted_by_writer(tensors)
    if guessed:
        tensors = {name: tensors[name] for name in sorted(tensors, key=building_key)}
    for name, tensor in tensors.items():
        behind = PARAMETRISED.search(name)
        if behind and is_depthwise_weight("weight", tensor) and len(tensor) > 1:
            raise CheckpointError(
                f"needed plain weights, but that of {name[: behind.start()]} is stored as what a parametrisation makes "
                "it of; pass like=model with the same parametrisation, or remove it before saving"
            )
    shaped = [name for name, tensor in tensors.items() if is_depthwise_weight(name, tensor)]
    others = _lookalikes(tensors, shaped)
    for why in dict.fromkeys(filter(None, others.values())):
        notes.append(f"left out {_few([_layer(name) for name in others if others[name] == why])}: {why}; {SURE}")
    found: dict[object, str] = {}
    for name in shaped:
        if name not in others:
            first = found.setdefault(_memory_of_module(tensors, name), name)
            if first != name:
                notes.append(f"{_layer(name)} is tied to {_layer(first)}; counted once")
    if not found:
        raise CheckpointError(
            "needed depthwise weights, (channels, 1, kernel height, kernel width) or the 1-D or 3-D like, found none "
            f"among its {len(tensors)} tensors{''.join(f'; {note}' for note in notes)}"
        )
    if guessed and len({_without_numbers(name) for name in found.values()}) > 1:
        notes.append(f"the file does not say in which order its layers come: it was guessed from their names; {SURE}")
    return DepthwiseWeights({_layer(name): tensors[name] for name in found.values()}, tuple(notes))


# --- Which names are the network's, and in which order ---


def _cleaned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    clean = cleaner(tensors)
    return {clean(name): tensor for name, tensor in tensors.items()}


def _of_network(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Return tensors without the EMA copies of others among them, under names without what a trainer keeps them in."""

    def is_copy(name: str, tensor: Tensor) -> bool:
        first, _, rest = name.partition(".")
        rest = rest.removeprefix("module.")
        places = (rest, f"online_model.{rest}", *(f"{holder}.{rest}" for holder in HOLDERS))
        originals = [tensors[place] for place in places if place in tensors]
        return EMA.search(first) is not None and any(one.shape == tensor.shape for one in originals)

    copies = {name for name, tensor in tensors.items() if is_copy(name, tensor)}
    layers = [_layer(name) for name, tensor in tensors.items() if name in copies and is_depthwise_weight(name, tensor)]
    kept = {name: tensor for name, tensor in tensors.items() if name not in copies}
    while True:
        first = {name.partition(".")[0] for name, tensor in kept.items() if is_depthwise_weight(name, tensor)}
        holder = f"{first.pop()}." if len(first) == 1 and first <= set(HOLDERS) else ""
        bare = {name.removeprefix(holder): tensor for name, tensor in kept.items()}
        if not holder or len(bare) < len(kept):
            break
        kept = bare
    return kept, [f"left out {_few(layers)}: EMA copies of weights in the file"] if layers else []


def _sorted_by_writer(names: Mapping[str, Tensor]) -> bool:
    """Tell whether a writer sorted the names: a model registers the weight of a layer before its bias."""
    paired = any(name.endswith("bias") and name.removesuffix("bias") + "weight" in names for name in names)
    return paired and list(names) == sorted(names)


def _layer(weight: str) -> str:
    """Return the name of the module whose `weight` has this name."""
    return weight.rpartition(".")[0]


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# --- Weights shaped like depthwise ones that belong to other layers ---

STEM = re.compile(r"stem|patch_?embed|^conv_?1\.")
TRANSPOSED = re.compile(r"deconv|transpose")
UPWARD = re.compile(r"(^|\.)up(_|\d|\.|conv|samp|scal)")
PARAMETRISED = re.compile(r"\.?(parametrizations\.weight\.original1?|weight_orig|weight_v)$")


def _lookalikes(tensors: Mapping[str, Tensor], shaped: Sequence[str]) -> dict[str, str]:
    """Return those of the `shaped` weights that are not depthwise, with the reason; empty where there is no doubt.

    `tensors` is the whole state dict in forward order.
    """
    found = {}
    axes = max((tensors[name].ndim for name in shaped), default=0)
    for name in shaped:
        weight, bias = tensors[name], tensors.get(name.removesuffix("weight") + "bias")
        kernel_size = weight.shape[2:]
        if bias is not None and bias.shape == weight.shape:
            found[name] = ""  # a norm: a convolution's bias has one axis
        elif weight.ndim < axes and set(kernel_size) == {1}:
            found[name] = "a norm or a scale, one number for each channel"
        elif bias is not None and bias.ndim == 1 and len(bias) != len(weight):
            found[name] = ""  # a transposed convolution to one channel: its bias has one number, its weight many
        elif len(weight) == 1:
            found[name] = "dense, one channel to one, as attention modules have them"
        elif TRANSPOSED.search(name.lower()) or (
            UPWARD.search(name.lower()) and all(side % 2 == 0 for side in kernel_size)
        ):
            found[name] = "transposed, for its name says so"
    stem = _image_stem(tensors, [name for name in shaped if name not in found])
    return found | dict.fromkeys(stem, "dense, of one-channel images, for it comes first")


def _image_stem(tensors: Mapping[str, Tensor], shaped: Sequence[str]) -> list[str]:
    """Return the weights that read the images, if those have one channel.

    Depthwise layers follow layers that made their channels. One that nothing dense precedes, though dense layers
    follow, is taken for a stem if its name says so, or if it is the first and none of its kernel size is built like it.
    """
    reads = {name: tensor.shape[1] for name, tensor in tensors.items() if name.endswith("weight") and tensor.ndim > 1}
    coloured = any(channels == 3 and tensors[name].ndim > 2 for name, channels in reads.items())
    if coloured or all(channels == 1 for channels in reads.values()):
        return []
    leading = list(takewhile(lambda name: reads[name] == 1, reads))
    kinds = [(_without_numbers(name), tensors[name].shape[2:]) for name in shaped]

    def alone(name: str) -> bool:
        return kinds.count((_without_numbers(name), tensors[name].shape[2:])) == 1

    return [name for name in leading if name in shaped and (STEM.search(name) or (name == leading[0] and alone(name)))]


def _memory_of_module(tensors: Mapping[str, Tensor], weight: str) -> object:
    """Where a module's weight and bias lie: names of one module share both, two modules may share a weight."""
    held = (tensors[weight], tensors.get(weight.removesuffix("weight") + "bias"))
    return tuple(None if one is None else (one.data_ptr(), one.shape, one.stride()) for one in held)


# --- A model that says which weights are depthwise ---


def _weights_like(state: StateDict, model: nn.Module) -> DepthwiseWeights:
    """Return the weights of the layers that `depthwise_layers(model)` finds, under its names and in its order.

    Only names and shapes of the model are used, so that it may live on the meta device.
    """
    tensors, aliases, notes = _cleaned(state.tensors), _aliases(model), list[str]()
    if not any(_inside(name, "weight") in tensors for names in aliases.values() for name in names):
        tensors, notes = _of_network(tensors)
    layers, kind = depthwise_layers(model), type(unwrap(model)).__name__
    found = {}
    for layer in layers:
        weight = _stored_weight(layer, aliases[layer.module], tensors)
        if weight is None:
            renamed = _under_other_names(state, layers)
            if renamed is not None:
                return renamed
            raise CheckpointError(
                f"needed {_inside(layer.name, 'weight')} as the {kind} given as like has it, found none among its "
                f"{len(tensors)} tensors; pass a model built as the one that was saved"
            )
        if tuple(weight.shape) != _shape(layer):
            raise CheckpointError(
                f"{layer.name} needs a weight {_shape(layer)} in the {kind} given as like, the file has "
                f"{tuple(weight.shape)}; pass a model built as the one that was saved"
            )
        found[layer.name] = weight
    known = {name for names in aliases.values() for name in names}
    strange = [_layer(name) for name, tensor in tensors.items() if is_depthwise_weight(name, tensor)]
    strange = [name for name in strange if name not in known]
    if strange:
        notes.append(f"left out {_few(strange)}: unknown to the model given as like")
    return DepthwiseWeights(found, tuple(notes))


def _under_other_names(state: StateDict, layers: Sequence[DepthwiseLayer]) -> DepthwiseWeights | None:
    """Return the weights of a file whose layers are the model's in all but what they lie in, None if they are not.

    Libraries rename what holds the layers when they save a network, and keep what the layers themselves are called.
    """
    try:
        found = depthwise_weights(state)
    except CheckpointError:
        return None
    wanted = [(layer.name.rpartition(".")[2], _shape(layer)) for layer in layers]
    if wanted != [(name.rpartition(".")[2], tuple(tensor.shape)) for name, tensor in found.tensors.items()]:
        return None
    first = next(iter(found.tensors))
    note = f"the file has other names, {first} for {layers[0].name}: layers were matched by their order and shapes"
    tensors = dict(zip((layer.name for layer in layers), found.tensors.values(), strict=True))
    return DepthwiseWeights(tensors, (note,))


def _aliases(model: nn.Module) -> dict[nn.Module, list[str]]:
    """Return every name of every module, its own first, then those of modules that share its weight.

    Writers drop all but one name of a tie.
    """
    root = unwrap(model)
    clean = name_cleaner(root)
    names: dict[nn.Module, list[str]] = {}
    sharing: dict[int, list[str]] = {}
    for name, module in root.named_modules(remove_duplicate=False):
        alias = _layer(clean(_inside(name, "weight")))
        names.setdefault(module, []).append(alias)
        if (weight := module._parameters.get("weight")) is not None:
            sharing.setdefault(id(weight), []).append(alias)
    return {module: own + sharing.get(id(module._parameters.get("weight")), []) for module, own in names.items()}


def _stored_weight(layer: DepthwiseLayer, names: Sequence[str], tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return the weight under the first of the names that the file has, computed if the model computes it."""
    for name in names:
        if (stored := tensors.get(_inside(name, "weight"))) is not None:
            return stored
    for name in names:
        prefix = _inside(name, "")
        inside = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
        try:
            with torch.no_grad():
                if parametrisation(layer.module) is None:
                    if (computed := hooked_weight(layer.module, SimpleNamespace(**inside))) is not None:
                        return computed
                    continue
                module = copy.deepcopy(layer.module)
                module.load_state_dict(inside, assign=True)
                return current_weight(module, name)
        except (AttributeError, RuntimeError):  # other names or shapes than the model has
            continue
    return None


def _shape(layer: DepthwiseLayer) -> tuple[int, ...]:
    return (layer.channels, 1, *layer.kernel_size)


def _inside(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name
