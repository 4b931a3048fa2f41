"""Other people's packages, used as oracles; where one is not installed, the tests that ask for it are skipped."""

import importlib
import importlib.util
from types import ModuleType

import pytest


def import_peer(name: str) -> ModuleType:
    """Import timm or torchvision (or a submodule), which conftest.py mends beside a CPU build of torch."""
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return importlib.import_module(name)
