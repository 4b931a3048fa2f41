"""BatchNorm2d and an activation, computed by an operator of ours: in which calls nobody can tell, and how."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from filtercov.nn import routing
from filtercov.nn.batch_norm_act import batch_norm_act
from filtercov.nn.gelu import NativeGELU, is_exact
from filtercov.nn.gelu_batch_norm import gelu_batch_norm
from filtercov.nn.routing import PLAIN_TENSORS, is_traced, is_watched, nothing_intervenes, untraced
from filtercov.nn.settled_norm import settled_norm


def unnoticed(norm: nn.BatchNorm2d, x: Tensor, *others: nn.Module) -> bool:
    """Return whether a call changes nothing but its speed if an operator does what a norm and other modules do.

    In evaluation that is where no gradient is asked for, and no trace is made, which may be to run elsewhere.
    """
    if not norm.training and (torch.is_grad_enabled() or is_traced()):
        return False
    return _unnoticed(norm, x, *others)


@untraced
def _unnoticed(norm: nn.BatchNorm2d, x: Tensor, *others: nn.Module) -> bool:
    return (
        norm.eps > 0  # another is nn.BatchNorm2d's to refuse
        and nothing_intervenes()  # before anything is asked of x, which may not answer inside a transform
        and not is_watched(norm, *others)
        and type(x) is Tensor
        and x.dtype == torch.float32
        and x.is_cpu
        and x.dim() == 4
        and x.shape[1] == norm.num_features
        and x.is_contiguous(memory_format=torch.channels_last)
        and _belongs(norm.weight, norm)
        and _belongs(norm.bias, norm)
        and (_can_train(norm, x) if norm.training else _is_settled(norm))
    )


@untraced
def worth_a_call(x: Tensor) -> bool:
    """Return whether a norm of x and its activation are better off as one operator: not if x is small.

    Nor where a graph is compiled: compilers fuse the two by themselves, and with what is around them.

    >>> [worth_a_call(torch.empty(batch, 16, 32, 32)) for batch in (1, 16)]
    [False, True]
    """
    return x.numel() >= routing.LEAST_NORMALISED and not torch.compiler.is_compiling()


def is_affine(norm: nn.BatchNorm2d) -> bool:
    """Return whether a norm has the weight and bias that the operators need.

    >>> is_affine(nn.BatchNorm2d(4)), is_affine(nn.BatchNorm2d(4, affine=False))
    (True, False)
    """
    return norm.weight is not None and norm.bias is not None


# Classes of modules that are an activation of `batch_norm_act`.
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
    """Return which activation of `batch_norm_act` a module is, None if it is none, or a subclass.

    >>> activation_of(nn.SiLU(inplace=True)), activation_of(nn.GELU("tanh")), activation_of(nn.Tanh())
    ('silu', None, None)
    """
    return ACTIVATION_NAMES.get(type(module)) if is_exact(module) and _is_six(module) else None


def _is_six(module: nn.Module) -> bool:
    """Return whether a module, if it is a ReLU6, has the bounds that gave it its name."""
    return type(module) is not nn.ReLU6 or (module.min_val, module.max_val) == (0, 6)


def norm_act(norm: nn.BatchNorm2d, activation: nn.Module, x: Tensor) -> Tensor:
    """Return what an activation makes of a norm of x; in training keep the norm's running statistics."""
    name = activation_of(activation)
    assert name is not None, "the caller has asked"
    if not norm.training:
        return _settled(norm, name, x, activation_first=False)
    y, mean, variance = batch_norm_act(x, norm.weight, norm.bias, norm.eps, name)
    _update_running_statistics_(norm, mean, variance, x)
    return y


def gelu_norm(norm: nn.BatchNorm2d, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """Return what a norm makes of GELU(x), plus a residual; in training keep the norm's running statistics."""
    if not norm.training:
        return _settled(norm, "gelu", x, residual, activation_first=True)
    y, mean, variance = gelu_batch_norm(x, norm.weight, norm.bias, norm.eps, residual)
    _update_running_statistics_(norm, mean, variance, x)
    return y


def _settled(
    norm: nn.BatchNorm2d, activation: str, x: Tensor, residual: Tensor | None = None, *, activation_first: bool
) -> Tensor:
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None, "the caller has asked"
    assert variance is not None, "the caller has asked"
    return settled_norm(
        x,
        norm.weight,
        norm.bias,
        mean,
        variance,
        norm.eps,
        activation,
        activation_first=activation_first,
        residual=residual,
    )


def _update_running_statistics_(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, x: Tensor) -> None:
    """Take the mean and biased variance of a batch into the running ones, by nn.BatchNorm2d's rules."""
    if not norm.track_running_stats:
        return
    share, running_mean, running_var = _share_of_batch(norm), norm.running_mean, norm.running_var
    if running_mean is not None and running_var is not None:
        count = x.numel() // x.shape[1]
        with torch.no_grad(), _uncounted(running_mean, running_var):
            running_mean.mul_(1 - share).add_(mean * share)
            running_var.mul_(1 - share).add_(variance * (count / (count - 1)) * share)


def _uncounted(*tensors: Tensor) -> AbstractContextManager[object]:
    """Return a context in which changes of tensors are not counted, as those that `F.batch_norm` makes are not.

    Graphs of other calls, which saved the running statistics, would object to them.
    """
    if torch.compiler.is_compiling() or any(tensor.is_inference() for tensor in tensors):
        return nullcontext()
    return _unsafe_preserve_version_counter(tensors)


def _belongs(per_channel: Tensor, norm: nn.BatchNorm2d) -> bool:
    return (
        type(per_channel) in PLAIN_TENSORS
        and per_channel.dtype == torch.float32
        and per_channel.is_cpu
        and per_channel.shape == (norm.num_features,)
    )


def _is_settled(norm: nn.BatchNorm2d) -> bool:
    """Return whether there are running statistics of the usual kind to normalise by."""
    mean, variance = norm.running_mean, norm.running_var
    return mean is not None and variance is not None and _belongs(mean, norm) and _belongs(variance, norm)


def _can_train(norm: nn.BatchNorm2d, x: Tensor) -> bool:
    """Return whether x has a variance, and the running statistics, if there are any to keep, are of the usual kind."""
    if x.numel() <= norm.num_features:  # one value per channel: nn.BatchNorm2d says so
        return False
    mean, variance = norm.running_mean, norm.running_var
    if not norm.track_running_stats or mean is None or variance is None:
        return not norm.track_running_stats or mean is variance
    return _belongs(mean, norm) and _belongs(variance, norm)


def _share_of_batch(norm: nn.BatchNorm2d) -> Tensor | float:
    """Count a batch, and return how much of it the running statistics take in, by nn.BatchNorm2d's rules."""
    counter = norm.num_batches_tracked
    if counter is not None:
        counter.add_(1)
    if norm.momentum is not None:
        return norm.momentum
    # A tensor, since the value would be a constant to a tracer and unknown to a compiler.
    return 0.0 if counter is None else counter.to(norm.weight.dtype).reciprocal()
