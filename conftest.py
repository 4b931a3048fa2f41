"""Leave out frameworks that are not installed, give Keras one to compute with, mend torchvision, seed every test."""

import os
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

collect_ignore = [f"src/filtercov/{name}.py" for name in ("jax", "keras") if find_spec(name) is None]

os.environ.setdefault("KERAS_BACKEND", "jax" if find_spec("jax") else "torch")  # its own default is TensorFlow

MENDED = Path(__file__).parent / "tests" / "mended"
runpy.run_path(str(MENDED / "sitecustomize.py"))  # for this process, and for those that it starts:
os.environ["PYTHONPATH"] = os.pathsep.join([str(MENDED), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(autouse=True)
def same_seed() -> None:
    """Begin every test and docstring example from one seed, so that one that fails will fail again."""
    torch.manual_seed(0)
