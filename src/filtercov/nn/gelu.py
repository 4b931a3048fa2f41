"""GELU by itself, as an operator and as modules that take the place of PyTorch's and timm's."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]
from torch.nn import functional

from filtercov.nn import checks, flops, kernels, library, routing
from filtercov.nn.operator import define_gradients, define_operator
from filtercov.nn.replacement import Replacement
from filtercov.nn.routing import PLAIN_TENSORS, nothing_intervenes, untraced


def gelu(x: Tensor) -> Tensor:
    """Return x * P(x), P the normal distribution function: the exact GELU of a tensor of any shape.

    >>> gelu(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    return _operator(x)  # type: ignore[no-any-return]


def _forward(x: Tensor) -> Tensor:
    x = _dense(x)
    return kernels.activation(x, "gelu") if library.takes(x) else functional.gelu(x)


def _backward(grad_y: Tensor, x: Tensor) -> Tensor:
    x = _dense(x)
    grad_y = grad_y if grad_y.stride() == x.stride() else torch.empty_like(x).copy_(grad_y)
    if library.takes(x):
        return kernels.activation_backward(grad_y, x, "gelu")
    return torch.ops.aten.gelu_backward(grad_y, x)  # type: ignore[no-any-return]


def _dense(x: Tensor) -> Tensor:
    """Return a tensor whose numbers fill memory without gaps, in the order that `F.gelu` gives; itself, if they do."""
    dense = torch.empty_like(x)
    return x if dense.stride() == x.stride() else dense.copy_(x)


def _fake(*tensors: Tensor) -> Tensor:
    return torch.empty_like(tensors[-1])


_operator = define_operator("gelu", check=checks.check_gelu, compute=_forward, fake=_fake, flops=flops.nothing)
_backward_operator = define_operator(
    "gelu_backward", check=checks.check_gelu_backward, compute=_backward, fake=_fake, flops=flops.nothing
)


def _save(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad_y: Tensor) -> tuple[Tensor]:
    (x,) = ctx.saved_tensors
    if not torch.is_grad_enabled():
        return (_backward_operator(grad_y, x),)
    return (torch.ops.aten.gelu_backward(grad_y, x),)  # which has a gradient too


define_gradients(_operator, _gradients, save=_save)


class NativeActivation(Replacement):
    """What a GELU does differently: nothing but time can tell."""

    def forward(self, input: Tensor) -> Tensor:
        """Return GELU(input)."""
        if is_scripting():  # TorchScript compiles this branch alone, and knows no `super()`
            return self.plain_forward(input)
        return gelu(input) if is_worth_it(input) else self.plain_forward(input)


@untraced
def is_worth_it(x: Tensor) -> bool:
    """Return whether nothing but the time can tell that the GELU of x is the operator's, and the time is less."""
    return (
        type(x) in PLAIN_TENSORS
        and x.dtype == torch.float32
        and x.is_cpu
        and routing.is_strided(x)
        and x.numel() >= routing.LEAST_NORMALISED
        and not torch.compiler.is_compiling()
        and nothing_intervenes()
    )


class NativeGELU(NativeActivation, nn.GELU):
    """`nn.GELU`, computed by filtercov's kernels on the CPU; only for the exact one."""


def is_exact(module: nn.Module) -> bool:
    """Return whether a GELU is the exact one, not its approximation.

    >>> is_exact(nn.GELU()), is_exact(nn.GELU("tanh"))
    (True, False)
    """
    return getattr(module, "approximate", "none") == "none"
