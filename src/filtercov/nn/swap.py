"""Which modules can be replaced by which: each has a class of PyTorch's and one of filtercov's, and changes in place.

`SWAPS` is the whole list. A new entry needs a class that computes what another does from the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

from torch import Tensor, nn

from filtercov.layers.find import is_depthwise
from filtercov.nn import conv, fused, gpu, native, routing
from filtercov.nn.fused import replacements
from filtercov.nn.geometry import parse_geometry
from filtercov.nn.layout import is_channels_last
from filtercov.nn.routing import BITS, BY_THRESHOLDS, ON_GPU, Pass

Class = type[nn.Module]
Setting = int | None  # the passes that run natively in a module that is ours; None while it is PyTorch's


@dataclass(frozen=True)
class Swap:
    """One kind of swap: of classes, PyTorch's to ours, for modules to which it applies.

    `by_default`: modules change where nothing is measured. `only_last`: ours differs from PyTorch's in channels_last
    alone.
    """

    kind: str
    classes: Callable[[], Mapping[Class, Class]]  # asked each time, since libraries may have been imported
    applies: Callable[[Any], bool] = lambda _module: True
    by_default: bool = True
    only_last: bool = False
    needs_kernels: bool = True


class Toggle(NamedTuple):
    """A module of a model that can be PyTorch's or ours."""

    name: str
    module: nn.Module
    swap: Swap
    plain: Class
    ours: Class

    @property
    def setting(self) -> Setting:
        """The setting of the module now."""
        return None if type(self.module) is self.plain else vars(self.module).get("passes", BY_THRESHOLDS)

    def set_(self, setting: Setting) -> None:
        """Change the module, which stays the same object."""
        self.module.__class__ = self.plain if setting is None else self.ours
        vars(self.module).pop("passes", None)
        if setting not in (None, BY_THRESHOLDS):
            self.module.passes = setting  # type: ignore[assignment]

    @property
    def default(self) -> Setting:
        """The setting where nothing is measured; on a GPU that is PyTorch's."""
        if any(map(routing.on_gpu, self.module.parameters())):
            return None
        return BY_THRESHOLDS if self.swap.by_default else self.setting

    @property
    def parts(self) -> dict[str, tuple[nn.Module, ...]]:
        """The parts of the module that are timed, by name: all of it, or each pair of a sequence."""
        if self.swap is not PAIRS:
            return {self.name: (self.module,)}
        prefix = f"{self.name}." if self.name else ""
        return {f"{prefix}{first}+{second}": pair for (first, second), pair in _pairs(self.module).items()}


def toggles(model: nn.Module) -> list[Toggle]:
    """Every module of a model that can be swapped, in the order of `named_modules`.

    >>> net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3))
    >>> [(toggle.name, toggle.swap.kind, toggle.ours.__name__) for toggle in toggles(net)]
    [('0', 'depthwise', 'DepthwiseConv2d')]
    """
    possible = (_toggle(name, module) for name, module in model.named_modules())
    found = [toggle for toggle in possible if toggle is not None]
    done: set[nn.Module] = set()  # modules whose work is done by the pair or block that they are part of
    for toggle in found:
        if toggle.swap is PAIRS:
            done.update(*toggle.parts.values())
        elif toggle.swap in (BLOCK, NORM_ACT):
            done.update(toggle.module.modules())
    # Swapping a GELU that is fused with others gains nothing; one that is ours already must still be found.
    return [t for t in found if t.swap is not GELU or t.setting is not None or t.module not in done]


def _toggle(name: str, module: nn.Module) -> Toggle | None:
    own = type(module)
    for swap in SWAPS:
        for plain, ours in swap.classes().items():
            usable = own is plain and (not swap.needs_kernels or native.available()) and swap.applies(module)
            if usable or own is ours:
                return Toggle(name, module, swap, plain, ours)
    return None


def _pairs(module: nn.Module) -> dict[tuple[str, str], tuple[nn.Module, nn.Module]]:
    """Each BatchNorm2d of a sequence with the activation before or after it, by their names."""
    children = cast(dict[str, nn.Module], module._modules).items()
    neighbours = {(a, b): (first, second) for (a, first), (b, second) in pairwise(children)}
    return {names: pair for names, pair in neighbours.items() if fused.pair_of(*pair) is not None}


def pass_choices(toggle: Toggle, x: Tensor) -> tuple[tuple[int, ...], list[Pass]]:
    """The `passes` worth timing on x: by the thresholds, first, and with each needed pass on the other side.

    On a GPU the first has all passes that may win; there are none if no pass may. Those that might but spill registers
    are the second result.
    """
    if toggle.swap is not DEPTHWISE:
        return (BY_THRESHOLDS,), []
    layer = cast(nn.Conv2d, toggle.module)  # or of another dimension
    axes, kernel = len(layer.kernel_size), layer.kernel_size
    padding = layer.padding if layer.padding_mode == "zeros" else 0
    geometry = parse_geometry(kernel, stride=layer.stride, padding=padding, dilation=layer.dilation)
    needed = {"forward": True, "input_grad": x.requires_grad, "weight_grad": layer.weight.requires_grad}
    image = x if x.dim() == axes + 2 else x[None]
    if routing.on_gpu(x):
        image, *_ = routing.autocast(image, layer.weight, layer.bias)
        fits = routing.fits(axes, image, layer.weight, layer.bias)
        may_win = [w for w in BITS if needed[w] and fits and gpu.supports(w, image, kernel, geometry)]
        spilled = [which for which in may_win if gpu.spills(which, image, kernel, geometry)]
        offered = [BITS[which] for which in may_win if which not in spilled]
        everything = ON_GPU + sum(offered)
        return tuple(c for c in (everything, *(everything ^ bit for bit in offered)) if c != ON_GPU), spilled
    if not routing.fits(axes, x, layer.weight, layer.bias) or not routing.has_kernels(x, geometry):
        return (BY_THRESHOLDS,), []
    last = is_channels_last(image)
    wins = {which: routing.native_wins(which, image, kernel, geometry, channels_last=last) for which in BITS}
    by_thresholds = sum(bit for which, bit in BITS.items() if wins[which])
    return (by_thresholds, *(by_thresholds ^ bit for which, bit in BITS.items() if needed[which])), []


DEPTHWISE = Swap(
    "depthwise",
    lambda: {nn.Conv1d: conv.DepthwiseConv1d, nn.Conv2d: conv.DepthwiseConv2d, nn.Conv3d: conv.DepthwiseConv3d},
    is_depthwise,
    needs_kernels=False,
)
PAIRS = Swap("norm and activation", partial(replacements, fused.FusedLayers), lambda m: bool(_pairs(m)), only_last=True)
NORM_ACT = Swap("norm and activation", partial(replacements, fused.FusedNormAct), fused.is_norm_act, only_last=True)
GELU = Swap("GELU", partial(replacements, fused.NativeActivation), fused.is_exact)
BLOCK = Swap("ConvNeXt block", partial(replacements, fused.FusedBlock), only_last=True)
RESIDUAL = Swap("residual", partial(replacements, fused.FusedResidual), lambda module: fused.ends_in_pair(module.fn))
POINTWISE = Swap(
    "pointwise convolution",
    lambda: {nn.Conv2d: conv.PointwiseConv2d},
    lambda module: conv.is_pointwise(module) and not is_depthwise(module),
    by_default=False,
    needs_kernels=False,
)
SAFE = Swap(
    "strided 1x1 convolution", lambda: {nn.Conv2d: conv.StridedPointwiseConv2d}, conv.is_endangered, needs_kernels=False
)
SWAPS: tuple[Swap, ...] = (DEPTHWISE, PAIRS, NORM_ACT, GELU, BLOCK, RESIDUAL, POINTWISE, SAFE)
