"""Which modules can be replaced by which: each has a class of PyTorch's and one of filtercov's, and changes in place.

`SWAPS` is the whole list. A new entry needs a class that computes what another does from the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from filtercov.layers.find import is_depthwise
from filtercov.nn import native, routing
from filtercov.nn.conv import DepthwiseConv1d, DepthwiseConv2d, DepthwiseConv3d
from filtercov.nn.fused import (
    FusedLayers,
    FusedNormAct,
    FusedSequential,
    NativeActivation,
    Replacement,
    is_exact,
    is_norm_act,
    named_layers,
    pair_of,
    replaced_class,
    replacement_for,
)
from filtercov.nn.fused_blocks import FusedBlock, FusedResidual, ends_in_pair
from filtercov.nn.geometry import parse_geometry
from filtercov.nn.layout import is_channels_last
from filtercov.nn.pointwise import PointwiseConv2d, is_pointwise
from filtercov.nn.routing import BITS, BY_THRESHOLDS

Class = type[nn.Module]


class Part(NamedTuple):
    """Modules that run one after the other and whose time depends on a swap."""

    name: str
    modules: tuple[nn.Module, ...]


@dataclass(frozen=True)
class Swap:
    """One kind of swap. `ours` and `plain` return the class a module can change to, None if it is not of that kind.

    `parts` are what is timed of a module, by default all of it. `by_default` says whether a module changes where
    nothing is measured, `only_last` that ours differs from PyTorch's in channels_last alone.
    """

    kind: str
    ours: Callable[[nn.Module], Class | None]
    plain: Callable[[nn.Module], Class | None]
    parts: Callable[[str, nn.Module], list[Part]] = lambda name, module: [Part(name, (module,))]
    by_default: bool = True
    only_last: bool = False


class Setting(NamedTuple):
    """The class a module has, and which of its passes run natively."""

    kind: Class
    passes: int = BY_THRESHOLDS


class Toggle(NamedTuple):
    """A module of a model that can be PyTorch's or ours."""

    name: str
    module: nn.Module
    swap: Swap
    plain: Setting
    ours: Setting

    @property
    def setting(self) -> Setting:
        """The setting of the module now."""
        return Setting(type(self.module), vars(self.module).get("passes", BY_THRESHOLDS))

    def set_(self, setting: Setting) -> None:
        """Change the module, which stays the same object."""
        self.module.__class__ = setting.kind
        vars(self.module).pop("passes", None)
        if setting.passes != BY_THRESHOLDS:
            self.module.passes = setting.passes  # type: ignore[assignment]

    @property
    def default(self) -> Setting:
        """The setting where nothing is measured."""
        return self.ours if self.swap.by_default else self.setting

    @property
    def parts(self) -> list[Part]:
        """The parts of the module worth timing."""
        return self.swap.parts(self.name, self.module)


def toggles(model: nn.Module) -> list[Toggle]:
    """Return every module of a model that can be swapped, in the order of `named_modules`.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3))
    >>> [(toggle.name, toggle.swap.kind, toggle.ours.kind.__name__) for toggle in toggles(net)]
    [('0', 'depthwise', 'DepthwiseConv2d')]
    """
    found = []
    for name, module in model.named_modules():
        for swap in SWAPS:
            ours, plain = swap.ours(module), swap.plain(module)
            if ours is not None or plain is not None:
                own = type(module)
                found.append(Toggle(name, module, swap, Setting(plain or own), Setting(ours or own)))
                break
    fused = {module for toggle in found for module in _fused_parts(toggle)}
    # Swapping a GELU that is fused with others gains nothing; one that is ours already must still be found.
    return [t for t in found if t.swap is not GELU or t.setting != t.plain or t.module not in fused]


def _fused_parts(toggle: Toggle) -> list[nn.Module]:
    """Return the modules whose work is done by the pair or block that they are part of."""
    if toggle.swap in (PAIRS, LAYERS):
        return [module for part in toggle.parts for module in part.modules]
    return list(toggle.module.modules()) if toggle.swap in (BLOCK, NORM_ACT) else []


def pass_choices(toggle: Toggle, x: Tensor) -> tuple[int, ...]:
    """Return the `passes` worth timing on x: by the thresholds, first, and with each needed pass on the other side."""
    if toggle.swap is not DEPTHWISE:
        return (BY_THRESHOLDS,)
    layer = cast(nn.Conv2d, toggle.module)  # or of another dimension
    axes, kernel = len(layer.kernel_size), layer.kernel_size
    padding = layer.padding if layer.padding_mode == "zeros" else 0
    geometry = parse_geometry(axes, kernel, stride=layer.stride, padding=padding, dilation=layer.dilation)
    if not routing.fits(axes, x, layer.weight, layer.bias) or not routing.has_kernels(x, geometry):
        return (BY_THRESHOLDS,)
    image = x if x.dim() == axes + 2 else x[None]
    last = is_channels_last(image)
    wins = {which: routing.native_wins(which, image, kernel, geometry, channels_last=last) for which in BITS}
    by_thresholds = sum(bit for which, bit in BITS.items() if wins[which])
    needed = {"forward": True, "input_grad": x.requires_grad, "weight_grad": layer.weight.requires_grad}
    return by_thresholds, *(by_thresholds ^ bit for which, bit in BITS.items() if needed[which])


def _classes(kind: str, pairs: dict[Class, Class], applies: Callable[[nn.Module], bool], **more: Any) -> Swap:
    """Return the swap of classes, PyTorch's to ours, for modules to which it applies."""
    back = {ours: plain for plain, ours in pairs.items()}
    return Swap(
        kind,
        lambda module: pairs.get(type(module)) if type(module) in pairs and applies(module) else None,
        lambda module: back.get(type(module)),
        **more,
    )


def _replacements(
    kind: str, base: type[Replacement], applies: Callable[[nn.Module], bool] = lambda _module: True, **more: Any
) -> Swap:
    """Return the swap of classes that have a replacement derived from `base`, for modules to which it applies."""

    def ours(module: nn.Module) -> Class | None:
        found = replacement_for(module, base)
        return found if found is not None and applies(module) and native.available() else None

    return Swap(kind, ours, lambda module: replaced_class(module, base), **more)


def _pairs(name: str, module: nn.Module) -> list[Part]:
    """Return each BatchNorm2d and the activation before or after it in a sequence of that name."""
    prefix = f"{name}." if name else ""
    return [
        Part(f"{prefix}{first}+{second}", (layer, norm))
        for (first, layer), (second, norm) in pairwise(named_layers(module))
        if pair_of(layer, norm) is not None
    ]


def _has_pairs(module: nn.Module) -> bool:
    return native.available() and bool(_pairs("", module))


DEPTHWISE = _classes(
    "depthwise",
    {nn.Conv1d: DepthwiseConv1d, nn.Conv2d: DepthwiseConv2d, nn.Conv3d: DepthwiseConv3d},
    is_depthwise,
)
PAIRS = _classes("pair", {nn.Sequential: FusedSequential}, _has_pairs, parts=_pairs, only_last=True)
LAYERS = _replacements("pair", FusedLayers, _has_pairs, parts=_pairs, only_last=True)
NORM_ACT = _replacements("norm and activation", FusedNormAct, is_norm_act, only_last=True)
GELU = _replacements("GELU", NativeActivation, is_exact)
BLOCK = _replacements("ConvNeXt block", FusedBlock, only_last=True)
RESIDUAL = _replacements("residual", FusedResidual, lambda module: ends_in_pair(cast(FusedResidual, module).fn))
POINTWISE = _classes(
    "pointwise",
    {nn.Conv2d: PointwiseConv2d},
    lambda module: is_pointwise(cast(nn.Conv2d, module)) and not is_depthwise(module),
    by_default=False,
)
SWAPS: tuple[Swap, ...] = (DEPTHWISE, PAIRS, LAYERS, NORM_ACT, GELU, BLOCK, RESIDUAL, POINTWISE)
