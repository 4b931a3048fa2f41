"""BatchNorm with an activation, as one operator for training and one for evaluation; and GELU by itself.

For such a pair PyTorch passes over the images four times forward, three times backward and often once more to copy what
is between the two; fused there are two passes each way (one in evaluation), and only x is kept for the gradient. The
arithmetic is that of `F.batch_norm` and of the activation's own function.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.errors import NormalisationError
from filtercov.nn import native
from filtercov.nn.layout import as_channels_last
from filtercov.nn.operator import Plan, check_alike, check_shape, operator

_aten = torch.ops.aten


def batch_norm_act(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return activation(BatchNorm(x)) of (N, C, H, W) in training mode, and the (C,) mean and biased variance it used.

    Activations are identity, relu, relu6, hardswish, silu and gelu (the exact one).

    >>> y, mean, variance = batch_norm_act(torch.randn(8, 4, 5, 5), torch.ones(4), torch.zeros(4), 1e-5, "relu")
    >>> bool((y >= 0).all()), mean.shape
    (True, torch.Size([4]))
    """
    return batch_norm_act_train(x, weight, bias, eps, activation)[:3]  # type: ignore[no-any-return]


def gelu_batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return BatchNorm(GELU(x)) of (N, C, H, W) in training mode, and the (C,) mean and biased variance it used.

    A residual of the same shape is added to the first.

    >>> y, mean, variance = gelu_batch_norm(torch.randn(8, 4, 5, 5), torch.ones(4), torch.zeros(4), 1e-5)
    >>> torch.allclose(y.mean((0, 2, 3)), torch.zeros(4), atol=1e-5)
    True
    """
    return batch_norm_act_train(x, weight, bias, eps, "gelu", True, residual)[:3]  # type: ignore[no-any-return]


class Activation(NamedTuple):
    """A function of z, and the gradient of z from that of its value and z."""

    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor], Tensor]


def _silu_gradient(grad: Tensor, z: Tensor) -> Tensor:
    # Not aten's, which has no gradient of its own.
    logistic = z.sigmoid()
    return grad * (logistic + z * logistic * (1 - logistic))


ACTIVATIONS = {
    "identity": Activation(lambda z: z, lambda grad, _z: grad),
    "relu": Activation(functional.relu, lambda grad, z: _aten.threshold_backward(grad, z, 0)),
    "relu6": Activation(functional.relu6, lambda grad, z: _aten.hardtanh_backward(grad, z, 0.0, 6.0)),
    "hardswish": Activation(functional.hardswish, _aten.hardswish_backward),
    "silu": Activation(functional.silu, _silu_gradient),
    "gelu": Activation(functional.gelu, _aten.gelu_backward),
}


def _check_norm(
    name: str, activation: str, first: bool, images: dict[str, Tensor | None], vectors: dict[str, Tensor]
) -> None:
    """Raise unless images are (N, C, H, W) like x, vectors are (C,), and the activation is known."""
    x = images["x"]
    assert x is not None, "only a residual is optional"
    check_alike(NormalisationError, name, **images, **vectors)
    if x.dim() != 4:
        raise NormalisationError(f"{name}: x must be (N, C, H, W), got {tuple(x.shape)}")
    check_shape(NormalisationError, name, x.shape, **images)
    check_shape(NormalisationError, name, x.shape[1:2], **vectors)
    if activation not in ACTIVATIONS:
        raise NormalisationError(f"{name}: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if images.get("residual") is not None and not first:
        raise NormalisationError(f"{name}: a residual can be added only if the activation comes first; leave it out")


def _check_training(name: str, x: Tensor, activation: str, first: bool) -> None:
    if first and activation != "gelu":
        raise NormalisationError(
            f"{name}: only gelu can come first in training, got {activation}; put it after the norm"
        )
    if x.numel() <= x.shape[1]:
        raise NormalisationError(
            f"{name}: a variance needs more than one value per channel, got x {tuple(x.shape)}; use a larger batch"
        )


def _empty(x: Tensor, vectors: int) -> tuple[Tensor, ...]:
    """Return an image like x in channels_last, and vectors with a number for each channel."""
    channels = x.shape[1]
    image = torch.empty_like(x, memory_format=torch.channels_last)
    return image, *[x.new_empty(channels) for _ in range(vectors)]


def _matrix(x: Tensor) -> tuple[int, int]:
    """Return the numbers of rows and columns of a channels-last image as a matrix of pixels and channels."""
    batch, channels, height, width = x.shape
    return batch * height * width, channels


# Training.


def _save_train(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, ctx.eps, ctx.activation, ctx.activation_first, _ = inputs
    _, mean, variance, inverse_std = output
    ctx.mark_non_differentiable(mean, variance, inverse_std)
    ctx.save_for_backward(x, weight, bias, mean, inverse_std)


def _train_gradients(ctx: Any, grad_y: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, bias, mean, inverse_std = ctx.saved_tensors
    pair = ctx.activation, ctx.activation_first
    rest = None, None, None, grad_y if ctx.needs_input_grad[6] else None
    if not torch.is_grad_enabled():
        return *batch_norm_act_backward(grad_y, x, weight, bias, mean, inverse_std, *pair), *rest
    # Someone will differentiate the gradient: spell it out, with the statistics as functions of x.
    entered = ACTIVATIONS[ctx.activation].value(x) if ctx.activation_first else x
    variance, mean = torch.var_mean(entered, (0, 2, 3), correction=0)
    inverse_std = (variance + ctx.eps).rsqrt()
    return *_reference_backward(grad_y, x, weight, bias, mean, inverse_std, *pair), *rest


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
    """Return BatchNorm with an activation after it, or GELU before it and a residual added, and its statistics.

    These are the mean, the biased variance and 1 / sqrt(variance + eps).
    """
    name, vectors = "batch_norm_act", {"weight": weight, "bias": bias}
    _check_norm(name, activation, activation_first, {"x": x, "residual": residual}, vectors)
    _check_training(name, x, activation, activation_first)

    def compute() -> tuple[Tensor, ...]:
        image = as_channels_last(x)
        if not native.takes(image):
            return _reference_train(image, weight, bias, eps, activation, activation_first, residual)
        outputs = _empty(image, vectors=3)
        affine = weight.contiguous(), bias.contiguous()
        if activation_first:
            added = None if residual is None else as_channels_last(residual)
            native.call("gelu_batch_norm_forward", *_matrix(x), image, *affine, added, eps, *outputs)
        else:
            code = native.activation_code(activation)
            native.call("batch_norm_act_forward", *_matrix(x), code, image, *affine, eps, *outputs)
        return outputs

    return Plan(lambda: _empty(x, vectors=3), compute)


def _reference_train(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, activation: str, first: bool, residual: Tensor | None
) -> tuple[Tensor, ...]:
    activate = ACTIVATIONS[activation].value
    entered = activate(x) if first else x
    variance, mean = torch.var_mean(entered, (0, 2, 3), correction=0)
    inverse_std = (variance + eps).rsqrt()
    y = (entered - _per_channel(mean)) * _per_channel(inverse_std * weight) + _per_channel(bias)
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
    """Return the gradients of x, weight and bias."""
    name = "batch_norm_act_backward"
    vectors = {"weight": weight, "bias": bias, "mean": mean, "inverse_std": inverse_std}
    _check_norm(name, activation, activation_first, {"x": x, "grad_y": grad_y}, vectors)
    _check_training(name, x, activation, activation_first)

    def compute() -> tuple[Tensor, ...]:
        grad, image = as_channels_last(grad_y), as_channels_last(x)
        if not native.takes(image):
            pair = activation, activation_first
            grads = _reference_backward(grad, image, weight, bias, mean, inverse_std, *pair)
            return as_channels_last(grads[0]), *grads[1:]
        outputs = _empty(image, vectors=2)
        w, b, m, s = (vector.contiguous() for vector in vectors.values())
        if activation_first:
            native.call("gelu_batch_norm_backward", *_matrix(x), grad, image, w, m, s, *outputs)
        else:
            code = native.activation_code(activation)
            native.call("batch_norm_act_backward", *_matrix(x), code, grad, image, w, b, m, s, *outputs)
        return outputs

    return Plan(lambda: _empty(x, vectors=2), compute)


def _reference_backward(
    grad_y: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    activation: str,
    activation_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    activate, gradient = ACTIVATIONS[activation]
    normalised = ((activate(x) if activation_first else x) - _per_channel(mean)) * _per_channel(inverse_std)
    if not activation_first:
        grad_y = gradient(grad_y, normalised * _per_channel(weight) + _per_channel(bias))
    grad_bias = grad_y.sum((0, 2, 3))
    grad_weight = (grad_y * normalised).sum((0, 2, 3))
    count = x.numel() // x.shape[1]
    centred = grad_y - _per_channel(grad_bias / count) - normalised * _per_channel(grad_weight / count)
    grad_entered = centred * _per_channel(weight * inverse_std)
    return gradient(grad_entered, x) if activation_first else grad_entered, grad_weight, grad_bias


def _per_channel(vector: Tensor) -> Tensor:
    """Return (C,) as (C, 1, 1), to broadcast over images."""
    return vector[:, None, None]


# Evaluation. There is no gradient: where one is asked for, PyTorch's own calls are made.


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
    """Return BatchNorm by the statistics given, with an activation after it, or before it and a residual added."""
    vectors = {"weight": weight, "bias": bias, "mean": mean, "variance": variance}
    _check_norm("batch_norm_act_eval", activation, activation_first, {"x": x, "residual": residual}, vectors)

    def compute() -> Tensor:
        image = as_channels_last(x)
        if native.takes(image):
            (y,) = _empty(image, vectors=0)
            dense = [vector.contiguous() for vector in vectors.values()]
            added = None if residual is None else as_channels_last(residual)
            codes = native.activation_code(activation), int(activation_first)
            native.call("settled_norm", *_matrix(x), *codes, image, *dense, added, eps, y)
            return y
        activate = ACTIVATIONS[activation].value
        y = functional.batch_norm(activate(image) if activation_first else image, mean, variance, weight, bias, eps=eps)
        y = y if activation_first else activate(y)
        return as_channels_last(y if residual is None else y + residual)

    return Plan(lambda: _empty(x, vectors=0)[0], compute)


# GELU.


def _save_gelu(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _gelu_gradients(ctx: Any, grad_y: Tensor) -> tuple[Tensor]:
    (x,) = ctx.saved_tensors
    # If the gradient will be differentiated, aten's, which has one of its own.
    return ((_aten.gelu_backward if torch.is_grad_enabled() else gelu_backward)(grad_y, x),)


@operator(save=_save_gelu, gradients=_gelu_gradients)
def gelu(x: Tensor) -> Plan:
    """Return the exact GELU, x times the normal distribution function, of a tensor of any shape."""
    check_alike(NormalisationError, "gelu", x=x)

    def compute() -> Tensor:
        dense = _without_gaps(x)
        if not native.takes(x):
            return functional.gelu(dense)
        y = torch.empty_like(dense)
        native.call("activation_forward", x.numel(), native.activation_code("gelu"), dense, y)
        return y

    return Plan(lambda: torch.empty_like(x), compute)


@operator()
def gelu_backward(grad_y: Tensor, x: Tensor) -> Plan:
    """Return the gradient of x."""
    check_alike(NormalisationError, "gelu_backward", grad_y=grad_y, x=x)
    check_shape(NormalisationError, "gelu_backward", x.shape, grad_y=grad_y)

    def compute() -> Tensor:
        dense = _without_gaps(x)
        grad = grad_y if grad_y.stride() == dense.stride() else torch.empty_like(dense).copy_(grad_y)
        if not native.takes(x):
            return _aten.gelu_backward(grad, dense)  # type: ignore[no-any-return]
        grad_x = torch.empty_like(dense)
        native.call("activation_backward", x.numel(), native.activation_code("gelu"), grad, dense, grad_x)
        return grad_x

    return Plan(lambda: torch.empty_like(x), compute)


def _without_gaps(x: Tensor) -> Tensor:
    """Return a tensor with the dense strides that the output of `F.gelu` would have; itself, if it has them."""
    dense = torch.empty_like(x)
    return x if dense.stride() == x.stride() else dense.copy_(x)
