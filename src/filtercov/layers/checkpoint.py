"""The depthwise weights of a checkpoint in forward order, with notes on guesses.

A state dict holds names and shapes, not modules. A few rules decide what these leave open, each with a note; a model
given as `like` decides it exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from filtercov.errors import CheckpointError, naming
from filtercov.layers.find import DepthwiseLayer, check_model, depthwise_layers, unwrap
from filtercov.layers.names import building_key, clean_name
from filtercov.layers.state_dict import EMA, StateDict, is_depthwise_weight, read_state_dict

SURE = "pass like=model or --like NAME to be sure"

# What trainers keep a network under.
HOLDERS = {"model", "module", "net", "network", "online_model"}

TRANSPOSED = re.compile(r"deconv|transpose")
PARAMETRISED = re.compile(r"\.?(parametrizations\.weight\.original1?|weight_orig|weight_v)$")


def read_depthwise_weights(source: Path | Mapping[str, Tensor], *, like: nn.Module | None = None) -> StateDict:
    """Depthwise weights by the name of their layer, in forward order; `like` says which they are and their order."""
    if like is not None:
        check_model(like, "like")
    if isinstance(source, Mapping):
        tensors = {str(name): value for name, value in source.items() if isinstance(value, Tensor)}
        state = StateDict(tensors)
    else:
        state = read_state_dict(source)
    with naming("state dict" if isinstance(source, Mapping) else source):
        found = depthwise_weights(state) if like is None else _weights_like(state, like)
    return replace(found, notes=(*state.notes, *found.notes))


def read_named_weights(path: Path, names: Sequence[str]) -> StateDict:
    """The weights of the layers with these names, in their order; those the checkpoint lacks are left out."""
    state = read_state_dict(path)
    found = _cleaned(state.tensors).items()
    tensors = {_layer(name): tensor for name, tensor in found if is_depthwise_weight(name, tensor)}
    return StateDict({name: tensors[name] for name in names if name in tensors}, state.notes)


def depthwise_weights(state: StateDict) -> StateDict:
    """The depthwise weights of a state dict by names and shapes alone.

    >>> net = nn.Sequential(nn.Conv2d(1, 8, 5), nn.Conv2d(8, 8, 7, groups=8), nn.Conv2d(8, 8, 1))
    >>> found = depthwise_weights(StateDict(dict(net.state_dict())))
    >>> list(found.tensors)
    ['1']
    >>> print(*found.notes)
    left out 0: dense, of one-channel images, for it comes first; pass like=model or --like NAME to be sure
    """
    tensors, notes = _of_network(_cleaned(state.tensors))
    guessed = not state.in_model_order or _sorted_by_writer(tensors)
    if guessed:
        tensors = {name: tensors[name] for name in sorted(tensors, key=building_key)}
    found: dict[object, str] = {}  # by their memory, because a module may have several names
    left_out: dict[str, list[str]] = {}
    stem = _image_stem(tensors)
    for name, tensor in tensors.items():
        behind = PARAMETRISED.search(name)
        if behind and is_depthwise_weight("weight", tensor):
            raise CheckpointError(
                f"needed plain weights, but that of {name[: behind.start()]} is stored as the parameters it is "
                "computed from; load the file into its model and measure that with FilterStatistics.from_model(model)"
            )
        if not is_depthwise_weight(name, tensor):
            continue
        bias = tensors.get(name.removesuffix("weight") + "bias")
        if name == stem:
            left_out.setdefault("dense, of one-channel images, for it comes first", []).append(_layer(name))
        elif (bias is not None and bias.ndim == 1 and len(bias) != len(tensor)) or TRANSPOSED.search(name.lower()):
            left_out.setdefault("transposed, for its bias or its name says so", []).append(_layer(name))
        else:
            found.setdefault((_memory(tensor), None if bias is None else _memory(bias)), name)
    notes += [f"left out {_few(names)}: {why}; {SURE}" for why, names in left_out.items()]
    if not found:
        raise CheckpointError(
            "needed depthwise weights, (channels, 1, kernel height, kernel width) or the 1-D or 3-D like, found none "
            f"among its {len(tensors)} tensors{''.join(f'; {note}' for note in notes)}"
        )
    if guessed and len({_without_numbers(name) for name in found.values()}) > 1:
        notes.append(f"the file does not say in which order its layers come: it was guessed from their names; {SURE}")
    return StateDict({_layer(name): tensors[name] for name in found.values()}, tuple(notes))


def _cleaned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {clean_name(name): tensor for name, tensor in tensors.items()}


def _of_network(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Leave out EMA copies, with a note, and cut off the holders that all depthwise weights have in common."""
    own = {name: tensor for name, tensor in tensors.items() if not EMA.search(name.partition(".")[0])}
    if not any(is_depthwise_weight(*item) for item in own.items()):
        own = tensors
    copies = [_layer(name) for name in tensors if name not in own and is_depthwise_weight(name, tensors[name])]
    while True:
        holders = {name.partition(".")[0] for name, tensor in own.items() if is_depthwise_weight(name, tensor)}
        if len(holders) != 1 or not holders <= HOLDERS:
            return own, [f"left out {_few(copies)}: EMA copies of weights in the file"] if copies else []
        prefix = f"{holders.pop()}."
        own = {name.removeprefix(prefix): tensor for name, tensor in own.items()}


def _sorted_by_writer(names: Mapping[str, Tensor]) -> bool:
    """Whether a writer sorted the names: a model registers the weight of a layer before its bias."""
    paired = any(name.endswith("bias") and name.removesuffix("bias") + "weight" in names for name in names)
    return paired and list(names) == sorted(names)


def _image_stem(tensors: Mapping[str, Tensor]) -> str:
    """The name of the weight that reads one-channel images, empty if there seems to be none.

    The first weight that reads one channel, though none reads the three of coloured images and others read more, is
    taken for a stem unless another is built like it: depthwise layers follow layers that made their channels.
    """
    weights = {name: tensor.shape for name, tensor in tensors.items() if name.endswith("weight") and tensor.ndim > 1}
    reads = [shape[1] for shape in weights.values()]
    coloured = any(shape[1] == 3 and len(shape) > 2 for shape in weights.values())
    kinds = [(_without_numbers(name), shape[2:]) for name, shape in weights.items()]
    is_stem = reads[:1] == [1] and set(reads) != {1} and not coloured and kinds.count(kinds[0]) == 1
    return next(iter(weights)) if is_stem else ""


def _memory(tensor: Tensor) -> tuple[object, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _layer(weight: str) -> str:
    return weight.rpartition(".")[0]


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _few(names: Sequence[str]) -> str:
    """Three of the names, and how many more.

    >>> _few("abc"), _few("abcd")
    ('a, b, c', 'a, b, c and 1 more')
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# --- A model that says which weights are depthwise ---


def _weights_like(state: StateDict, model: nn.Module) -> StateDict:
    """The weights of the layers that `depthwise_layers(model)` finds, under its names and in its order.

    Only names and shapes of the model are used. All names in the file may have one prefix more than in the model.
    """
    tensors, layers, root = _cleaned(state.tensors), depthwise_layers(model), unwrap(model)
    keys: dict[int, list[str]] = {}  # every name of each parameter: writers drop all but one name of a tie
    for name, parameter in root.named_parameters(remove_duplicate=False):
        keys.setdefault(id(parameter), []).append(clean_name(name))
    known = {layer: keys.get(id(layer.module._parameters.get("weight")), []) for layer in layers}
    prefixes = {
        stored.removesuffix(name)
        for stored in tensors
        for name in known[layers[0]]
        if f".{stored}".endswith(f".{name}")
    }
    for prefix in sorted(prefixes, key=lambda prefix: (bool(EMA.search(prefix)), len(prefix))):
        found = {layer: tensors[prefix + name] for layer in layers for name in known[layer] if prefix + name in tensors}
        if all(layer in found and found[layer].shape == _shape(layer) for layer in layers):
            return StateDict({layer.name: found[layer] for layer in layers})
    raise CheckpointError(
        f"needed the {len(layers)} depthwise weights of the {type(root).__name__} given as like, from that of "
        f"{layers[0].name} {_shape(layers[0])} on, found others among its {len(tensors)} tensors; pass a model built "
        "as the one that was saved, or load the file into it and use FilterStatistics.from_model(model)"
    )


def _shape(layer: DepthwiseLayer) -> tuple[int, ...]:
    return (layer.channels, 1, *layer.kernel_size)
