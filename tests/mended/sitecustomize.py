"""Mend torchvision for whoever has this folder on PYTHONPATH, which conftest.py puts there for children of the tests.

On import torchvision declares the shapes of compiled operators, `nms` among them, that its wheel lacks beside a CPU
build of torch; timm takes image transforms from it and so cannot be imported either. No test calls those operators, so
their declarations, and only those, are ignored. Nothing is imported before torchvision is.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class MendTorchvision:
    """Finds torchvision as Python would, and has its declarations ignored while it is imported."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return torchvision's own place, with a loader that imports it without its declarations."""
        spec = PathFinder.find_spec(name, path, target) if name == "torchvision" else None
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _without_declarations(spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _without_declarations(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def run(module: ModuleType) -> None:
        import torch

        declare = torch.library.register_fake

        def declare_others(operator: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(operator, str) and operator.startswith("torchvision::"):
                return lambda function: function
            return declare(operator, *arguments, **options)

        torch.library.register_fake = declare_others
        try:
            execute(module)
        finally:
            torch.library.register_fake = declare

    return run


sys.meta_path.insert(0, MendTorchvision)
