"""Which operators a network or function calls, as PyTorch's dispatcher sees them."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class _Record(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.calls.append((function, args))
        return function(*args, **(kwargs or {}))


def operator_calls(net: Callable[[Tensor], Any], x: Tensor) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return every operator that a network or function calls on x, with its arguments."""
    with _Record() as record:
        net(x)
    return record.calls
