"""A Sequential that runs BatchNorm2d and the activation directly before or after it as one operator."""

from typing import NamedTuple

from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]

from filtercov.nn.batch_norms import activation_of, gelu_norm, is_affine, norm_act, unnoticed, worth_a_call
from filtercov.nn.gelu import gelu, is_worth_it
from filtercov.nn.replacement import Replacement
from filtercov.nn.routing import PLAIN_TENSORS, is_traced, is_watched, untraced


class FusedSequential(nn.Sequential):
    """`nn.Sequential` that fuses, on the CPU in channels_last, BatchNorm2d with its activation.

    That is a GELU before it, or a ReLU, ReLU6, Hardswish, SiLU or GELU after it, while training, and in evaluation
    without gradients; in evaluation with gradients only a GELU before the norm is filtercov's. The modules in it stay
    what they are, so parameters, state_dict keys, slices and hooks are those of `nn.Sequential`. A pair is fused only
    in the calls where that cannot be noticed.

    >>> net = FusedSequential(nn.GELU(), nn.BatchNorm2d(4))
    >>> list(net.state_dict())[:2]
    ['1.weight', '1.bias']
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the output of the last module."""
        if is_scripting():  # TorchScript compiles this branch alone
            for module in self:
                input = module(input)
            return input
        return run_fused(list(self), input)


class FusedLayers(Replacement):
    """The same for a Sequential with a class of its own that runs its layers as `nn.Sequential` does."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the output of the last module."""
        if is_scripting():  # TorchScript compiles this branch alone, and knows no `super()`
            return self.plain_forward(input)
        return run_fused([layer for _, layer in named_layers(self)], input)


def named_layers(sequence: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the layers of a sequence as it runs them, which is not `named_children`: one may be there twice.

    >>> relu = nn.ReLU()
    >>> [name for name, _ in named_layers(nn.Sequential(relu, nn.Identity(), relu))]
    ['0', '1', '2']
    """
    return [(name, layer) for name, layer in sequence._modules.items() if layer is not None]


class Pair(NamedTuple):
    """A BatchNorm2d and the activation after it, or the GELU before it."""

    norm: nn.BatchNorm2d
    activation: nn.Module
    gelu_first: bool

    def is_worth_it(self, x: Tensor) -> bool:
        """Return whether nothing but the time can tell that this call is one operator's, and the time is less."""
        return unnoticed(self.norm, x, self.activation) and (
            (self.gelu_first and self.norm.training) or worth_a_call(x)
        )

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Return what the two make of x; only where GELU is first is there a residual to add."""
        return gelu_norm(self.norm, x, residual) if self.gelu_first else norm_act(self.norm, self.activation, x)


def pair_of(layer: nn.Module, following: nn.Module | None = None) -> Pair | None:
    """Return two neighbours as a pair, if they are one: an affine BatchNorm2d and an activation, not subclasses.

    >>> pair_of(nn.BatchNorm2d(4), nn.ReLU6()) is None, pair_of(nn.ReLU(), nn.BatchNorm2d(4)) is None
    (False, True)
    """
    gelu_first = activation_of(layer) == "gelu"
    norm, activation = (following, layer) if gelu_first else (layer, following)
    if type(norm) is not nn.BatchNorm2d or not is_affine(norm) or activation is None or not activation_of(activation):
        return None
    return Pair(norm, activation, gelu_first)


def run_fused(layers: list[nn.Module], x: Tensor, residual: Tensor | None = None) -> Tensor:
    """Return what layers make of x one after the other, plus a residual, each pair as one operator if possible.

    >>> import torch
    >>> run_fused([nn.Identity()], torch.ones(1), residual=torch.ones(1))
    tensor([2.])
    """
    i = 0
    while i < len(layers):
        pair = pair_of(*layers[i : i + 2])
        if pair is None or not pair.is_worth_it(x):
            x = _alone(layers[i], x)
            i += 1
        elif residual is not None and pair.gelu_first and i + 2 == len(layers) and _alike(x, residual):
            return pair(x, residual)
        else:
            x = pair(x)
            i += 2
    return x if residual is None else x + residual


def _alone(layer: nn.Module, x: Tensor) -> Tensor:
    """Return what a layer makes of x, a GELU by the kernels if nobody can tell."""
    if activation_of(layer) == "gelu" and not is_traced() and not is_watched(layer) and is_worth_it(x):
        return gelu(x)
    return layer(x)  # type: ignore[no-any-return]


@untraced
def _alike(x: Tensor, residual: Tensor) -> bool:
    return (
        type(residual) in PLAIN_TENSORS
        and residual.dtype == x.dtype
        and residual.device == x.device
        and residual.shape == x.shape
    )
