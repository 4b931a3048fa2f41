"""Run a model once, to see what happens in it, and leave it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

See = Callable[[nn.Module, Any], object]  # of a module that was called, and its output


def run_once(model: nn.Module, *arguments: Any, watch: Iterable[nn.Module] = (), see: See = lambda *_: None) -> None:
    """Run a model in evaluation mode and without gradients; `see` is told of every call of the modules to watch.

    Modes, buffers, gradients, hooks and the random state are afterwards as they were, whether it ran or raised.

    >>> net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    >>> run_once(net, torch.zeros(1, 3), watch=[net[1]], see=lambda norm, output: print(norm.training, output.shape))
    False torch.Size([1, 2])
    >>> net.training
    True
    """
    with undisturbed(model, watch=watch, see=see), torch.no_grad():
        model(*arguments)


@contextmanager
def undisturbed(model: nn.Module, *, watch: Iterable[nn.Module] = (), see: See = lambda *_: None) -> Iterator[None]:
    """Put a model into evaluation mode and tell `see` of calls; at the end modes, buffers, hooks are as they were."""
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(_graphics_cards(model)))
        stack.enter_context(_same_buffers(model))
        stack.enter_context(evaluating(model))
        for module in watch:
            hook = module.register_forward_hook(lambda module, _, output: (see(module, output), None)[1])
            stack.callback(hook.remove)
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and at the end each of its modules back into the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _same_buffers(model: nn.Module) -> Iterator[None]:
    """Give the modules of a model, at the end, the buffers they had, with the values these had."""
    tables = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    held = {id(buffer): buffer for _, before in tables for buffer in before.values() if buffer is not None}
    values = [(buffer, _version(buffer), buffer.detach().clone()) for buffer in held.values()]
    try:
        yield
    finally:
        for table, before in tables:
            table.clear()
            table.update(before)
        for buffer, version, value in values:
            if _version(buffer) != version:
                buffer.copy_(value)


def _version(tensor: Tensor) -> int:
    """Return how often a tensor was written to; those made in inference mode do not count it, and stay as they are."""
    return 0 if tensor.is_inference() else tensor._version


def _graphics_cards(model: nn.Module) -> list[int]:
    tensors = chain(model.parameters(), model.buffers())
    return sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
