"""A ConvNeXt block after its depthwise layer as one operator: LayerNorm, two matrix products, GELU, scale, residual.

    out = shortcut + γ ⊙ (GELU(LayerNorm(x) W1ᵀ + b1) W2ᵀ + b2)        for each pixel's channels

The matrix products are PyTorch's. Around them is memory traffic, most of which is avoidable: the products run over as
many pixels at a time as keep the hidden layer in the cache, and the rest happens there. Kept for the backward pass are
x and LayerNorm(x) W1ᵀ, six numbers a channel and pixel where PyTorch keeps eleven; all else is computed again. Since
γ's gradient follows from that of W2, the scaled branch need not be kept either.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from filtercov.errors import KernelError
from filtercov.nn import native
from filtercov.nn.layout import as_empty_image
from filtercov.nn.operator import Plan, Shape, check_images, check_shape, differentiate, operator

# Numbers of the hidden layer that are worked on at a time (2 MiB, and as much for their gradient), and the least rows.
_CHUNK = 2**19
_LEAST_ROWS = 512


class Weights(NamedTuple):
    """The parameters of a block; w1 is (M, C) or (M, C, 1, 1), w2 (C, M) or (C, M, 1, 1), the others are vectors."""

    weight: Tensor
    bias: Tensor
    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor
    gamma: Tensor | None

    def matrices(self) -> "Weights":
        """All as the kernels can read them, the products' weights as matrices."""
        flat = self._replace(w1=self.w1.flatten(1), w2=self.w2.flatten(1))
        return Weights(*(None if tensor is None else tensor.contiguous() for tensor in flat))  # type: ignore[arg-type]


def norm_mlp(x: Tensor, shortcut: Tensor | None, weights: Weights, eps: float) -> Tensor:
    """The (N, C, H, W) output of a block whose depthwise layer gave x.

    Without `gamma` the branch is not scaled, without `shortcut` it is returned alone.
    """
    tensors = x, shortcut, *weights
    keep = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    return norm_mlp_forward(x, shortcut, *weights[:2], eps, *weights[2:], keep)[0]  # type: ignore[no-any-return]


def _check_block(name: str, x: Tensor, images: dict[str, Tensor | None], rest: dict[str, Tensor], w: Weights) -> int:
    """Raise unless images are (N, C, H, W) like x and the weights fit; return the width M of the hidden layer."""
    check_images(name, x, images, **rest, **w._asdict())
    channels, hidden = x.shape[1], w.w1.shape[0] if w.w1.dim() else 0
    check_shape(name, (channels,), weight=w.weight, bias=w.bias, b2=w.b2, gamma=w.gamma)
    check_shape(name, (hidden,), b1=w.b1)
    for argument, matrix, needed in (("w1", w.w1, (hidden, channels)), ("w2", w.w2, (channels, hidden))):
        if tuple(matrix.shape) not in (needed, (*needed, 1, 1)) or 0 in needed:
            raise KernelError(f"{name}: {argument} must be {needed}, got {tuple(matrix.shape)}")
    return hidden


def _save_forward(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, ...]) -> None:
    x, _, weight, bias, ctx.eps, *products, _ = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(x, *output[1:], weight, bias, *products)


def _forward_gradients(ctx: Any, grad_y: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    x, mean, inverse_std, between, *saved = ctx.saved_tensors
    weights = Weights(*saved)
    if torch.is_grad_enabled() or between.numel() == 0 or not native.takes(x):
        # Someone will differentiate the gradient, or a graph recorded without gradients is trained, which kept nothing,
        # or this runs where there are no kernels.
        def branch(x: Tensor, *weights: Any) -> Tensor:
            return _image(_reference_forward(_rows(x), None, Weights(*weights), ctx.eps)[0], x)

        to_x, to_weight, to_bias, *rest = differentiate(branch, (x, *weights), grad_y)
    else:
        to_x, to_weight, to_bias, *rest = norm_mlp_backward(grad_y, x, mean, inverse_std, between, *weights)
        rest[0], rest[2] = _with_strides_of(weights.w1, rest[0]), _with_strides_of(weights.w2, rest[2])
    to_shortcut = grad_y if ctx.needs_input_grad[1] else None
    rest[4] = None if weights.gamma is None else rest[4]
    return to_x, to_shortcut, to_weight, to_bias, None, *rest, None


def _with_strides_of(weight: Tensor, grad: Tensor) -> Tensor:
    """A matrix's gradient in the shape and, where both are dense, with the strides of its weight.

    A 1×1 kernel's strides have several spellings; autograd would copy a gradient with another one than the weight's.
    """
    if weight.dim() == 2:
        return grad
    dense = weight.flatten(1).is_contiguous()
    return grad.as_strided(weight.shape, weight.stride()) if dense else grad.view(weight.shape)


def _flops_of(products: int, w1: int) -> Callable[..., int]:
    """Flops of an operator whose first argument is an image, and argument `w1` as large as each of its matrices."""
    return lambda *shapes, **_out: 2 * products * _pixels(shapes[0]) * shapes[w1][0] * shapes[w1][1]


@operator(outputs=4, flops=_flops_of(2, w1=5), save=_save_forward, gradients=_forward_gradients)
def norm_mlp_forward(
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
) -> Plan:
    """The output; with `keep`, mean and inverse deviation of the rows and the first product without its bias."""
    weights = Weights(weight, bias, w1, b1, w2, b2, gamma)
    hidden = _check_block("norm_mlp", x, {"shortcut": shortcut}, {}, weights)

    def fake() -> tuple[Tensor, ...]:
        moments, between = ((_pixels(x.shape),), (_pixels(x.shape), hidden)) if keep else ((0,), (0,))
        return as_empty_image(x), x.new_empty(moments), x.new_empty(moments), x.new_empty(between)

    def compute() -> tuple[Tensor, ...]:
        rows, residual = _rows(x), None if shortcut is None else _rows(shortcut)
        if native.takes(x):
            out, *kept = _native_forward(rows, residual, weights.matrices(), eps, keep=keep)
        else:
            out, *kept = _reference_forward(rows, residual, weights, eps)
        return _image(out, x), *(kept if keep else (x.new_empty(0) for _ in kept))

    return Plan(fake, compute)


def _native_forward(rows: Tensor, residual: Tensor | None, w: Weights, eps: float, *, keep: bool) -> tuple[Tensor, ...]:
    """The output, the moments, and the first product if it is to be kept."""
    normalised, out = torch.empty_like(rows), torch.empty_like(rows)
    mean, inverse_std = rows.new_empty(len(rows)), rows.new_empty(len(rows))
    native.call("layer_norm_forward", *rows.shape, rows, w.weight, w.bias, eps, normalised, mean, inverse_std)
    between = rows.new_empty(len(rows), len(w.w1)) if keep else rows.new_empty(0)
    activated = _chunk_of_hidden(rows, w)
    for here in _chunks(len(rows), len(w.w1)):
        after = activated[: here.stop - here.start]
        before = between[here] if keep else after
        torch.mm(normalised[here], w.w1.t(), out=before)
        native.call("bias_gelu_forward", *before.shape, before, w.b1, after)
        part, added = out[here], None if residual is None else residual[here]
        torch.mm(after, w.w2.t(), out=part)
        native.call("scaled_residual", *part.shape, part, w.b2, w.gamma, added, part)
    return out, mean, inverse_std, between


def _reference_forward(rows: Tensor, residual: Tensor | None, w: Weights, eps: float) -> tuple[Tensor, ...]:
    variance, mean = torch.var_mean(rows, 1, correction=0)
    inverse_std = (variance + eps).rsqrt()
    between = ((rows - mean[:, None]) * inverse_std[:, None] * w.weight + w.bias) @ w.w1.flatten(1).t()
    branch = functional.gelu(between + w.b1) @ w.w2.flatten(1).t() + w.b2
    branch = branch if w.gamma is None else branch * w.gamma
    return branch if residual is None else branch + residual, mean, inverse_std, between


@operator(outputs=8, flops=_flops_of(4, w1=7))
def norm_mlp_backward(
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
) -> Plan:
    """The gradients of x, weight, bias, w1, b1, w2, b2 and gamma (of ones, where there is none)."""
    name, weights = "norm_mlp_backward", Weights(weight, bias, w1, b1, w2, b2, gamma)
    kept = {"mean": mean, "inverse_std": inverse_std, "between": between}
    hidden = _check_block(name, x, {"grad_y": grad_y}, kept, weights)
    check_shape(name, (_pixels(x.shape),), mean=mean, inverse_std=inverse_std)
    check_shape(name, (_pixels(x.shape), hidden), between=between)

    def fake() -> tuple[Tensor, ...]:
        shapes = weight.shape, bias.shape, w1.shape[:2], b1.shape, w2.shape[:2], b2.shape, b2.shape
        return as_empty_image(x), *(x.new_empty(shape) for shape in shapes)

    def compute() -> tuple[Tensor, ...]:
        native.check(name, x)
        moments = mean.contiguous(), inverse_std.contiguous()
        grad_x, *rest = _native_backward(_rows(grad_y), _rows(x), *moments, between.contiguous(), weights.matrices())
        return _image(grad_x, x), *rest

    return Plan(fake, compute)


@torch.no_grad()  # a graph that was recorded calls this with parameters, and products into given memory refuse those
def _native_backward(
    grad: Tensor, rows: Tensor, mean: Tensor, inverse_std: Tensor, between: Tensor, w: Weights
) -> tuple[Tensor, ...]:
    grad_x = torch.empty_like(rows)
    grad_between, activated = _chunk_of_hidden(rows, w), _chunk_of_hidden(rows, w)
    normalised = rows.new_empty(len(activated), rows.shape[1])
    scaled = w.w2 if w.gamma is None else w.w2 * w.gamma[:, None]  # spares scaling the gradient, which is larger
    to_w1, to_w2 = torch.empty_like(w.w1), torch.empty_like(w.w2)
    to_b1, some_of_b1 = torch.zeros_like(w.b1), torch.empty_like(w.b1)
    for here in _chunks(len(rows), len(w.w1)):
        n = here.stop - here.start
        into, after, norm = grad_between[:n], activated[:n], normalised[:n]
        torch.mm(grad[here], scaled, out=into)
        native.call("bias_gelu_backward", *into.shape, between[here], w.b1, into, after, into, some_of_b1)
        to_b1 += some_of_b1
        kept = 1 if here.start else 0  # of the sums over earlier chunks
        torch.addmm(to_w2, grad[here].t(), after, beta=kept, out=to_w2)
        moments = mean[here], inverse_std[here]
        native.call("layer_norm_again", *norm.shape, rows[here], *moments, w.weight, w.bias, norm)
        torch.addmm(to_w1, into.t(), norm, beta=kept, out=to_w1)
        torch.mm(into, w.w1, out=grad_x[here])
    to_weight, to_bias = torch.empty_like(w.weight), torch.empty_like(w.bias)
    inputs = grad_x, rows, mean, inverse_std, w.weight
    native.call("layer_norm_backward", *rows.shape, *inputs, grad_x, to_weight, to_bias)
    to_b2 = native.channel_sum(grad)
    to_gamma = (w.w2 * to_w2).sum(1).addcmul_(w.b2, to_b2)
    if w.gamma is not None:
        to_w2.mul_(w.gamma[:, None])
        to_b2 *= w.gamma
    return grad_x, to_weight, to_bias, to_w1, to_b1, to_w2, to_b2, to_gamma


def _pixels(image: Shape) -> int:
    return image[0] * image[2] * image[3]


def _rows(x: Tensor) -> Tensor:
    """The pixels of an (N, C, H, W) image as the rows of a matrix, without a copy where it is channels_last."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]).contiguous()


def _image(rows: Tensor, like: Tensor) -> Tensor:
    batch, channels, height, width = like.shape
    return rows.view(batch, height, width, channels).permute(0, 3, 1, 2)


def _chunks(rows: int, hidden: int) -> Iterator[slice]:
    """The rows in chunks, all but the last of equal size."""
    chunks = max(min(rows * hidden // _CHUNK, rows // _LEAST_ROWS), 1)
    size = -(-rows // chunks)
    return (slice(first, min(first + size, rows)) for first in range(0, rows, max(size, 1)))


def _chunk_of_hidden(rows: Tensor, w: Weights) -> Tensor:
    """Memory for one chunk of the hidden layer."""
    largest = next(_chunks(len(rows), len(w.w1)), slice(0, 0))
    return rows.new_empty(largest.stop, len(w.w1))
