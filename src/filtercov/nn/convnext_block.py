"""ConvNeXt blocks that run all that follows their depthwise layer as one operator (`norm_mlp`).

A block is whatever has timm's names: `conv_dw`, `norm`, `mlp` with `fc1`, `act` and `fc2`, `gamma` and `drop_path`.
`FusedBlock` goes before the block's own class among the bases of a new one, which then takes the place of the block's:

    class FusedConvNeXtBlock(FusedBlock, ConvNeXtBlock): ...

The modules of a block stay what they are. A call is fused only where that cannot be noticed; all others are the class's
own.
"""

import sys
from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.jit import is_scripting  # type: ignore[attr-defined]

from filtercov.nn import library
from filtercov.nn.images import is_channels_last
from filtercov.nn.norm_mlp import norm_mlp
from filtercov.nn.pointwise import PointwiseConv2d, is_pointwise
from filtercov.nn.routing import PLAIN_TENSORS, is_watched, untraced

# Classes of blocks, and what takes their place.
_FUSED: dict[type[nn.Module], type["FusedBlock"]] = {}


def fused_class(block: nn.Module) -> type["FusedBlock"] | None:
    """Return what can take the place of a block's class, None for any other module."""
    if "timm.models.convnext" in sys.modules:  # only then can a block be timm's
        import filtercov.nn.timm_convnext  # noqa: F401
    return _FUSED.get(type(block))


class FusedBlock(nn.Module):
    """What a ConvNeXt block does differently: nothing but time and memory can tell."""

    if TYPE_CHECKING:  # what every block has; TorchScript would take these for types it must obey
        conv_dw: Any
        norm: Any
        mlp: Any
        gamma: Any
        drop_path: Any

    plain_class: ClassVar[type[nn.Module]]
    plain_forward: ClassVar[Callable[..., Tensor]]
    norms: ClassVar[tuple[type[nn.Module], ...]] = (nn.LayerNorm,)  # that normalise channels, as nn.LayerNorm does
    activations: ClassVar[tuple[type[nn.Module], ...]] = (nn.GELU,)  # that are the exact GELU

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.plain_class = cls.__mro__[2]
        cls.plain_forward = _renamed(cls.plain_class.forward, "plain_forward")
        _FUSED[cls.plain_class] = cls

    def forward(self, x: Tensor) -> Tensor:
        """Return the (N, C, H, W) output of the block."""
        if is_scripting():  # TorchScript compiles this branch alone, and knows no `super()`
            return self.plain_forward(x)
        if not self._unnoticed(x):
            return self.plain_forward(x)
        branch, shortcut = self.conv_dw(x), self._shortcut(x)
        norm, mlp = self.norm, self.mlp
        parts = (
            (norm.weight, norm.bias, norm.eps),
            (mlp.fc1.weight, mlp.fc1.bias),
            (mlp.fc2.weight, mlp.fc2.bias),
            self.gamma,
        )
        if _does_nothing(self.drop_path):
            return norm_mlp(branch, shortcut, *parts)
        return self.drop_path(norm_mlp(branch, None, *parts)) + shortcut  # type: ignore[no-any-return]

    def _shortcut(self, x: Tensor) -> Tensor:
        shortcut = getattr(self, "shortcut", None)
        return x if shortcut is None else shortcut(x)

    @untraced
    def _unnoticed(self, x: Tensor) -> bool:
        """Return whether fusing this call changes nothing but its speed."""
        return (
            type(x) in PLAIN_TENSORS
            and x.dtype == torch.float32
            and x.device.type == "cpu"
            and x.dim() == 4
            and x.numel() > 0
            and is_channels_last(x)
            and self._is_usual()
            and library.available()
            and not torch.is_autocast_enabled("cpu")
            and not torch._C._are_functorch_transforms_active()
            and forward_ad._current_level < 0
        )

    def _is_usual(self) -> bool:
        """Return whether the parts are those of a ConvNeXt block, and nobody watches them."""
        norm, mlp, gamma = self.norm, self.mlp, self.gamma
        parts = dict(mlp.named_children())
        first, act, second = (parts.pop(name, None) for name in ("fc1", "act", "fc2"))
        return (
            type(norm) in self.norms
            and not getattr(norm, "_fast_norm", False)
            and type(act) in self.activations
            and getattr(act, "approximate", "none") == "none"
            and all(_does_nothing(part) for part in parts.values())
            and _is_product(first)
            and _is_product(second)
            and all(_is_usual_parameter(p) for p in (norm.weight, norm.bias))
            and norm.eps > 0
            and (gamma is None or _is_usual_parameter(gamma))
            and not is_watched(norm, mlp, first, act, second, *parts.values(), self.drop_path)
        )


def _renamed(function: Any, name: str) -> Any:
    """Return a function under another name: TorchScript takes two methods of one name for one."""
    other = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    return update_wrapper(other, function, assigned=("__annotations__", "__doc__", "__module__"))


def _is_usual_parameter(parameter: Tensor | None) -> bool:
    if parameter is None or type(parameter) not in PLAIN_TENSORS:
        return False
    return parameter.dtype == torch.float32 and parameter.device.type == "cpu"


def _is_product(layer: Any) -> bool:
    """Return whether a layer multiplies each pixel's channels by a matrix and adds a bias."""
    pointwise = is_pointwise(layer) if type(layer) in (nn.Conv2d, PointwiseConv2d) else type(layer) is nn.Linear
    return pointwise and _is_usual_parameter(layer.weight) and _is_usual_parameter(layer.bias)


def _does_nothing(layer: nn.Module) -> bool:
    """Return whether a layer hands on what it is given: Identity, and dropout of any kind where it is off."""
    if type(layer) is nn.Identity:
        return True
    rate = next(
        (value for name in ("p", "drop_prob", "rate") if (value := getattr(layer, name, None)) is not None), None
    )
    return isinstance(rate, int | float) and not list(layer.parameters()) and (rate == 0 or not layer.training)
