"""BatchNorm with an activation, as one operator for training and one for evaluation; and GELU by itself.

For such a pair PyTorch passes over the images four times forward, three times backward and often once more to copy what
is between the two; fused there are two passes each way (one in evaluation), and only x is kept for the gradient. The
arithmetic is that of `F.batch_norm` and of the activation's own function.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.errors import KernelError
from filtercov.nn import native
from filtercov.nn.layout import as_channels_last, as_empty_image
from filtercov.nn.operator import Plan, check_alike, check_images, check_shape, differentiate, operator

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {  # in the order of the C interface
    "identity": lambda z: z,
    "relu": functional.relu,
    "relu6": functional.relu6,
    "hardswish": functional.hardswish,
    "silu": functional.silu,
    "gelu": functional.gelu,
}
_CODES = {name: code for code, name in enumerate(_ACTIVATIONS)}


def _check_norm(
    name: str, x: Tensor, activation: str, first: bool, images: dict[str, Tensor | None], vectors: dict[str, Tensor]
) -> None:
    """Raise unless images are (N, C, H, W) like x, vectors are (C,), and there is such a norm."""
    check_images(name, x, images, **vectors)
    check_shape(name, x.shape[1:2], **vectors)
    has_residual = images.get("residual") is not None
    if activation not in _ACTIVATIONS or (first and activation != "gelu") or (has_residual and not first):
        raise KernelError(
            f"{name}: activation must be one of {', '.join(_ACTIVATIONS)}, of which gelu alone can come first, with or "
            f"without a residual; got {activation!r}, first: {first}, residual: {has_residual}"
        )


def _empty(x: Tensor, vectors: int) -> tuple[Tensor, ...]:
    """An image like x in channels_last, and vectors with a number for each channel."""
    return as_empty_image(x), *[x.new_empty(x.shape[1]) for _ in range(vectors)]


def _kernel(name: str, x: Tensor, activation: str, first: bool, *arguments: object) -> None:
    """Call a native norm on a channels-last image, as a matrix of pixels and channels."""
    native.check(name, x)
    batch, channels, height, width = x.shape
    native.call(name, batch * height * width, channels, _CODES[activation], first, *arguments)


# Training.


def _save_train(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, ctx.eps, ctx.activation, ctx.activation_first, _ = inputs
    _, mean, variance, inverse_std = output
    ctx.mark_non_differentiable(mean, variance, inverse_std)
    ctx.save_for_backward(x, weight, bias, mean, inverse_std)


def _train_gradients(ctx: Any, grad_y: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, bias, mean, inverse_std = ctx.saved_tensors
    pair = ctx.activation, ctx.activation_first
    if torch.is_grad_enabled() or not native.takes(x):
        # Someone will differentiate the gradient, or this runs where there are no kernels.
        grads = differentiate(lambda x, w, b: _reference_train(x, w, b, ctx.eps, *pair)[0], (x, weight, bias), grad_y)
    else:
        grads = batch_norm_act_backward(grad_y, x, weight, bias, mean, inverse_std, *pair)
    return *grads, None, None, None, grad_y if ctx.needs_input_grad[6] else None


@operator(outputs=4, save=_save_train, gradients=_train_gradients)
def batch_norm_act_train(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    activation: str,
    activation_first: bool = False,
    residual: Tensor | None = None,
) -> Plan:
    """BatchNorm with an activation after it, or GELU before it and a residual added, and its statistics.

    These are the mean, the biased variance and 1 / sqrt(variance + eps).
    """
    pair = activation, activation_first
    _check_norm("batch_norm_act", x, *pair, {"residual": residual}, {"weight": weight, "bias": bias})
    if x.numel() <= x.shape[1]:
        raise KernelError(
            f"batch_norm_act: a variance needs more than one value per channel, got x {tuple(x.shape)}; use a larger "
            "batch"
        )

    def compute() -> tuple[Tensor, ...]:
        image = as_channels_last(x)
        if not native.takes(image):
            return _reference_train(image, weight, bias, eps, *pair, residual)
        added = None if residual is None else as_channels_last(residual)
        inputs, outputs = (image, weight.contiguous(), bias.contiguous(), added, eps), _empty(image, vectors=3)
        _kernel("batch_norm_forward", image, *pair, *inputs, *outputs)
        return outputs

    return Plan(lambda: _empty(x, vectors=3), compute)


def _reference_train(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, activation: str, first: bool, residual: Tensor | None = None
) -> tuple[Tensor, ...]:
    activate = _ACTIVATIONS[activation]
    entered = activate(x) if first else x
    variance, mean = torch.var_mean(entered, (0, 2, 3), correction=0)
    inverse_std = (variance + eps).rsqrt()
    centre, scale, offset = (vector[:, None, None] for vector in (mean, inverse_std * weight, bias))
    y = (entered - centre) * scale + offset
    y = y if first else activate(y)
    return as_channels_last(y if residual is None else y + residual), mean, variance, inverse_std


@operator(outputs=3)
def batch_norm_act_backward(
    grad_y: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    activation: str,
    activation_first: bool,
) -> Plan:
    """The gradients of x, weight and bias."""
    pair = activation, activation_first
    vectors = {"weight": weight, "bias": bias, "mean": mean, "inverse_std": inverse_std}
    _check_norm("batch_norm_act_backward", x, *pair, {"grad_y": grad_y}, vectors)

    def compute() -> tuple[Tensor, ...]:
        image, outputs = as_channels_last(x), _empty(x, vectors=2)
        dense = [vector.contiguous() for vector in vectors.values()]
        _kernel("batch_norm_backward", image, *pair, as_channels_last(grad_y), image, *dense, *outputs)
        return outputs

    return Plan(lambda: _empty(x, vectors=2), compute)


# Evaluation. There is no gradient, and no other implementation: elsewhere PyTorch's own calls are made.


@operator()
def batch_norm_act_eval(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    activation: str,
    activation_first: bool,
    residual: Tensor | None = None,
) -> Plan:
    """BatchNorm by the statistics given, with an activation after it, or GELU before it and a residual added."""
    pair = activation, activation_first
    vectors = {"weight": weight, "bias": bias, "mean": mean, "variance": variance}
    _check_norm("batch_norm_act_eval", x, *pair, {"residual": residual}, vectors)

    def compute() -> Tensor:
        image, y = as_channels_last(x), as_empty_image(x)
        dense = [vector.contiguous() for vector in vectors.values()]
        added = None if residual is None else as_channels_last(residual)
        _kernel("batch_norm_eval", image, *pair, image, *dense, added, eps, y)
        return y

    return Plan(lambda: as_empty_image(x), compute)


# GELU.


def _save_gelu(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _gelu_gradients(ctx: Any, grad_y: Tensor) -> tuple[Tensor]:
    (x,) = ctx.saved_tensors
    # aten's has a gradient of its own, and runs anywhere.
    elsewhere = torch.is_grad_enabled() or not native.takes(x)
    return ((torch.ops.aten.gelu_backward if elsewhere else gelu_backward)(grad_y, x),)


@operator(save=_save_gelu, gradients=_gelu_gradients)
def gelu(x: Tensor) -> Plan:
    """The exact GELU, x times the normal distribution function, of a tensor of any shape."""

    def compute() -> Tensor:
        dense = _without_gaps(x)
        if not native.takes(x):
            return functional.gelu(dense)
        y = torch.empty_like(dense)
        native.call("gelu_forward", x.numel(), dense, y)
        return y

    return Plan(lambda: torch.empty_like(x), compute)


@operator()
def gelu_backward(grad_y: Tensor, x: Tensor) -> Plan:
    """The gradient of x."""
    check_alike("gelu_backward", grad_y=grad_y, x=x)
    check_shape("gelu_backward", x.shape, grad_y=grad_y)

    def compute() -> Tensor:
        dense = _without_gaps(x)
        grad = grad_y if grad_y.stride() == dense.stride() else torch.empty_like(dense).copy_(grad_y)
        grad_x = torch.empty_like(dense)
        native.check("gelu_backward", x)
        native.call("gelu_backward", x.numel(), grad, dense, grad_x)
        return grad_x

    return Plan(lambda: torch.empty_like(x), compute)


def _without_gaps(x: Tensor) -> Tensor:
    """A tensor with the dense strides that the output of `F.gelu` would have; itself, if it has them."""
    dense = torch.empty_like(x)
    return x if dense.stride() == x.stride() else dense.copy_(x)
