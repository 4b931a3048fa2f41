"""Other people's packages, used as oracles; where one is not installed, the tests that ask for it are skipped."""

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch


def import_peer(name: str) -> ModuleType:
    """Import timm or torchvision (or a submodule) beside a CPU build of torch.

    torchvision registers fake kernels for compiled operators that its wheel lacks here; those registrations, and only
    those, are ignored.
    """
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    register_fake = torch.library.register_fake

    def register_ours(op: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        if op.startswith("torchvision::"):
            return lambda function: function
        return register_fake(op, *args, **kwargs)

    with mock.patch.object(torch.library, "register_fake", register_ours):
        return importlib.import_module(name)
