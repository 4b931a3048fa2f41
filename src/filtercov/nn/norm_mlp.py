"""A ConvNeXt block after its depthwise layer as one operator: LayerNorm, two matrix products, GELU, scale, residual.

    out = shortcut + γ ⊙ (GELU(LayerNorm(x) W1ᵀ + b1) W2ᵀ + b2)        for each pixel's channels

The matrix products are PyTorch's. What lies around them is memory traffic, and most of it need not be: the products run
over as many pixels at a time as leave what lies between them in the cache, and the rest happens there. Kept for the
backward pass are x and LayerNorm(x) W1ᵀ, six numbers a channel and pixel where PyTorch keeps eleven; all else is
computed again. Since γ's gradient follows from that of W2, the scaled branch need not be kept either.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.nn import checks, flops, kernels, library
from filtercov.nn.operator import define_gradients, define_operator

# Numbers between the products that are worked on at a time (2 MiB, and as much for their gradient), and the least rows.
_CHUNK = 2**19
_LEAST_ROWS = 512


def norm_mlp(
    x: Tensor,
    shortcut: Tensor | None,
    norm: tuple[Tensor, Tensor, float],
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    gamma: Tensor | None,
) -> Tensor:
    """Return the (N, C, H, W) output of a block whose depthwise layer gave x.

    `norm` is LayerNorm's weight, bias and ε, `first` and `second` are weight and bias of the products, either
    (out, in) or (out, in, 1, 1); without `gamma` the branch is not scaled, without `shortcut` it is returned alone.

    >>> x, norm = torch.randn(2, 8, 4, 4), (torch.ones(8), torch.zeros(8), 1e-6)
    >>> first, second = (torch.randn(32, 8), torch.zeros(32)), (torch.randn(8, 32), torch.zeros(8))
    >>> torch.equal(norm_mlp(x, x, norm, first, second, torch.zeros(8)), x)
    True
    """
    tensors = (x, shortcut, *norm[:2], *first, *second, gamma)
    needed = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    keep = needed or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call] # what is traced may be trained
    return _operator(x, shortcut, *norm, *first, *second, gamma, keep)[0]  # type: ignore[no-any-return]


def _forward(
    x: Tensor,
    shortcut: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    gamma: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the output; with `keep`, mean and inverse deviation of the rows and the first product without its bias."""
    rows, residual = _rows(x), None if shortcut is None else _rows(shortcut)
    first, second = _matrix(w1), _matrix(w2)
    if not _native(x):
        return _forward_reference(x, rows, residual, weight, bias, eps, first, b1, second, b2, gamma, keep=keep)
    bias, b1, b2 = bias.contiguous(), b1.contiguous(), b2.contiguous()
    weight, gamma = weight.contiguous(), None if gamma is None else gamma.contiguous()
    normalised, out = torch.empty_like(rows), torch.empty_like(rows)
    moments = kernels.layer_norm(rows, weight, bias, eps, normalised)
    between = rows.new_empty(len(rows), len(first)) if keep else None
    activated = _between(rows, first)
    for here in _chunks(len(rows), len(first)):
        after = activated[: here.stop - here.start]
        before = after if between is None else between[here]
        torch.mm(normalised[here], first.t(), out=before)
        kernels.bias_gelu(before, b1, after)
        torch.mm(after, second.t(), out=out[here])
        kernels.scaled_residual(out[here], b2, gamma, None if residual is None else residual[here], out[here])
    nothing = rows.new_empty(0)
    return _image(out, x), *(moments if keep else (nothing, nothing)), nothing if between is None else between


def _forward_reference(
    x: Tensor,
    rows: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    eps: float,
    first: Tensor,
    b1: Tensor,
    second: Tensor,
    b2: Tensor,
    gamma: Tensor | None,
    *,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    variance, mean = torch.var_mean(rows, 1, correction=0)
    inverse_std = (variance + eps).rsqrt()
    normalised = (rows - mean[:, None]) * inverse_std[:, None] * weight + bias
    between = normalised @ first.t()
    branch = functional.gelu(between + b1) @ second.t() + b2
    branch = branch if gamma is None else branch * gamma
    out = branch if residual is None else branch + residual
    nothing = x.new_empty(0)
    return _image(out, x), *((mean, inverse_std, between) if keep else (nothing, nothing.clone(), nothing.clone()))


def _backward(
    grad_y: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    between: Tensor,
    weight: Tensor,
    bias: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    gamma: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight, bias, w1, b1, w2, b2 and gamma (of ones, where there is none)."""
    grad, rows, first, second = _rows(grad_y), _rows(x), _matrix(w1), _matrix(w2)
    if not _native(x):
        return _backward_reference(grad, rows, mean, inverse_std, weight, bias, first, b1, second, b2, gamma, like=x)
    weight, bias, b1 = weight.contiguous(), bias.contiguous(), b1.contiguous()
    moments = kernels.RowMoments(mean, inverse_std)
    grad_x = torch.empty_like(rows)
    grad_between, activated = _between(rows, first), _between(rows, first)
    normalised = rows.new_empty(len(activated), rows.shape[1])
    scaled = second if gamma is None else second * gamma[:, None]  # spares scaling the gradient, which is larger
    to_first, to_second, to_b1 = torch.empty_like(first), torch.empty_like(second), torch.zeros_like(b1)
    for here in _chunks(len(rows), len(first)):
        n = here.stop - here.start
        torch.mm(grad[here], scaled, out=grad_between[:n])
        to_b1 += kernels.bias_gelu_backward_(grad_between[:n], between[here], b1, activated[:n])
        kept = 1 if here.start else 0  # of what the chunks before have added up
        torch.addmm(to_second, grad[here].t(), activated[:n], beta=kept, out=to_second)
        some = kernels.RowMoments(mean[here], inverse_std[here])
        kernels.layer_norm_again(rows[here], some, weight, bias, normalised[:n])
        torch.addmm(to_first, grad_between[:n].t(), normalised[:n], beta=kept, out=to_first)
        torch.mm(grad_between[:n], first, out=grad_x[here])
    to_weight, to_bias = kernels.layer_norm_backward_(grad_x, rows, moments, weight)
    sums = kernels.channel_sum(grad)
    to_gamma = (second * to_second).sum(1).addcmul_(b2, sums)
    if gamma is not None:
        to_second.mul_(gamma[:, None])
        sums *= gamma
    return _image(grad_x, x), to_weight, to_bias, to_first, to_b1, to_second, sums, to_gamma


def _backward_reference(
    grad: Tensor,
    rows: Tensor,
    mean: Tensor,
    inverse_std: Tensor,
    weight: Tensor,
    bias: Tensor,
    first: Tensor,
    b1: Tensor,
    second: Tensor,
    b2: Tensor,
    gamma: Tensor | None,
    *,
    like: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    normalised = (rows - mean[:, None]) * inverse_std[:, None]
    into_first = normalised * weight + bias
    before = into_first @ first.t() + b1
    activated = functional.gelu(before)
    scaled = grad if gamma is None else grad * gamma
    to_gamma = (grad * (activated @ second.t() + b2)).sum(0)
    grad_before = torch.ops.aten.gelu_backward(scaled @ second, before)
    grad_norm = grad_before @ first
    weighted = grad_norm * weight
    level, tilt = weighted.mean(1, keepdim=True), (weighted * normalised).mean(1, keepdim=True)
    grad_x = (weighted - level - tilt * normalised) * inverse_std[:, None]
    return (
        _image(grad_x, like),
        (grad_norm * normalised).sum(0),
        grad_norm.sum(0),
        grad_before.t() @ into_first,
        grad_before.sum(0),
        scaled.t() @ activated,
        scaled.sum(0),
        to_gamma,
    )


def _native(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu" and library.available()


def _rows(x: Tensor) -> Tensor:
    """Return the pixels of an (N, C, H, W) image as the rows of a matrix, without a copy where it is channels_last."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]).contiguous()


def _image(rows: Tensor, like: Tensor) -> Tensor:
    batch, channels, height, width = like.shape
    return rows.view(batch, height, width, channels).permute(0, 3, 1, 2)


def _matrix(weight: Tensor) -> Tensor:
    return weight.flatten(1).contiguous()


def _chunks(rows: int, hidden: int) -> Iterator[slice]:
    """Return the rows in chunks of equal size, all but the last."""
    chunks = max(min(rows * hidden // _CHUNK, rows // _LEAST_ROWS), 1)
    size = -(-rows // chunks)
    return (slice(first, min(first + size, rows)) for first in range(0, rows, max(size, 1)))


def _between(rows: Tensor, first: Tensor) -> Tensor:
    """Return memory for one chunk of what lies between the products."""
    largest = next(_chunks(len(rows), len(first)), slice(0, 0))
    return rows.new_empty(largest.stop, len(first))


def _fake_forward(
    x: Tensor,
    _shortcut: Tensor | None,
    _weight: Tensor,
    _bias: Tensor,
    _eps: float,
    w1: Tensor,
    _b1: Tensor,
    _w2: Tensor,
    _b2: Tensor,
    _gamma: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    count = x.shape[0] * x.shape[2] * x.shape[3]
    moments, between = ((count,), (count, w1.shape[0])) if keep else ((0,), (0,))
    out = torch.empty_like(x, memory_format=torch.channels_last)
    return out, x.new_empty(moments), x.new_empty(moments), x.new_empty(between)


def _fake_backward(
    _grad_y: Tensor,
    x: Tensor,
    _mean: Tensor,
    _inverse_std: Tensor,
    _between: Tensor,
    weight: Tensor,
    bias: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    _gamma: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    to_first, to_second = (x.new_empty(matrix.shape[:2]) for matrix in (w1, w2))
    to_weight, to_bias, to_b1, to_b2, to_gamma = (x.new_empty(v.shape) for v in (weight, bias, b1, b2, b2))
    grad_x = torch.empty_like(x, memory_format=torch.channels_last)
    return grad_x, to_weight, to_bias, to_first, to_b1, to_second, to_b2, to_gamma


_operator = define_operator(
    "norm_mlp",
    check=checks.check_norm_mlp,
    compute=_forward,
    fake=_fake_forward,
    flops=flops.norm_mlp,
)
_backward_operator = define_operator(
    "norm_mlp_backward",
    check=checks.check_norm_mlp_backward,
    compute=_backward,
    fake=_fake_backward,
    flops=flops.norm_mlp_backward,
)


def _save(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, ...]) -> None:
    x, _, weight, bias, ctx.eps, w1, b1, w2, b2, gamma, _ = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(x, *output[1:], weight, bias, w1, b1, w2, b2, gamma)


def _gradients(ctx: Any, grad_y: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    x, mean, inverse_std, between, weight, bias, w1, b1, w2, b2, gamma = ctx.saved_tensors
    if torch.is_grad_enabled() or between.numel() == 0:
        # Someone will differentiate the gradient, or a graph recorded without gradients is trained, which kept nothing:
        # spell it out, with the moments as functions of x.
        rows = _rows(x)
        variance, mean = torch.var_mean(rows, 1, correction=0)
        inverse_std = (variance + ctx.eps).rsqrt()
        grads = _backward_reference(
            _rows(grad_y), rows, mean, inverse_std, weight, bias, w1.flatten(1), b1, w2.flatten(1), b2, gamma, like=x
        )
    else:
        grads = _backward_operator(grad_y, x, mean, inverse_std, between, weight, bias, w1, b1, w2, b2, gamma)
    grad_x, to_weight, to_bias, to_first, to_b1, to_second, to_b2, to_gamma = grads
    return (
        grad_x,
        grad_y if ctx.needs_input_grad[1] else None,
        to_weight,
        to_bias,
        None,
        _laid_out_as(w1, to_first),
        to_b1,
        _laid_out_as(w2, to_second),
        to_b2,
        None if gamma is None else to_gamma,
        None,
    )


def _laid_out_as(weight: Tensor, grad: Tensor) -> Tensor:
    """Return a matrix's gradient in the shape and, where both are dense, with the strides of its weight.

    A 1x1 kernel's strides have several spellings; autograd would copy a gradient with another one than the weight's.
    """
    if weight.dim() == 2:
        return grad
    return (
        grad.as_strided(weight.shape, weight.stride()) if weight.flatten(1).is_contiguous() else grad.view(weight.shape)
    )


define_gradients(_operator, _gradients, save=_save)
