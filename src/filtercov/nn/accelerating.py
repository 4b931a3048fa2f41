"""Put filtercov's layers into an existing model, and make it PyTorch's own again."""

import sys
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from filtercov.depthwise.definition import is_depthwise, is_uninitialised
from filtercov.depthwise.model import check_model
from filtercov.errors import ModelError
from filtercov.nn import library
from filtercov.nn.convnext_block import FUSED_BLOCKS
from filtercov.nn.depthwise import DepthwiseConv1d, DepthwiseConv2d, DepthwiseConv3d
from filtercov.nn.layouts import read_layouts, remember_changed_layouts_, restore_layouts_
from filtercov.nn.sequential import FusedSequential, norm_after_gelu
from filtercov.nn.strided_pointwise import StridedPointwiseConv2d, is_endangered
from filtercov.printable import counted

# What takes the place of what.
_SWAPS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: DepthwiseConv1d,
    nn.Conv2d: DepthwiseConv2d,
    nn.Conv3d: DepthwiseConv3d,
}
_ORIGINALS: dict[type[nn.Module], type[nn.Module]] = {
    **{ours: plain for plain, ours in _SWAPS.items()},
    StridedPointwiseConv2d: nn.Conv2d,
    FusedSequential: nn.Sequential,
}


@dataclass(frozen=True)
class Acceleration:
    """What `accelerate_` did, by name: layers swapped, pairs and blocks fused, layers left alone and why, made safe."""

    swapped: tuple[str, ...]
    fused: tuple[str, ...]
    blocks: tuple[str, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    made_safe: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line, and one more for each layer left alone."""
        lines = [
            f"{counted(len(self.swapped), 'depthwise convolution')} swapped, "
            f"{counted(len(self.fused), 'GELU + BatchNorm2d pair')} fused"
        ]
        if self.blocks:
            lines.append(f"{counted(len(self.blocks), 'ConvNeXt block')} fused")
        if self.made_safe:
            lines.append(
                f"{counted(len(self.made_safe), 'strided 1x1 convolution')} kept out of a memory fault of PyTorch's"
            )
        return "\n".join([*lines, *(f"left alone: {name}: {reason}" for name, reason in self.skipped.items())])


def accelerate_(model: nn.Module) -> Acceleration:
    """Make every depthwise convolution of a model a `DepthwiseConv1d`, 2d or 3d, in place; move it to channels_last.

    Modules stay the same objects: parameters, optimisers, hooks and state_dict keys are untouched. An `nn.Sequential`
    that holds a GELU directly followed by a BatchNorm2d becomes a `FusedSequential`, and blocks of timm's ConvNeXt run
    what follows their depthwise layer as one operator, where there are native kernels. Layers with a class of their
    own (subclasses, parametrised ones) are left alone and reported. Strided 1x1 convolutions of a few channels, whose
    weight gradient corrupts memory in channels_last (docs/depthwise.md), become `StridedPointwiseConv2d`. `restore_`
    undoes it all.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 9, padding=4, groups=8), nn.GELU(), nn.BatchNorm2d(8))
    >>> report = accelerate_(net)
    >>> report.swapped, type(net[0]).__name__
    (('0',), 'DepthwiseConv2d')
    """
    check_model(model)
    for name, module in model.named_modules():
        if is_uninitialised(module):
            raise ModelError(
                f"accelerate_: {name} is a {type(module).__name__} that has seen no input yet; run the model once on "
                "an example first"
            )
    layouts = read_layouts(model)
    native = library.available()  # says why, once, if nothing will be faster
    if "timm.models.convnext" in sys.modules:
        import filtercov.nn.timm_convnext  # noqa: F401 - only where timm is, and a block may be timm's
    swapped, fused, blocks, skipped, made_safe = [], [], [], {}, []
    for name, module in model.named_modules():
        kind = type(module)
        if kind in _SWAPS and is_depthwise(module):
            module.__class__ = _SWAPS[kind]  # type: ignore[assignment]
            swapped.append(name)
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and kind not in _ORIGINALS and is_depthwise(module):
            skipped[name] = f"it is a {type(module).__name__}, which may compute something else"
        elif type(module) is nn.Conv2d and is_endangered(module):
            module.__class__ = StridedPointwiseConv2d
            made_safe.append(name)
        elif isinstance(module, nn.Conv2d) and type(module) is not StridedPointwiseConv2d and is_endangered(module):
            skipped[name] = f"it is a {type(module).__name__}; PyTorch's weight gradient of it may corrupt memory"
        elif native and type(module) in (nn.Sequential, FusedSequential):
            pairs = _pairs(name, cast(nn.Sequential, module))
            if pairs:
                module.__class__ = FusedSequential
                fused += pairs
        elif native and kind in FUSED_BLOCKS:
            module.__class__ = FUSED_BLOCKS[kind]
            blocks.append(name)
    # Not model.to(memory_format=...), which would refuse the five axes of a Conv3d's weight.
    model._apply(_channels_last)  # type: ignore[no-untyped-call]
    remember_changed_layouts_(model, layouts)
    return Acceleration(tuple(swapped), tuple(fused), tuple(blocks), skipped, tuple(made_safe))


def restore_(model: nn.Module) -> tuple[str, ...]:
    """Make filtercov's convolutions and sequences PyTorch's own; return their names.

    This undoes `accelerate_`, for exporting a model to where there is no filtercov: modules, parameters, hooks and
    state_dict stay, and what `accelerate_` moved to channels_last lies in memory as it did before. Layers that were
    built as filtercov's become PyTorch's too. Subclasses of them are left alone.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 9, padding=4, groups=8))
    >>> report = accelerate_(net)
    >>> restore_(net), type(net[0]).__name__
    (('0',), 'Conv2d')
    """
    check_model(model)
    restored = []
    for name, module in model.named_modules():
        kind = type(module)
        plain = _ORIGINALS.get(kind) or vars(kind).get("plain_class")
        if plain is not None:
            module.__class__ = plain
            restored.append(name)
    restore_layouts_(model)
    return tuple(restored)


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _pairs(name: str, layers: nn.Sequential) -> list[str]:
    prefix = f"{name}." if name else ""
    children = list(layers.named_children())
    return [
        f"{prefix}{first}+{second}"
        for (first, layer), (second, following) in pairwise(children)
        if norm_after_gelu(layer, following) is not None
    ]
