"""Make functions of tensors operators, so that PyTorch's tools can see them.

An operator is called through PyTorch's dispatcher, always: that is where autograd, tracers, compilers, flop counters
and fake tensors learn of it. What it is given is checked there too, before anything looks at memory.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKeySet, _after_autograd_keyset, _any_requires_grad, _AutoDispatchBelowADInplaceOrView
from torch._ops import OpOverload
from torch.autograd import Function as Recorded
from torch.library import Library, infer_schema, register_fake
from torch.utils.flop_counter import register_flop_formula

# `custom_op` would do the same in fewer words, at twice the cost of a call: docs/depthwise.md has the numbers.
LIBRARY = Library("filtercov", "FRAGMENT")  # type: ignore[no-untyped-call]

Function = Callable[..., Any]

# What an operator does inside is no business of autograd's. It must not see views either: what is returned as a view
# of something else could not be changed in place by the next layer, as an inplace ReLU does.
_unseen = _AutoDispatchBelowADInplaceOrView


def define_operator(name: str, *, check: Function, compute: Function, fake: Function, flops: Function) -> OpOverload:
    """Return the operator `filtercov::name`, which is `compute` on any device, with the schema of its annotations.

    `fake` returns empty tensors like those of `compute`. Both run after `check`, which takes the same arguments and
    raises if they do not belong together. `flops` is told the shapes and returns what `FlopCounterMode` is to count.
    """
    qualified = f"{LIBRARY.ns}::{name}"
    schema = infer_schema(compute, mutates_args=())
    LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    LIBRARY.impl(name, _after(check, compute), "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    register_fake(qualified, _after(check, fake), lib=LIBRARY)
    packet = getattr(torch.ops.filtercov, name)
    register_flop_formula(packet)(flops)
    operator: OpOverload = packet.default
    return operator


def _after(check: Function, function: Function) -> Function:
    def run(*arguments: Any) -> Any:
        check(*arguments)
        return function(*arguments)

    return run


def define_gradients(operator: OpOverload, gradients: Function, *, save: Function) -> None:
    """Let autograd record calls of an operator: `gradients(ctx, *grads)` returns what each of its arguments is due.

    `save(ctx, arguments, output)` keeps what that takes, where a gradient is needed at all; of several outputs the
    first alone has one. This is what `torch.library.register_autograd` does, in fewer steps: every call pays for them.
    """
    defaults = tuple(argument.default_value for argument in operator._schema.arguments)

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
            # The dispatcher leaves out arguments that are as by default.
            return record(*arguments, *defaults[len(arguments) :], below)
        with _unseen():
            return operator.redispatch(below, *arguments)

    LIBRARY.impl(operator._opname, run, "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]
