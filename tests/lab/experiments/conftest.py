"""Sweeps that several tests look at."""

from pathlib import Path

import pytest

from tests.lab.experiments.tiny import run_children, sweep_tiny


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny table, done by one process that nobody interrupted."""
    root = tmp_path_factory.mktemp("undisturbed")
    run_children(sweep_tiny, root)
    return root
