"""Fused versions of common modules: norm with activation, residuals and blocks, each as one operator.

A replacement class goes before the class it replaces among the bases of a new one:

    class FusedConvNeXtBlock(FusedBlock, ConvNeXtBlock): ...

`accelerate_` changes the class of a module, which keeps its parts. A call is fused only where hooks, modes and tools
cannot observe the difference; all other calls are those of the class replaced.
"""

import sys
from contextlib import nullcontext
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from filtercov.nn import native, routing
from filtercov.nn.conv import PointwiseConv2d, is_pointwise
from filtercov.nn.layout import is_channels_last
from filtercov.nn.norm_act import batch_norm_act_eval, batch_norm_act_train, gelu
from filtercov.nn.norm_mlp import Weights, norm_mlp
from filtercov.nn.routing import is_usual, is_watched, nothing_intervenes

_REPLACEMENTS: dict[type[nn.Module], type["Replacement"]] = {}  # by the class replaced

# Replacements for classes of other libraries, imported only if those have been: filtercov needs neither library.
_THEIRS = {
    "timm.models": "filtercov.nn.timm_modules",
    "torchvision.ops.misc": "filtercov.nn.torchvision_modules",
}

# Classes of dropout, which do nothing in evaluation, and their attribute for the rate.
DROPOUTS: dict[type[nn.Module], str] = dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), "p")


class Replacement(nn.Module):
    """A class that computes what `plain_class`, the next among its bases, computes."""

    plain_class: ClassVar[type[nn.Module]]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if len(cls.__bases__) > 1 and not hasattr(cls, "plain_class"):
            cls.plain_class = cls.__bases__[1]
            _REPLACEMENTS[cls.plain_class] = cls

    def forward(self, x: Tensor) -> Tensor:
        """The output of the class replaced, fused if that cannot be observed."""
        fused = self.fused_forward(x)
        return super().forward(x) if fused is None else fused

    def fused_forward(self, x: Tensor) -> Tensor | None:
        """The fused output, or None where the plain one is due."""
        raise NotImplementedError


def replacements(kind: type[Replacement]) -> dict[type[nn.Module], type[Replacement]]:
    """The classes that have a replacement of this kind, and it."""
    for theirs, ours in _THEIRS.items():
        if theirs in sys.modules:
            import_module(ours)
    return {plain: ours for plain, ours in _REPLACEMENTS.items() if issubclass(ours, kind)}


def does_nothing(layer: nn.Module) -> bool:
    """Whether a layer returns its input: Identity, and dropout of a known kind where it is off."""
    if type(layer) is nn.Identity:
        return True
    rate = DROPOUTS.get(type(layer))
    return rate is not None and (not layer.training or getattr(layer, rate) == 0)


# GELU.


class NativeActivation(Replacement):
    """A GELU computed by filtercov's kernels."""

    def fused_forward(self, x: Tensor) -> Tensor | None:
        """The (...) activation of x."""
        return gelu(x) if _can_use_gelu(x) else None


def _can_use_gelu(x: Tensor) -> bool:
    return nothing_intervenes() and is_usual(x) and _pays(x)


class NativeGELU(NativeActivation, nn.GELU):
    """`nn.GELU`, computed by filtercov's kernels on the CPU; only for the exact one."""


def is_exact(module: nn.Module) -> bool:
    """Whether a GELU is the exact one, not its approximation."""
    return getattr(module, "approximate", "none") == "none"


# Names of activations in `norm_act`, by class of module.
ACTIVATION_NAMES: dict[type[nn.Module], str] = {
    nn.Identity: "identity",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Hardswish: "hardswish",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
    NativeGELU: "gelu",
}


def activation_of(module: nn.Module) -> str | None:
    """The name of an activation that can be fused, None for other modules and for subclasses.

    >>> activation_of(nn.SiLU(inplace=True)), activation_of(nn.GELU("tanh")), activation_of(nn.Tanh())
    ('silu', None, None)
    """
    name = ACTIVATION_NAMES.get(type(module))
    return None if name == "gelu" and not is_exact(module) else name


# BatchNorm2d with an activation.


class Pair(NamedTuple):
    """A BatchNorm2d and the activation after it, or the GELU before it."""

    norm: nn.BatchNorm2d
    activation: nn.Module
    gelu_first: bool = False

    def fused(self, x: Tensor, residual: Tensor | None = None) -> Tensor | None:
        """The output, plus a residual if GELU comes first, or None where fusing could be observed or is slower."""
        norm, activation = self.norm, activation_of(self.activation)
        assert activation is not None, "pairs have an activation that is known"
        if not self._can_fuse(x):
            return None
        if not norm.training:
            arguments = norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps, activation
            return batch_norm_act_eval(x, *arguments, self.gelu_first, residual)  # type: ignore[no-any-return]
        order = activation, self.gelu_first, residual
        y, mean, variance, _ = batch_norm_act_train(x, norm.weight, norm.bias, norm.eps, *order)
        _update_running_statistics_(norm, mean, variance, x)
        return y  # type: ignore[no-any-return]

    def _can_fuse(self, x: Tensor) -> bool:
        norm, training = self.norm, self.norm.training
        # There are no operators for gradients in evaluation, and for norms that average otherwise.
        usual = norm.track_running_stats and norm.momentum is not None and norm.num_batches_tracked is not None
        possible = usual if training else not torch.is_grad_enabled()
        return (
            possible
            and nothing_intervenes()  # before anything is asked of x, which may not answer inside a transform
            and not is_watched(norm, self.activation)
            and is_usual(x, norm.weight, norm.bias, norm.running_mean, norm.running_var)
            and x.is_contiguous(memory_format=torch.channels_last)
            and ((self.gelu_first and training) or _pays(x))
        )


def _pays(x: Tensor) -> bool:
    """Whether fusing is faster: not for small images, nor where a compiler fuses by itself, with more around."""
    return x.numel() >= routing.LEAST_NORMALISED and not torch.compiler.is_compiling() and native.available()


def _update_running_statistics_(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, x: Tensor) -> None:
    """Add the mean and biased variance of a batch to the running ones, as nn.BatchNorm2d does."""
    running_mean, running_var, share = cast(Any, (norm.running_mean, norm.running_var, norm.momentum))
    cast(Tensor, norm.num_batches_tracked).add_(1)
    count = x.numel() // x.shape[1]
    # Changes are not counted, as those that `F.batch_norm` makes are not: graphs of other calls, which saved these
    # tensors, would object to them.
    compiling = torch.compiler.is_compiling()
    uncounted = nullcontext() if compiling else _unsafe_preserve_version_counter((running_mean, running_var))
    with torch.no_grad(), uncounted:
        running_mean.mul_(1 - share).add_(mean * share)
        running_var.mul_(1 - share).add_(variance * (count / (count - 1)) * share)


def pair_of(layer: nn.Module, following: nn.Module | None = None) -> Pair | None:
    """Two neighbours as a pair if they are an affine BatchNorm2d and an activation, not subclasses."""
    gelu_first = activation_of(layer) == "gelu"
    norm, activation = (following, layer) if gelu_first else (layer, following)
    if type(norm) is not nn.BatchNorm2d or norm.weight is None or activation is None or not activation_of(activation):
        return None
    return Pair(norm, activation, gelu_first)


def run_fused(layers: list[nn.Module], x: Tensor, residual: Tensor | None = None) -> Tensor:
    """The output of layers one after the other, plus a residual, each pair as one operator if possible."""
    i = 0
    while i < len(layers):
        pair = pair_of(*layers[i : i + 2])
        ends = pair is not None and pair.gelu_first and i + 2 == len(layers)
        added = residual if ends else None
        fused = None if pair is None else pair.fused(x, added)
        if fused is None:
            x, i = _run_alone(layers[i], x), i + 1
        elif added is not None:
            return fused
        else:
            x, i = fused, i + 2
    return x if residual is None else x + residual


def _run_alone(layer: nn.Module, x: Tensor) -> Tensor:
    """The output of a layer; a GELU's by the kernels if that cannot be observed."""
    if activation_of(layer) == "gelu" and not is_watched(layer) and _can_use_gelu(x):
        return gelu(x)  # type: ignore[no-any-return]
    return layer(x)  # type: ignore[no-any-return]


class FusedLayers(Replacement):
    """An `nn.Sequential`, or a class that runs its layers as that does, with its pairs fused."""

    def forward(self, input: Tensor) -> Tensor:
        """The output of the last module."""
        return run_fused(list(self._modules.values()), input)  # type: ignore[arg-type]


class FusedSequential(FusedLayers, nn.Sequential):
    """`nn.Sequential` that fuses, on the CPU in channels_last, BatchNorm2d with its activation.

    That is a GELU before it, or a ReLU, ReLU6, Hardswish, SiLU or GELU after it, while training, and in evaluation
    without gradients; in evaluation with gradients only a GELU before the norm is filtercov's. The modules in it stay
    what they are, so parameters, state_dict keys, slices and hooks are those of `nn.Sequential`. A pair is fused only
    in calls where that cannot be observed.

    >>> net = FusedSequential(nn.GELU(), nn.BatchNorm2d(4))
    >>> list(net.state_dict())[:2]
    ['1.weight', '1.bias']
    """


class FusedNormAct(Replacement):
    """A BatchNorm2d that applies an activation too, by timm's names `drop` and `act`."""

    drop: Any
    act: Any

    def fused_forward(self, x: Tensor) -> Tensor | None:
        """The (N, C, H, W) activation of the norm of x."""
        if not is_norm_act(self) or not does_nothing(self.drop) or is_watched(self.drop):
            return None
        return Pair(cast(nn.BatchNorm2d, self), self.act).fused(x)


def is_norm_act(module: nn.Module) -> bool:
    """Whether a BatchNorm2d with an `act` is affine, and the activation can be fused."""
    return module.weight is not None and activation_of(cast(nn.Module, module.act)) is not None


# Blocks of ConvMixer and ConvNeXt, by timm's names for their parts.


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

    def _can_fuse(self, x: Tensor) -> bool:
        return (
            nothing_intervenes()
            and is_usual(x)
            and x.dim() == 4
            and is_channels_last(x)  # never so without a pixel
            and self._has_usual_parts()
            and (torch.compiler.is_compiling() or native.available())  # a compiler could not follow the loading
        )

    def _has_usual_parts(self) -> bool:
        norm, mlp, gamma = self.norm, self.mlp, self.gamma
        parts = dict(mlp.named_children())
        first, act, second = (parts.pop(name, None) for name in ("fc1", "act", "fc2"))
        return (
            type(norm) in self.norms
            and type(mlp) in self.mlps
            and act is not None
            and activation_of(act) == "gelu"
            and all(does_nothing(part) for part in parts.values())
            and _is_product(first)
            and _is_product(second)
            and is_usual(norm.weight, norm.bias)
            and (gamma is None or is_usual(gamma))
            and not is_watched(norm, mlp, first, act, second, *parts.values(), self.drop_path)
        )


def _is_product(layer: Any) -> bool:
    """Whether a layer multiplies each pixel's channels by a matrix and adds a bias."""
    pointwise = is_pointwise(layer) if type(layer) in (nn.Conv2d, PointwiseConv2d) else type(layer) is nn.Linear
    return pointwise and is_usual(layer.weight, layer.bias)
