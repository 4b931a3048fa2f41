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
    """Call a model on an example: a tuple or dict of its forward's arguments, or else the only one.

    >>> call(nn.Identity(), {"input": 3}), call(nn.Identity(), (3,)), call(nn.Identity(), 3)
    (3, 3, 3)
    """
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


@contextmanager
def blaming_the_example() -> Iterator[None]:
    """Turn any error of a model into a `ModelError` about the example it was run on."""
    try:
        yield
    except Exception as error:
        raise ModelError(
            f"example_input: running the model on it failed ({error}); pass what its forward takes"
        ) from error


def run_once(model: nn.Module, example: Any, watch: Iterable[nn.Module] = (), see: See = lambda *_: None) -> None:
    """Run a model in evaluation mode and without gradients, calling `see` for every call of the modules in `watch`.

    >>> net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    >>> run_once(net, torch.zeros(1, 3), watch=[net[1]], see=lambda norm, output: print(norm.training, output.shape))
    False torch.Size([1, 2])
    >>> net.training
    True
    """
    eager = torch.compiler.set_stance("force_eager")  # compiled code calls no hooks
    with unchanged(model), evaluating(model), eager, torch.no_grad(), ExitStack() as hooks:
        for module in watch:
            hook = module.register_forward_hook(lambda module, _, output: (see(module, output), None)[1])
            hooks.callback(hook.remove)
        call(model, example)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and afterwards each of its modules back into the mode it was in.

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
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore a model's attributes and buffers, and torch's random state, however often the model is run inside.

    Attributes and values of buffers, because a module may remember in an attribute how far it has filled a buffer.
    """
    modules = list(model.modules())
    tables = [table for m in modules for table in (vars(m), m._parameters, m._buffers, m._modules)]
    entries = [(table, dict(table.items())) for table in tables]
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers() if not buffer.is_meta]
    tensors = chain(model.parameters(), model.buffers())
    devices = {tensor.device.index for tensor in tensors if tensor.device.type == "cuda"}
    with torch.random.fork_rng(sorted(devices)):
        try:
            yield
        finally:
            for table, before in entries:
                if list(table.keys()) != list(before):  # never so for a scripted module, whose names are fixed
                    table.clear()
                for name, value in before.items():
                    if name not in table or table[name] is not value:
                        table[name] = value
            with torch.no_grad():
                for buffer, value in values:
                    if not torch.equal(buffer, value):  # writing would disturb a backward pass that is still to come
                        buffer.copy_(value)
