"""What reaches a module when its model runs, and how long the module takes for that on its own.

A call is known by the shape, layout, type and need of a gradient of its input, and by the layout in which the gradient
of its output comes back: a slice of a larger tensor is timed as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from filtercov.nn.swaps import Part


@dataclass(frozen=True)
class Lying:
    """A tensor's shape, strides and type."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Lying:
        """Return how a tensor lies."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    @property
    def is_channels_last(self) -> bool:
        """Whether it is an (N, C, H, W) image whose channels lie side by side."""
        return len(self.shape) == 4 and self.shape[1] > 1 and self.strides[1] == 1

    def filled(self) -> Tensor:
        """Return a tensor of normal numbers that lies so."""
        reach = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return torch.randn(max(reach, 0) + 1).to(self.dtype).as_strided(self.shape, self.strides)


@dataclass
class Call:
    """One call of a part of a model: its input, and the gradient that came back, if one did."""

    x: Lying
    needs_grad: bool
    grad: Lying | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What two calls that take equally long have in common."""
        return self.x, self.needs_grad, self.grad


@dataclass
class Recorder:
    """Notes the calls of parts of a model while it runs."""

    calls: dict[str, list[Call]] = field(default_factory=dict)

    @contextmanager
    def watching(self, parts: Iterable[Part]) -> Iterator[None]:
        """Watch parts, by hooks that are gone afterwards."""
        with ExitStack() as stack:
            for part in parts:
                calls = self.calls.setdefault(part.name, [])
                first, last = part.modules[0], part.modules[-1]
                stack.callback(first.register_forward_pre_hook(_noting_input(calls), with_kwargs=True).remove)
                stack.callback(last.register_forward_hook(_noting_gradient(calls)).remove)
            yield


def _noting_input(calls: list[Call]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def note(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        if x is not None and x.is_floating_point():
            calls.append(Call(Lying.of(x), x.requires_grad))

    return note


def _noting_gradient(calls: list[Call]) -> Callable[[nn.Module, Any, Any], None]:
    def note(_module: nn.Module, _args: Any, output: Any) -> None:
        if calls and isinstance(output, Tensor) and output.requires_grad:
            call = calls[-1]
            output.register_hook(lambda grad: setattr(call, "grad", Lying.of(grad)))  # type: ignore[no-untyped-call]

    return note


def runner(call: Call, forward: Callable[[Tensor], Tensor], modules: Iterable[nn.Module]) -> Callable[[], object]:
    """Return what repeats a call: forward, and backward if a gradient came back, for all that need one."""
    x = call.x.filled()
    if call.grad is None:
        return lambda: _without_gradients(forward, x)
    x.requires_grad_(call.needs_grad)
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    inputs = [*([x] if call.needs_grad else []), *parameters]
    grad_y = call.grad.filled()
    return lambda: torch.autograd.grad(forward(x), inputs, grad_y, allow_unused=True)


def _without_gradients(forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.no_grad():
        return forward(x)
