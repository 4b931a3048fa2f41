"""The `faults` marker: long fault-injection tests, run only by `pytest -m faults`."""

import multiprocessing

import pytest


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
    multiprocessing.get_context("forkserver").set_forkserver_preload(["filtercov.training", "torch._dynamo"])
