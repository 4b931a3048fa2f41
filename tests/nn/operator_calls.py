"""Which operators a network calls, as PyTorch's dispatcher sees them."""

from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


class _Record(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.calls.append((function, args))
        return function(*args, **(kwargs or {}))


def operator_calls(net: nn.Module, x: Tensor) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return every operator that a network calls on x, with its arguments."""
    with _Record() as record:
        net(x)
    return record.calls
