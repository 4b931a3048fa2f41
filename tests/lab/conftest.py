"""What the tests of the laboratory share."""

import multiprocessing
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Their tensors are small: threads would only fight over the machine with whatever else runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", autouse=True)
def _warm_fork_server() -> None:
    """Import PyTorch once for all the processes that tests start and kill."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["filtercov.lab.experiments.sweep", "torch._dynamo"]
    )
