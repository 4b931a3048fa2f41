"""Operators of PyTorch's dispatcher, each declared once: schema, checks, fake, computation, gradient and flops.

An operator is always called through the dispatcher: that is where autograd, tracers, compilers, flop counters and fake
tensors learn of it. Its arguments are checked there too, before anything looks at memory.
"""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import DispatchKeySet, _after_autograd_keyset, _any_requires_grad, _AutoDispatchBelowADInplaceOrView
from torch._ops import OpOverload
from torch.autograd import Function as Recorded
from torch.library import Library, infer_schema, register_fake
from torch.utils.flop_counter import register_flop_formula

from filtercov.errors import KernelError

# `custom_op` would do the same in fewer words, at twice the cost of a call: docs/depthwise.md has the numbers.
LIBRARY = Library("filtercov", "FRAGMENT")  # type: ignore[no-untyped-call]

Function = Callable[..., Any]
Shape = Sequence[int]

# Autograd must not see what an operator does inside. It must not see views either: an output that is a view of
# something else could not be changed in place by the next layer, as an inplace ReLU does.
_unseen = _AutoDispatchBelowADInplaceOrView


class Plan(NamedTuple):
    """Two ways to make an operator's outputs: empty, for fake tensors, or computed."""

    fake: Callable[[], Any]
    compute: Callable[[], Any]


_plans: dict[OpOverload, Callable[..., Plan]] = {}


def operator(
    *,
    outputs: int = 1,
    flops: Function = lambda *_shapes, **_out: 0,
    save: Function | None = None,
    gradients: Function | None = None,
) -> Callable[[Callable[..., Plan]], OpOverload]:
    """Make a function the operator `filtercov::<its name>` on every device, with the schema of its annotations.

    The function raises unless its arguments belong together, and returns a `Plan` for as many tensors as `outputs`
    says. `flops` takes shapes in place of tensors and returns what `FlopCounterMode` counts: nothing for sums,
    activations and norms, as in PyTorch. `save(ctx, arguments, output)` keeps what `gradients(ctx, *grads)` needs to
    return one gradient for each argument; without them the operator has no gradient.
    """

    def define(plan: Callable[..., Plan]) -> OpOverload:
        name = plan.__name__

        def compute(*arguments: Any) -> Any:
            return plan(*arguments).compute()

        def fake(*arguments: Any) -> Any:
            return plan(*arguments).fake()

        returned = Tensor if outputs == 1 else tuple[(Tensor,) * outputs]  # type: ignore[misc]
        compute.__signature__ = signature(plan).replace(return_annotation=returned)  # type: ignore[attr-defined]
        LIBRARY.define(name + infer_schema(compute, mutates_args=()), tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
        LIBRARY.impl(name, compute, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        register_fake(f"{LIBRARY.ns}::{name}", fake, lib=LIBRARY)
        packet = getattr(torch.ops.filtercov, name)
        register_flop_formula(packet)(flops)
        if save is not None and gradients is not None:
            _define_gradients(packet.default, save, gradients)
        _plans[packet.default] = plan
        return packet.default  # type: ignore[no-any-return]

    return define


def implement(operator: OpOverload, device: str) -> Callable[[Function], Function]:
    """Compute an operator by the decorated function on one kind of device, "cuda" for example.

    The function gets the operator's arguments, all of them, after the same checks, and may return None: the result is
    then what every other device computes. Fake, flops and gradient stay.
    """
    plan, defaults = _plans[operator], _defaults(operator)

    def define(function: Function) -> Function:
        def compute(*arguments: Any) -> Any:
            everything = *arguments, *defaults[len(arguments) :]
            checked = plan(*everything)
            result = function(*everything)
            return checked.compute() if result is None else result

        LIBRARY.impl(operator._opname, compute, device.upper())  # type: ignore[no-untyped-call]
        return function

    return define


def _defaults(operator: OpOverload) -> tuple[Any, ...]:
    """The default values of all arguments: the dispatcher leaves out those that have them."""
    return tuple(argument.default_value for argument in operator._schema.arguments)


def _define_gradients(operator: OpOverload, save: Function, gradients: Function) -> None:
    """Let autograd record calls of an operator; of several outputs the first alone has a gradient.

    This is what `torch.library.register_autograd` does, in fewer steps: every call pays for them.
    """
    defaults = _defaults(operator)

    def forward(ctx: Any, *arguments: Any) -> Any:
        *own, keys = arguments
        with _unseen():
            output = operator.redispatch(keys, *own)
        ctx.set_materialize_grads(False)  # or autograd would fill zeros as large as what is kept for the gradient
        save(ctx, own, output)
        return output

    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        due = [None] * len(defaults) if grads[0] is None else gradients(ctx, *grads)
        return *due, None

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    record = type(f"{operator._opname}_backward", (Recorded,), methods).apply  # type: ignore[attr-defined]

    def run(keys: DispatchKeySet, *arguments: Any) -> Any:
        below = keys & _after_autograd_keyset
        if torch.is_grad_enabled() and _any_requires_grad(*arguments):
            return record(*arguments, *defaults[len(arguments) :], below)
        with _unseen():
            return operator.redispatch(below, *arguments)

    LIBRARY.impl(operator._opname, run, "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]


def differentiate(
    function: Callable[..., Tensor], inputs: Sequence[Tensor | None], grad: Tensor
) -> list[Tensor | None]:
    """The gradient for each input of an operator spelled out in PyTorch's functions, None where none is needed.

    If gradients are recorded, these can be differentiated again.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # By views of the inputs, not by themselves: they may depend on each other.
        views = [None if value is None else value.view_as(value) for value in inputs]
        wanted = [view for view in views if view is not None and view.requires_grad]
        grads = iter(torch.autograd.grad(function(*views), wanted, grad, create_graph=again))
    return [next(grads) if view is not None and view.requires_grad else None for view in views]


def check_alike(name: str, **tensors: Tensor | None) -> None:
    """Raise unless all tensors are of the dtype and device of the first, which is not None."""
    argument, first = next(iter(tensors.items()))
    assert first is not None, "optional tensors come last"
    dtype, device = first.dtype, first.device
    for other, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.device != device:
            raise KernelError(f"{name}: {argument} is on {device} but {other} on {tensor.device}; move one of them")
        if tensor.dtype != dtype:
            raise KernelError(f"{name}: {argument} is {dtype} but {other} {tensor.dtype}; convert one of them")


def check_shape(name: str, needed: tuple[int, ...], **tensors: Tensor | None) -> None:
    """Raise unless all tensors that are given have the shape needed."""
    for argument, tensor in tensors.items():
        if tensor is not None and tensor.shape != needed:
            raise KernelError(f"{name}: {argument} must be {tuple(needed)}, got {tuple(tensor.shape)}")


def check_images(name: str, x: Tensor, images: dict[str, Tensor | None], **others: Tensor | None) -> None:
    """Raise unless x and the images that are given are (N, C, H, W) of one shape, and all tensors are alike."""
    check_alike(name, x=x, **images, **others)
    if x.dim() != 4:
        raise KernelError(f"{name}: x must be (N, C, H, W), got {tuple(x.shape)}")
    check_shape(name, x.shape, **images)
