"""The depthwise weights of a state dict in the model's order, as far as it can be known, with notes on guesses.

A state dict holds names and shapes, not modules. What a shape leaves open is decided by what lies around it, and noted;
a model given as `like` decides it exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from torch import Tensor, nn

from filtercov.depthwise.averages import without_averaged_twins
from filtercov.depthwise.definition import has_depthwise_shape
from filtercov.depthwise.foreign import StateDict, read_state_dict
from filtercov.depthwise.lookalikes import lookalikes, may_be_transposed, may_read_images, parametrised_names
from filtercov.depthwise.matching import cleaned, layer_name, out_of_holder, weights_like
from filtercov.depthwise.model import check_model, depthwise_layers
from filtercov.depthwise.ties import equal_weights, same_modules
from filtercov.errors import CheckpointError
from filtercov.layer_names import building_key, differ_in_numbers_only, last_name, looks_built, sorted_by_writer

SURE = "pass like=model or --like NAME to be sure"


@dataclass(frozen=True)
class DepthwiseWeights:
    """Depthwise weights by the name of their layer, in the model's order, and notes on what was guessed."""

    tensors: dict[str, Tensor]
    notes: tuple[str, ...] = ()


def read_depthwise_weights(path: Path | Mapping[str, Tensor], *, like: nn.Module | None = None) -> DepthwiseWeights:
    """Return the depthwise weights of a checkpoint or a state dict; `like`, if given, says which and in which order."""
    if like is not None:
        check_model(like, "like")
    if isinstance(path, Mapping):
        tensors = {str(name): value for name, value in path.items() if isinstance(value, Tensor)}
        state, source = StateDict(tensors, (), True), "state dict"
    else:
        state, source = read_state_dict(path), str(path)
    if like is None:
        return depthwise_weights(state, source)
    try:
        tensors, notes = weights_like(state, like, source)
    except CheckpointError:
        renamed = _under_other_names(state, like, source)
        if renamed is None:
            raise
        return renamed
    return DepthwiseWeights(tensors, (*state.notes, *notes))


def read_named_weights(path: Path, names: Sequence[str]) -> DepthwiseWeights:
    """Return the weights of the layers with these names, in their order; those the checkpoint lacks are left out."""
    state = read_state_dict(path)
    found = cleaned(state.tensors).items()
    tensors = {layer_name(name): tensor for name, tensor in found if has_depthwise_shape(name, tensor)}
    return DepthwiseWeights({name: tensors[name] for name in names if name in tensors}, state.notes)


def depthwise_weights(state: StateDict, source: str) -> DepthwiseWeights:
    """Return the depthwise weights of a state dict, named in errors as `source`.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 7, groups=8), nn.Conv1d(1, 1, 3))
    >>> found = depthwise_weights(StateDict(dict(net.state_dict()), (), True), "net")
    >>> list(found.tensors)
    ['1']
    >>> print(*found.notes)
    2 counted as dense, one channel to one, as attention modules have them; pass like=model or --like NAME to be sure
    """
    weights, averages = without_averaged_twins(cleaned(state.tensors))
    tensors, how = _in_order(replace(state, tensors=out_of_holder(weights)))
    _refuse_parametrised(tensors, source)
    shaped = [name for name, tensor in tensors.items() if has_depthwise_shape(name, tensor)]
    dense = lookalikes(tensors, shaped)
    again = same_modules(tensors, [name for name in shaped if name not in dense])
    chosen = [name for name in shaped if name not in dense and name not in again]
    notes = [f"{names} counted as {why}; {SURE}" for names, why in _together(dense)]
    if not chosen:
        raise CheckpointError(
            f"{source}: needed depthwise weights, (channels, 1, kernel height, kernel width) or the 1-D or 3-D like, "
            f"found none among its {len(tensors)} tensors{''.join(f'; {note}' for note in notes)}"
        )
    notes += [f"{layer_name(name)} is tied to {layer_name(first)}; counted once" for name, first in again.items()]
    notes += [
        f"{layer_name(name)} equals {layer_name(first)} in every number; counted as a layer of its own; {SURE}"
        for name, first in equal_weights(tensors, chosen).items()
    ]
    images = chosen[:1] if may_read_images(tensors, chosen) else []
    transposed = dict.fromkeys(may_be_transposed(tensors, chosen[len(images) :]), "transposed")
    notes += [
        f"{names} may be {why}: shape alone cannot tell, and even kernels often are; {SURE}"
        for names, why in _together(transposed)
    ]
    notes += [
        f"{layer_name(name)} may be a dense convolution of one-channel images: shape alone cannot tell; {SURE}"
        for name in images
    ]
    if how and not differ_in_numbers_only(chosen):
        notes.append(f"the file does not say in which order its layers come: {how}; {SURE}")
    return DepthwiseWeights({layer_name(name): tensors[name] for name in chosen}, (*state.notes, *averages, *notes))


def _under_other_names(state: StateDict, model: nn.Module, source: str) -> DepthwiseWeights | None:
    """Return the weights of a file whose layers are the model's in all but what they lie in, None if they are not.

    Libraries rename what holds the layers when they save a network or convert it, and keep what the layers themselves
    are called. Their shapes and last names must be the same, one after the other.
    """
    layers = depthwise_layers(model)
    weights, averages = without_averaged_twins(cleaned(state.tensors))
    try:
        found = depthwise_weights(replace(state, tensors=weights), source)
    except CheckpointError:
        return None
    wanted = [
        (last_name(layer.name), (layer.module.out_channels, 1, *layer.kernel_size))  # one input channel, by definition
        for layer in layers
    ]
    if wanted != [(last_name(name), tuple(tensor.shape)) for name, tensor in found.tensors.items()]:
        return None
    first = next(iter(found.tensors))
    note = f"the file has other names, {first} for {layers[0].name}: layers were matched by their order and shapes"
    tensors = dict(zip((layer.name for layer in layers), found.tensors.values(), strict=True))
    return DepthwiseWeights(tensors, (*state.notes, *averages, note))


def _in_order(state: StateDict) -> tuple[dict[str, Tensor], str]:
    """Return the tensors in the best order that can be had, and how it was come by if the file does not tell it."""
    if state.in_model_order and not sorted_by_writer(list(state.tensors)):
        return state.tensors, ""
    # A writer that groups tensors by type, as safetensors' own does, tells nothing across types.
    by_type = [[name for name, _ in group] for _, group in groupby(state.tensors.items(), lambda item: item[1].dtype)]
    longest = max(by_type, key=len, default=[])
    if looks_built(longest):
        return state.tensors, "it is the one its tensors lie in"
    names = sorted(state.tensors, key=building_key)
    return {name: state.tensors[name] for name in names}, "it was guessed from their names"


def _refuse_parametrised(tensors: dict[str, Tensor], source: str) -> None:
    for name in parametrised_names(tensors):
        raise CheckpointError(
            f"{source}: needed plain weights, but that of {name} is stored as what a parametrisation makes it of; pass "
            "like=model with the same parametrisation, or remove it before saving"
        )


def _together(reasons: dict[str, str]) -> list[tuple[str, str]]:
    """Return the names that share a reason in one string, the first few of them spelt out."""
    grouped: dict[str, list[str]] = {}
    for name, why in reasons.items():
        if why:
            grouped.setdefault(why, []).append(layer_name(name))
    return [
        (", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""), why)
        for why, names in grouped.items()
    ]
