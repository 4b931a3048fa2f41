"""What can take the place of what: modules with a class of PyTorch's and one of filtercov's, which they can change.

`SWAPS` is the whole list. To add to it takes a class that computes what another does from the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from filtercov.layers.find import is_depthwise
from filtercov.nn import library, routing
from filtercov.nn.arguments import convolution
from filtercov.nn.convnext_block import FusedBlock
from filtercov.nn.depthwise import DepthwiseConv1d, DepthwiseConv2d, DepthwiseConv3d
from filtercov.nn.gelu import NativeActivation, is_exact
from filtercov.nn.images import is_channels_last
from filtercov.nn.norm_act_module import FusedNormAct, is_norm_act
from filtercov.nn.pointwise import PointwiseConv2d, is_pointwise
from filtercov.nn.replacement import Replacement, replaced_by, replacement_of
from filtercov.nn.residual import FusedResidual, ends_in_pair
from filtercov.nn.routing import BITS, BY_THRESHOLDS
from filtercov.nn.sequential import FusedLayers, FusedSequential, named_layers, pair_of

Class = type[nn.Module]


class Part(NamedTuple):
    """Modules that run one after the other and whose time depends on a swap."""

    name: str
    modules: tuple[nn.Module, ...]


@dataclass(frozen=True)
class Swap:
    """One kind of swap. `ours` and `plain` return the class a module can change to, None if it is not of that kind.

    `parts` are what is timed of a module, by default all of it. `passes` are the choices of what runs natively that are
    worth trying on an input, `routing.BY_THRESHOLDS` if there are none. Where nothing is measured a module becomes ours
    if `by_default`, and else stays what it is. With `only_last` ours differs from PyTorch's in channels_last alone.
    """

    kind: str
    ours: Callable[[nn.Module], Class | None]
    plain: Callable[[nn.Module], Class | None]
    parts: Callable[[str, nn.Module], list[Part]] = lambda name, module: [Part(name, (module,))]
    passes: Callable[[nn.Module, Tensor], tuple[int, ...]] = lambda _module, _x: (BY_THRESHOLDS,)
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
        """How the module is set now."""
        return Setting(type(self.module), vars(self.module).get("passes", BY_THRESHOLDS))

    def set_(self, setting: Setting) -> None:
        """Change the module, which stays the same object."""
        self.module.__class__ = setting.kind
        vars(self.module).pop("passes", None)
        if setting.passes != BY_THRESHOLDS:
            self.module.passes = setting.passes  # type: ignore[assignment]

    @property
    def usual(self) -> Setting:
        """How the module is set where nothing is measured."""
        return self.ours if self.swap.by_default else self.setting

    @property
    def parts(self) -> list[Part]:
        """What of the module is worth timing."""
        return self.swap.parts(self.name, self.module)


def toggles(model: nn.Module) -> list[Toggle]:
    """Return every module of a model that a swap is for, in the order of `named_modules`.

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
    part_of_another = set(_inner(found))
    return [toggle for toggle in found if toggle.module not in part_of_another or not _is_spare(toggle)]


def _is_spare(toggle: Toggle) -> bool:
    """Return whether a swap is of no use where another does the module's work; what is ours must still be found."""
    return toggle.swap is GELU and toggle.setting == toggle.plain


def _inner(found: list[Toggle]) -> Iterator[nn.Module]:
    """Yield the modules whose work is done by the pairs and blocks that they are part of."""
    for toggle in found:
        if toggle.swap in (PAIRS, LAYERS):
            yield from (module for part in toggle.parts for module in part.modules)
        elif toggle.swap in (BLOCK, NORM_ACT):
            yield from toggle.module.modules()


def classes(kind: str, pairs: dict[Class, Class], applies: Callable[[nn.Module], bool], **more: Any) -> Swap:
    """Return the swap of classes, PyTorch's to ours, of those modules to which it applies."""
    back = {ours: plain for plain, ours in pairs.items()}
    return Swap(
        kind,
        lambda module: pairs.get(type(module)) if type(module) in pairs and applies(module) else None,
        lambda module: back.get(type(module)),
        **more,
    )


def replacements(
    kind: str, base: type[Replacement], applies: Callable[[nn.Module], bool] = lambda _module: True, **more: Any
) -> Swap:
    """Return the swap of those classes of blocks for which there is a replacement, of modules to which it applies."""

    def ours(module: nn.Module) -> Class | None:
        found = replacement_of(module, base)
        return found if found is not None and applies(module) and library.available() else None

    return Swap(kind, ours, lambda module: replaced_by(module, base), **more)


def _passes_of_convolution(module: nn.Module, x: Tensor) -> tuple[int, ...]:
    """Return what the thresholds say, first, and that with each pass that is needed given to the other side."""
    layer = cast(nn.Conv2d, module)  # or of another dimension
    axes = len(layer.kernel_size)
    padding = layer.padding if layer.padding_mode == "zeros" else 0
    how = convolution(axes, layer.kernel_size, layer.stride, padding, layer.dilation)
    if not routing.fits(axes, x, layer.weight, layer.bias) or not routing.runs_at_all(x, how):
        return (BY_THRESHOLDS,)
    image = x if x.dim() == axes + 2 else x[None]
    last = is_channels_last(image)
    wins = {which: routing.native_wins(which, image, layer.kernel_size, how, channels_last=last) for which in BITS}
    usual = sum(bit for which, bit in BITS.items() if wins[which])
    needed = {"forward": True, "input_grad": x.requires_grad, "weight_grad": layer.weight.requires_grad}
    return usual, *(usual ^ bit for which, bit in BITS.items() if needed[which])


def _has_pairs(module: nn.Module) -> bool:
    return library.available() and bool(pairs("", module))


def pairs(name: str, module: nn.Module) -> list[Part]:
    """Return each BatchNorm2d and the activation before or after it in a sequence of that name."""
    prefix = f"{name}." if name else ""
    return [
        Part(f"{prefix}{first}+{second}", (layer, norm))
        for (first, layer), (second, norm) in pairwise(named_layers(module))
        if pair_of(layer, norm) is not None
    ]


DEPTHWISE = classes(
    "depthwise",
    {nn.Conv1d: DepthwiseConv1d, nn.Conv2d: DepthwiseConv2d, nn.Conv3d: DepthwiseConv3d},
    is_depthwise,
    passes=_passes_of_convolution,
)
PAIRS = classes("pair", {nn.Sequential: FusedSequential}, _has_pairs, parts=pairs, only_last=True)
LAYERS = replacements("pair", FusedLayers, _has_pairs, parts=pairs, only_last=True)
NORM_ACT = replacements("norm and activation", FusedNormAct, is_norm_act, only_last=True)
GELU = replacements("GELU", NativeActivation, is_exact)
BLOCK = replacements("ConvNeXt block", FusedBlock, only_last=True)
RESIDUAL = replacements("residual", FusedResidual, lambda module: ends_in_pair(cast(FusedResidual, module).fn))
POINTWISE = classes(
    "pointwise",
    {nn.Conv2d: PointwiseConv2d},
    lambda module: is_pointwise(cast(nn.Conv2d, module)) and not is_depthwise(module),
    by_default=False,
)
SWAPS: tuple[Swap, ...] = (DEPTHWISE, PAIRS, LAYERS, NORM_ACT, GELU, BLOCK, RESIDUAL, POINTWISE)
