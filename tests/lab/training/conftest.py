"""What the tests of training share."""

import multiprocessing

import pytest


@pytest.fixture(scope="session", autouse=True)
def _warm_fork_server() -> None:
    """Import PyTorch once for all the processes that tests start and kill."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(["filtercov.lab.training", "torch._dynamo"])
