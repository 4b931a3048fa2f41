"""Freed memory stays with the process: the next step touches no page that the system would have to clear first."""

import os
import subprocess
import sys

import pytest

from filtercov.lab.training.memory import keep_freed_memory

# Tensors of 16 MiB, held together and freed together as the activations of a step are.
SCRIPT = """
import resource, sys, torch
from filtercov.lab.training.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    activations = [torch.zeros(1 << 22) for _ in range(8)]
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(mode: str) -> int:
    # Where nobody says from which size on memory is the system's, glibc learns it, and sometimes keeps all by chance.
    returning = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    command = [sys.executable, "-c", SCRIPT, mode]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=returning).stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="needs glibc")
def test_kept_memory_is_not_asked_for_again() -> None:
    assert page_faults("keep") < 500
    assert page_faults("leave") > 5000
