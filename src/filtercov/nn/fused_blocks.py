"""Blocks of ConvMixer and ConvNeXt, by timm's names for their parts, fused where that cannot be observed."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from filtercov.nn import native
from filtercov.nn.conv import PointwiseConv2d, is_pointwise
from filtercov.nn.fused import FusedSequential, Replacement, activation_of, does_nothing, pair_of, run_fused
from filtercov.nn.layout import is_channels_last
from filtercov.nn.norm_mlp import Weights, norm_mlp
from filtercov.nn.routing import is_usual, is_watched, nothing_intervenes, untraced


class FusedResidual(Replacement):
    """ConvMixer's x + fn(x), by timm's names `fn` and perhaps `drop_path`: added by the operator that ends `fn`."""

    fn: Any

    def fused_forward(self, x: Tensor) -> Tensor | None:
        """The (N, C, H, W) output of the branch plus its input."""
        others = [module for name, module in self.named_children() if name != "fn"]
        fused = (
            type(self.fn) in (nn.Sequential, FusedSequential)
            and all(does_nothing(module) for module in others)
            and not is_watched(self.fn, *others)
        )
        return run_fused(list(self.fn), x, residual=x) if fused else None


def ends_in_pair(branch: nn.Module) -> bool:
    """Whether a branch is a sequence that ends in GELU and BatchNorm2d, so that a residual can be fused."""
    layers = list(branch) if type(branch) in (nn.Sequential, FusedSequential) else []  # type: ignore[call-overload]
    pair = pair_of(*layers[-2:]) if len(layers) > 1 else None
    return pair is not None and pair.gelu_first


class FusedBlock(Replacement):
    """A ConvNeXt block by timm's names: `conv_dw`, `norm`, `mlp` with `fc1`, `act` and `fc2`, `gamma`, `drop_path`.

    All that follows the depthwise layer is one operator, `norm_mlp`.
    """

    conv_dw: Any
    norm: Any
    mlp: Any
    gamma: Any
    drop_path: Any

    mlps: ClassVar[tuple[type[nn.Module], ...]]  # that are fc2(act(fc1(x))), but for parts that do nothing
    norms: ClassVar[tuple[type[nn.Module], ...]] = (nn.LayerNorm,)  # that normalise channels, as nn.LayerNorm does

    def fused_forward(self, x: Tensor) -> Tensor | None:
        """The (N, C, H, W) output of the block."""
        if not self._can_fuse(x):
            return None
        shortcut = getattr(self, "shortcut", None)
        branch, kept = self.conv_dw(x), x if shortcut is None else shortcut(x)
        norm, first, second = self.norm, self.mlp.fc1, self.mlp.fc2
        weights = Weights(norm.weight, norm.bias, first.weight, first.bias, second.weight, second.bias, self.gamma)
        if does_nothing(self.drop_path):
            return norm_mlp(branch, kept, weights, norm.eps)
        return self.drop_path(norm_mlp(branch, None, weights, norm.eps)) + kept  # type: ignore[no-any-return]

    @untraced
    def _can_fuse(self, x: Tensor) -> bool:
        return (
            is_usual(x)
            and x.dim() == 4
            and x.numel() > 0
            and is_channels_last(x)
            and self._has_usual_parts()
            and nothing_intervenes()
            and (torch.compiler.is_compiling() or native.available())  # a compiler could not follow the loading
        )

    def _has_usual_parts(self) -> bool:
        norm, mlp, gamma = self.norm, self.mlp, self.gamma
        parts = dict(mlp.named_children())
        first, act, second = (parts.pop(name, None) for name in ("fc1", "act", "fc2"))
        return (
            type(norm) in self.norms
            and type(mlp) in self.mlps
            and not getattr(norm, "_fast_norm", False)
            and act is not None
            and activation_of(act) == "gelu"
            and all(does_nothing(part) for part in parts.values())
            and _is_product(first)
            and _is_product(second)
            and is_usual(norm.weight, norm.bias)
            and norm.eps > 0
            and (gamma is None or is_usual(gamma))
            and not is_watched(norm, mlp, first, act, second, *parts.values(), self.drop_path)
        )


def _is_product(layer: Any) -> bool:
    """Whether a layer multiplies each pixel's channels by a matrix and adds a bias."""
    pointwise = is_pointwise(layer) if type(layer) in (nn.Conv2d, PointwiseConv2d) else type(layer) is nn.Linear
    return pointwise and is_usual(layer.weight, layer.bias)
