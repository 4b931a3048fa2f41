"""ConvNeXt blocks that run all that follows their depthwise layer as one operator (`norm_mlp`).

A block is whatever has timm's names: `conv_dw`, `norm`, `mlp` with `fc1`, `act` and `fc2`, `gamma` and `drop_path`.
"""

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]

from filtercov.nn import library
from filtercov.nn.gelu import NativeGELU, is_exact
from filtercov.nn.images import is_channels_last
from filtercov.nn.norm_mlp import norm_mlp
from filtercov.nn.pointwise import PointwiseConv2d, is_pointwise
from filtercov.nn.replacement import Replacement, does_nothing
from filtercov.nn.routing import PLAIN_TENSORS, is_watched, nothing_intervenes, untraced


class FusedBlock(Replacement):
    """What a ConvNeXt block does differently: nothing but time and memory can tell."""

    if TYPE_CHECKING:  # what every block has; TorchScript would take these for types it must obey
        conv_dw: Any
        norm: Any
        mlp: Any
        gamma: Any
        drop_path: Any

    mlps: ClassVar[tuple[type[nn.Module], ...]]  # that are fc2(act(fc1(x))), but for parts that do nothing
    norms: ClassVar[tuple[type[nn.Module], ...]] = (nn.LayerNorm,)  # that normalise channels, as nn.LayerNorm does
    activations: ClassVar[tuple[type[nn.Module], ...]] = (nn.GELU, NativeGELU)  # that are the exact GELU

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
        if does_nothing(self.drop_path):
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
            and nothing_intervenes()
        )

    def _is_usual(self) -> bool:
        """Return whether the parts are those of a ConvNeXt block, and nobody watches them."""
        norm, mlp, gamma = self.norm, self.mlp, self.gamma
        parts = dict(mlp.named_children())
        first, act, second = (parts.pop(name, None) for name in ("fc1", "act", "fc2"))
        return (
            type(norm) in self.norms
            and type(mlp) in self.mlps
            and not getattr(norm, "_fast_norm", False)
            and type(act) in self.activations
            and is_exact(act)
            and all(does_nothing(part) for part in parts.values())
            and _is_product(first)
            and _is_product(second)
            and all(_is_usual_parameter(p) for p in (norm.weight, norm.bias))
            and norm.eps > 0
            and (gamma is None or _is_usual_parameter(gamma))
            and not is_watched(norm, mlp, first, act, second, *parts.values(), self.drop_path)
        )


def _is_usual_parameter(parameter: Tensor | None) -> bool:
    if parameter is None or type(parameter) not in PLAIN_TENSORS:
        return False
    return parameter.dtype == torch.float32 and parameter.device.type == "cpu"


def _is_product(layer: Any) -> bool:
    """Return whether a layer multiplies each pixel's channels by a matrix and adds a bias."""
    pointwise = is_pointwise(layer) if type(layer) in (nn.Conv2d, PointwiseConv2d) else type(layer) is nn.Linear
    return pointwise and _is_usual_parameter(layer.weight) and _is_usual_parameter(layer.bias)
