"""Run a model once, to see what happens in it, and leave it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn

from filtercov.errors import ModelError

See = Callable[[nn.Module, Any], object]  # of a module that was called, and its output


def call(model: nn.Module, example: Any) -> Any:
    """Return what a model makes of an example: a tuple or dict of its forward's arguments, or else the only one.

    >>> call(nn.Identity(), {"input": 3}), call(nn.Identity(), (3,)), call(nn.Identity(), 3)
    (3, 3, 3)
    """
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


@contextmanager
def blaming_the_example() -> Iterator[None]:
    """Make whatever a model raises a `ModelError` about the example it was run on."""
    try:
        yield
    except Exception as error:
        raise ModelError(
            f"example_input: running the model on it failed ({error}); pass what its forward takes"
        ) from error


def run_once(model: nn.Module, example: Any, watch: Iterable[nn.Module] = (), see: See = lambda *_: None) -> None:
    """Run a model in evaluation mode and without gradients; `see` is told of every call of the modules to watch.

    Modes, attributes, buffers, gradients, hooks and the random state are afterwards as they were, whether it ran or
    raised.

    >>> net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    >>> run_once(net, torch.zeros(1, 3), watch=[net[1]], see=lambda norm, output: print(norm.training, output.shape))
    False torch.Size([1, 2])
    >>> net.training
    True
    """
    with undisturbed(model, watch=watch, see=see), torch.no_grad():
        call(model, example)


@contextmanager
def undisturbed(model: nn.Module, *, watch: Iterable[nn.Module] = (), see: See = lambda *_: None) -> Iterator[None]:
    """Put a model into evaluation mode and tell `see` of calls; at the end modes, state, hooks are as they were."""
    with ExitStack() as stack:
        stack.enter_context(unchanged(model))
        stack.enter_context(evaluating(model))
        stack.enter_context(torch.compiler.set_stance("force_eager"))  # compiled code calls no hooks
        for module in watch:
            hook = module.register_forward_hook(lambda module, _, output: (see(module, output), None)[1])
            stack.callback(hook.remove)
        yield


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Give a model the values it had, and torch the random state, however often the model is run inside."""
    with torch.random.fork_rng(_graphics_cards(model)), _same_state(model):
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and at the end each of its modules back into the mode it was in.

    Both ways without `train`, which layers that merge weights in evaluation mode override: going one way with it and
    the other without would leave them half merged.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _same_state(model: nn.Module) -> Iterator[None]:
    """Give the modules of a model, at the end, the attributes and buffers they had, with the values these buffers had.

    Both, because a module may remember in an attribute how far it has filled a buffer. Parameters of classes that are
    not PyTorch's get their values back too: the forward of some writes to them, as to codebooks that follow a mean.
    """
    tables = [(table, dict(table.items())) for module in model.modules() for table in _tables(module)]
    foreign = [module for module in model.modules() if not type(module).__module__.startswith("torch.nn.")]
    held = [*model.buffers(), *(p for module in foreign for p in module.parameters(recurse=False))]
    with torch.no_grad():
        values = [(tensor, tensor.clone()) for tensor in held if not tensor.is_meta]
    try:
        yield
    finally:
        for table, before in tables:
            if list(table.keys()) != list(before):  # never so for a scripted module, whose names are fixed
                table.clear()
            for name, value in before.items():
                if name not in table or table[name] is not value:
                    table[name] = value
        for tensor, value in values:
            if not torch.equal(tensor, value):
                with torch.no_grad():
                    tensor.copy_(value)


def _tables(module: nn.Module) -> tuple[dict[str, Any], ...]:
    """Return all dictionaries that a module looks its attributes up in."""
    return vars(module), module._parameters, module._buffers, module._modules


def _graphics_cards(model: nn.Module) -> list[int]:
    tensors = chain(model.parameters(), model.buffers())
    return sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
