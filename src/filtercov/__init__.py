"""filtercov: study, transfer and construct the covariance of convolutional filters, and initialise with it.

After "Understanding the Covariance Structure of Convolutional Filters" (Trockman, Willmott and Kolter, ICLR 2023).

>>> import filtercov as fc
>>> from torch import nn
>>> model = nn.Sequential(nn.Conv2d(64, 64, 7, padding=3, groups=64), nn.Conv2d(64, 64, 7, padding=3, groups=64))
>>> report = fc.init_(model)
>>> len(report.initialised)
2

Names are imported when they are first used, so that the mathematics can be had without torch.
"""

import ast
import sys
from importlib import import_module
from typing import Any

_PACKAGES = ("covariance", "errors", "jax", "keras", "lab", "nn")


def _homes() -> dict[str, str]:
    """The module of each public name, as the stub beside this file has it."""
    with open(f"{__file__}i", encoding="utf-8") as stub:  # noqa: PTH123 - importing pathlib takes longer than all this
        body = ast.parse(stub.read()).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom) and node.module != "filtercov"]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name or package once."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _PACKAGES:
        try:
            value = import_module(f"filtercov.{name}")
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise AttributeError(f"filtercov.{name} needs {name}, which is not installed", name=name) from error
    elif name == "__version__":
        value = import_module("importlib.metadata").version("filtercov")
    else:
        # With these Python's traceback says which name was probably meant.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "__version__"])
