"""The `faults` marker, as in tests/training, and sweeps that several tests look at."""

import multiprocessing
from pathlib import Path

import pytest

from tests.experiments.children import sweep_tiny


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "faults: the long version of the kill tests (make test-faults)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "faults" not in config.option.markexpr:
        skip = pytest.mark.skip(reason="run by make test-faults")
        for item in items:
            if "faults" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def _warm_fork_server() -> None:
    """Import PyTorch once for all the processes that tests start and kill."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["filtercov.experiments.sweep", "torch._dynamo"])


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny table, done by one process that nobody interrupted."""
    root = tmp_path_factory.mktemp("undisturbed")
    child = multiprocessing.get_context("forkserver").Process(target=sweep_tiny, args=(root,))
    child.start()
    child.join(300)
    assert child.exitcode == 0
    return root
