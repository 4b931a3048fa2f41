"""Look at tensors without `torch.jit.trace` looking on."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def untraced(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Return a function that `torch.jit.trace` does not follow, for decisions about shapes that are taken once.

    While it traces, sizes are tensors: each comparison of them warns, and none can be handed on as an integer.

    >>> @untraced
    ... def channels(x: torch.Tensor) -> int:
    ...     return x.shape[1]
    >>> channels(torch.zeros(2, 3))
    3
    """

    @wraps(function)
    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if not torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
            return function(*args, **kwargs)
        state = torch._C._get_tracing_state()
        torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
        try:
            return function(*args, **kwargs)
        finally:
            torch._C._set_tracing_state(state)  # type: ignore[attr-defined]

    return run
