"""Leave out frameworks that are not installed, give Keras one to compute with, mend torchvision, seed every test.

What takes longest begins first, so that no worker is left with it alone at the end.
"""

import os
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

collect_ignore = [f"src/filtercov/{name}.py" for name in ("jax", "keras") if find_spec(name) is None]
if find_spec("triton") is None:
    collect_ignore += ["src/filtercov/nn/gpu/kernels.py", "src/filtercov/nn/gpu/launch.py"]

os.environ.setdefault("KERAS_BACKEND", "jax" if find_spec("jax") else "torch")  # its own default is TensorFlow

MENDED = Path(__file__).parent / "tests" / "mended"
runpy.run_path(str(MENDED / "sitecustomize.py"))  # for this process, and for those that it starts:
os.environ["PYTHONPATH"] = os.pathsep.join([str(MENDED), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(autouse=True)
def same_seed() -> None:
    """Begin every test and docstring example from one seed, so that one that fails will fail again."""
    torch.manual_seed(0)


SLOW = ("test_smoke", "test_ray", "test_kill", "test_kernels", "test_reproduce_cli", "test_execute", "test_terminal")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, in that order; Makefile has workers take files as they come."""
    items.sort(key=lambda item: SLOW.index(item.path.stem) if item.path.stem in SLOW else len(SLOW))
