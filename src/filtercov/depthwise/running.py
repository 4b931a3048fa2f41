"""Run a model once, to see what happens in it, and leave it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

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

    Both, because a module may remember in an attribute how far it has filled a buffer. Values are also put back in
    parameters that a class of somebody's own holds, whose forward may write to them, as it does to codebooks that
    follow a mean; PyTorch's own classes never do.
    """
    modules = list(model.modules())
    tables = [(table, dict(table.items())) for module in modules for table in _tables(module)]
    held = {id(buffer): buffer for module in modules for buffer in module._buffers.values() if buffer is not None}
    held |= {id(parameter): parameter for module in modules for parameter in _own_parameters(module)}
    values = [(buffer, _version(buffer), buffer.detach().clone()) for buffer in held.values()]
    try:
        yield
    finally:
        for table, before in tables:
            _put_back(table, before)
        for buffer, version, value in values:
            if _version(buffer) != version or _differs(buffer, value):
                with torch.no_grad():
                    buffer.copy_(value)


def _tables(module: nn.Module) -> tuple[dict[str, Any], ...]:
    """Return all dictionaries that a module looks its attributes up in."""
    return vars(module), module._parameters, module._buffers, module._modules


def _put_back(table: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Give a table the entries it had, in their order; a scripted module's can be set but never differ in names."""
    if list(table.keys()) != list(before):
        table.clear()
    for name, value in before.items():
        if name not in table or table[name] is not value:
            table[name] = value


def _own_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that a module of no class of PyTorch's holds itself, not those of modules in it."""
    if not type(module).__module__.startswith("torch.nn."):
        yield from (p for p in module._parameters.values() if type(p) is nn.Parameter)


def _version(tensor: Tensor) -> int:
    """Return how often a tensor was written to; those made in inference mode do not count it, and stay as they are."""
    return 0 if tensor.is_inference() else tensor._version


def _differs(buffer: Tensor, value: Tensor) -> bool:
    """Return whether a buffer was written to without its being counted, as BatchNorm writes its running statistics."""
    if buffer.is_inference() or buffer.is_meta or buffer.layout is not torch.strided:
        return False
    return not torch.equal(buffer, value)


def _graphics_cards(model: nn.Module) -> list[int]:
    tensors = chain(model.parameters(), model.buffers())
    return sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
