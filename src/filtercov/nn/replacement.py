"""Classes that take the place of other people's blocks, of which they know the parts, and compute the same faster.

A replacement goes before the block's own class among the bases of a new one, which then takes the place of the block's:

    class FusedConvNeXtBlock(FusedBlock, ConvNeXtBlock): ...

The modules of a block stay what they are. A call is fused only where that cannot be noticed; all others are the class's
own.
"""

import sys
from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from types import FunctionType
from typing import Any, ClassVar

from torch import Tensor, nn

# Classes of blocks, and what takes their place.
_REPLACEMENTS: dict[type[nn.Module], type["Replacement"]] = {}

# Where replacements of other libraries' classes are: imported only if theirs have been, since only then can a module be
# one of them.
_THEIRS = {
    "timm.models.convnext": "filtercov.nn.timm_convnext",
    "timm.models.convmixer": "filtercov.nn.timm_convmixer",
    "timm.layers.norm_act": "filtercov.nn.timm_norm_act",
    "torchvision.ops.misc": "filtercov.nn.torchvision_norm_act",
}


# Classes of dropout, which do nothing in evaluation, and what they call the rate at which they drop.
DROPOUTS: dict[type[nn.Module], str] = dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), "p")


class Replacement(nn.Module):
    """A class with `plain_class` and `plain_forward`, those of the class whose place it takes."""

    plain_class: ClassVar[type[nn.Module]]
    plain_forward: ClassVar[Callable[..., Tensor]]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if len(cls.__bases__) > 1:
            cls.plain_class = cls.__bases__[1]
            cls.plain_forward = _renamed(cls.plain_class.forward, "plain_forward")
            _REPLACEMENTS[cls.plain_class] = cls


def replacement_of(block: nn.Module, kind: type[Replacement]) -> type[Replacement] | None:
    """Return what of a kind can take the place of a block's class, None for any other module."""
    for theirs, ours in _THEIRS.items():
        if theirs in sys.modules:
            import_module(ours)
    found = _REPLACEMENTS.get(type(block))
    return found if found is not None and issubclass(found, kind) else None


def replaced_by(block: nn.Module, kind: type[Replacement]) -> type[nn.Module] | None:
    """Return the class whose place a block's class of this kind has taken, None for any other module."""
    own = type(block)
    return own.plain_class if issubclass(own, kind) and _REPLACEMENTS.get(own.plain_class) is own else None


def does_nothing(layer: nn.Module) -> bool:
    """Return whether a layer hands on what it is given: Identity, and dropout of a known kind where it is off.

    >>> does_nothing(nn.Dropout(0.5)), does_nothing(nn.Dropout(0.5).eval())
    (False, True)
    """
    if type(layer) is nn.Identity:
        return True
    rate = DROPOUTS.get(type(layer))
    return rate is not None and (not layer.training or getattr(layer, rate) == 0)


def _renamed(function: Any, name: str) -> Any:
    """Return a function under another name: TorchScript takes two methods of one name for one."""
    other = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    return update_wrapper(other, function, assigned=("__annotations__", "__doc__", "__module__"))
